"""Turns functions into screens. Each function takes the site and the request, and returns the data for its template."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from ticker.errors import BadInput, UnknownTask, quoted
from ticker.read import formatting, pauses
from ticker.schedules import duration
from ticker.web.access import SAFE
from ticker.web.api.fields import id_in
from ticker.web.pages import phrases
from ticker.web.problems import MEDIA_TYPE, answer
from ticker.web.site import Site, site

Shown = dict[str, Any]
Handler = Callable[[Site, Request], Shown]
Form = Mapping[str, list[str]]
Change = Callable[[Site, Request, Form], Response]
ROWS = 50  # per page of a list
FIELDS = 2000  # per form; a thousand marked tasks need fewer


def screen(template: str) -> Callable[[Handler], Callable[[Request], Response]]:
    """Makes a screen from a function that reads. Its errors are shown as a page."""

    def made(handler: Handler) -> Callable[[Request], Response]:
        def served(request: Request) -> Response:
            try:
                here = site(request)
                return render(request, template, {"pauses": here.pauses()} | handler(here, request))
            except Exception as error:
                return answer(error, request.scope, error_page)

        return served

    return made


def change(handler: Change) -> Callable[[Request], Any]:
    """Makes a handler from a function that takes a form and writes. The page's script shows its errors."""

    async def served(request: Request) -> Response:
        try:
            form = read(await request.body())
            return await run_in_threadpool(handler, site(request), request, form)
        except ClientDisconnect:
            raise
        except Exception as error:
            return answer(error, request.scope)

    return served


def read(body: bytes) -> Form:
    """Returns the fields that a form has sent: each name with all of its values."""
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:  # includes UnicodeError
        raise BadInput("form", None, f"cannot be read; send up to {FIELDS} fields, URL-encoded as UTF-8") from None


def render(request: Request, template: str, shown: Shown, status: int = 200) -> Response:
    here = site(request)
    about = {
        "root": here.root, "address": request.url.path.removeprefix(here.root), "query_text": request.url.query,
        "read_only": here.access.read_only, "words_of": here.words, "version": version("rq-ticker"),
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
        "status": phrases.status, "first_line": phrases.first_line, "rate": formatting.rate, "paused": pauses.sentence,
        "owner_of": formatting.owner_of, "text": phrases.text, "report": phrases.report, "apart": phrases.apart,
    }  # fmt: skip
    return made


def asked(request: Request, name: str, read: Callable[[str, str], Any] = lambda _, text: text) -> Any:
    """Returns the value of a query parameter, or None if it is empty: a form also sends empty fields."""
    text = request.query_params.get(name, "").strip()
    if "\0" in text:
        raise BadInput(name, text, "contains a character that PostgreSQL cannot store")
    return read(name, text) if text else None


def paging(request: Request, name: str, following: object) -> Shown:
    """Returns the parameters of the next and the first page, unless this page is the last or the first."""
    return {
        "following": filtered(request, **{name: following}) if following else "",
        "first": filtered(request, **{name: None}) if asked(request, name) else None,
    }


def id_of(request: Request) -> int:
    """Returns the id in the address. Raises UnknownTask if no row can have it."""
    text = request.path_params["id"]
    try:
        return as_id("id", text)
    except BadInput:
        raise UnknownTask(f"there is nothing with the id {quoted(text)}") from None


def as_id(field: str, text: str) -> int:
    """Parses an id. Raises BadInput if no row can have it."""
    if (number := id_in(text)) is None:
        raise BadInput(field, text, "is not the id of a task")
    return number


def filtered(request: Request, **news: object) -> str:
    """Returns the parameters of this address with some replaced. Removes those that are None or ""."""
    parameters = {**request.query_params, **news}
    return urlencode({name: value for name, value in parameters.items() if value not in (None, "")})
