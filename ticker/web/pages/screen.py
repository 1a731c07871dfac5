"""Turns functions into screens, and reads the addresses and forms that they are called with.

Each function takes the site and the request, and returns the data for its template. Values are read and checked by the
schemas of the API.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ticker.errors import BadInput
from ticker.read import entries, formatting, gates
from ticker.schedules import duration, once
from ticker.web.access import SAFE
from ticker.web.api.fields import TEXT, Schema
from ticker.web.api.operation import row_id, text_in
from ticker.web.pages import phrases
from ticker.web.problems import MEDIA_TYPE, Refused, answer, below
from ticker.web.site import Site, site

Shown = dict[str, Any]
Handler = Callable[[Site, Request], Shown]
Form = Mapping[str, list[str]]
Change = Callable[[Site, Request, Form], Response]
ROWS = 50  # per page of a list
BY = "the page"
FIELDS = 2000  # per form; a thousand marked tasks need fewer


def screen(template: str) -> Callable[[Handler], Callable[[Request], Response]]:
    """Makes a screen from a function that reads. Its errors are shown as a page."""

    def made(handler: Handler) -> Callable[[Request], Response]:
        def served(request: Request) -> Response:
            try:
                here = site(request, BY)
                return render(request, template, {"pauses": here.pauses()} | here.hide(handler(here, request)))
            except Exception as error:
                return answer(error, request.scope, error_page)

        return served

    return made


def change(handler: Change) -> Callable[[Request], Any]:
    """Makes a handler from a function that takes a form and writes. The page's script shows its errors."""

    async def served(request: Request) -> Response:
        try:
            form = read(await request.body())
            return await run_in_threadpool(handler, site(request, BY), request, form)
        except ClientDisconnect:
            raise
        except Exception as error:
            return answer(error, request.scope)

    return served


def render(request: Request, template: str, shown: Shown, status: int = 200) -> Response:
    here = site(request, BY)
    about = {
        "root": here.root, "address": request.url.path.removeprefix(here.root), "query_text": request.url.query,
        "wanted": defaultdict(str, request.query_params), "read_only": here.access.read_only,
        "version": version("rq-ticker"),
    }  # fmt: skip
    return HTMLResponse(templates().get_template(template).render(about | {"pauses": ()} | shown), status)


def error_page(request: Request, problem: Mapping[str, Any]) -> Response:
    """Returns a page for requests that read. Requests that change something come from a script, and get JSON."""
    if request.method not in SAFE:
        return JSONResponse(problem, problem["status"], media_type=MEDIA_TYPE)
    return render(request, "error.html", {"problem": problem}, problem["status"])


@cache
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("ticker.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    made.filters |= {
        "moment": formatting.moment, "words": duration.words, "schedule": phrases.schedule, "state": formatting.state,
        "state_in_words": formatting.state_in_words, "mark": phrases.mark, "plain": phrases.plain, "ago": phrases.ago,
        "lateness": phrases.lateness, "took": formatting.took, "tone": phrases.tone, "iso": phrases.iso, "strip": phrases.strip,
        "status": phrases.status, "first_line": phrases.first_line, "rate": formatting.rate, "paused": gates.sentence,
        "owner_of": formatting.owner_of, "text": phrases.text, "report": phrases.report, "apart": phrases.apart,
    }  # fmt: skip
    return made


def asked(request: Request, name: str, schema: Schema = TEXT) -> Any:
    """Returns the value of a query parameter, or None if it is empty: a form also sends empty fields."""
    text = request.query_params.get(name, "").strip()
    return text_in(name, schema, text) if text else None


def filters(request: Request, known: Mapping[str, Schema]) -> dict[str, Any]:
    """Returns the values of these query parameters, without those that are empty."""
    given = {name: asked(request, name, schema) for name, schema in known.items()}
    return {name: value for name, value in given.items() if value is not None}


def paging(request: Request, name: str, following: object) -> Shown:
    """Returns the parameters of the next and the first page, unless this page is the last or the first."""
    return {
        "following": filtered(request, **{name: following}) if following else "",
        "first": filtered(request, **{name: None}) if request.query_params.get(name) else None,
    }


def id_of(request: Request) -> int:
    """Returns the id in the address. Raises Refused if no row can have it."""
    return row_id(below(request.scope), request.path_params["id"])


def filtered(request: Request, **news: object) -> str:
    """Returns the parameters of this address with some replaced. Removes those that are None or ""."""
    parameters = {**request.query_params, **news}
    return urlencode({name: value for name, value in parameters.items() if value not in (None, "")})


# -------------------------------------------------------------------------------------------------------------- forms


def read(body: bytes) -> Form:
    """Returns the fields that a form has sent: each name with all of its values."""
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:  # includes UnicodeError
        raise BadInput("form", None, f"cannot be read; send up to {FIELDS} fields, URL-encoded as UTF-8") from None


def one(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()


def fields_of(db: Any, form: Form, body: Schema | None) -> dict[str, Any]:
    """Returns the filled-in fields of an operation's body. A time may also be a duration from now. The page itself is `by`."""
    known: Mapping[str, Schema] = body["properties"] if body else {}
    given: dict[str, Any] = {name: one(form, name) for name in known if name != "by" and one(form, name)}
    for name, text in given.items():
        match known[name]:
            case {"type": "integer"} as schema:
                given[name] = text_in(name, schema, text)
            case {"format": "date-time"}:
                given[name] = once.instant(name, text, lambda: entries.instant(db))
    return given


def done(here: Site, says: Callable[[Any], str], operation: Callable[..., Any], *of: Any, **given: Any) -> Response:
    """Runs an operation of the API. Says what it did, or that there was nothing to do."""
    try:
        with here.database.writing() as db:
            return report(says(operation(here, db, *of, **given)))
    except Refused as nothing:
        return report(str(nothing))


def report(sentence: str, address: str = "") -> Response:
    """Answers without content. The page's script shows the sentence and refreshes, or opens an address and shows it
    there.
    """
    headers = {"HX-Trigger": json.dumps({"said_there" if address else "said": sentence})}
    return Response(status_code=204, headers=headers | ({"HX-Redirect": address} if address else {}))
