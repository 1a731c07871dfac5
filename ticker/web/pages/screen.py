"""Turns functions into screens, and reads the addresses and forms that they are called with.

Each function takes the site, a connection and the request, and returns the data for its template. Values are read and checked by the
schemas of the API.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ticker.errors import BadInput
from ticker.read import activity, entries, explain, formatting, gates
from ticker.read.tasks import late_since
from ticker.schedules import once
from ticker.tasks.checks import json_value
from ticker.tasks.sorts import Schema
from ticker.web.access import SAFE
from ticker.web.api.operation import TEXT, row_id, text_in, value_in
from ticker.web.pages import phrases
from ticker.web.problems import MEDIA_TYPE, Refused, below
from ticker.web.site import Site, site

Shown = dict[str, Any]
Handler = Callable[[Site, Any, Request], Shown | Response]
Form = Mapping[str, list[str]]
Change = Callable[[Site, Request, Form], Response]
ROWS = 50  # per page of a list
BY = "the page"
BACK = 200  # pages before a page, to which its address leads back
FIELDS = 2000  # per form; a thousand marked tasks need fewer
YES = "yes"
routes: list[Route] = []
of_owners: list[Route] = []
"""The routes that viewers of some owners have, too."""


def screen(path: str, template: str, *, offline: bool = False, owned: bool = False) -> Callable[[Handler], Handler]:
    """Serves a function that reads as a screen, or leads to one. If `offline`, it gets no connection, and adds `of_all` itself.

    If `owned`, viewers of some owners have it, too: each statement that it uses has the rule `seen`.
    """

    def declared(handler: Handler) -> Handler:
        def served(request: Request) -> Response:
            here = site(request, BY)
            with nullcontext() if offline else here.database.reading() as db:
                answer = handler(here, db, request)
                if isinstance(answer, Response):
                    return answer
                shown = ({} if offline else of_all(db)) | answer
            return render(request, template, here.hide(shown))

        serve(Route(path, served), owned)
        return handler

    return declared


def change(path: str, *, owned: bool = False) -> Callable[[Change], Change]:
    """Serves a function that takes a form and writes. The page's script shows its answers and errors."""

    def declared(handler: Change) -> Change:
        async def served(request: Request) -> Response:
            form = read(await request.body())
            return await run_in_threadpool(handler, site(request, BY), request, form)

        serve(Route(path, served, methods=["POST"]), owned)
        return handler

    return declared


def serve(route: Route, owned: bool) -> None:
    routes.append(route)
    if owned:
        of_owners.append(route)


def of_all(db: Any) -> Shown:
    """Returns what each screen shows: the pauses in its banner, and how long ago or ahead times are."""
    return {"pauses": gates.list_pauses(db), "now": entries.instant(db)}


def render(request: Request, template: str, shown: Shown, status: int = 200) -> Response:
    here = site(request, BY)
    is_limited = here.owners is not None
    about = {
        "root": here.root, "address": request.url.path.removeprefix(here.root), "query_text": request.url.query,
        "wanted": defaultdict(str, request.query_params), "read_only": here.access.read_only,
        "version": version("rq-ticker"), "is_limited": is_limited,
    }  # fmt: skip
    of_others = {"pauses": (), "functions": ()} if is_limited else {}
    return HTMLResponse(templates().get_template(template).render(about | {"pauses": ()} | shown | of_others), status)


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
    made.filters |= vars(phrases) | {
        "moment": formatting.moment, "clock": explain.time_of_day, "counted": explain.counted, "state": formatting.state, "tone": formatting.tone,
        "state_in_words": formatting.state_in_words, "rate": formatting.rate, "paused": gates.sentence,
        "late_since": late_since, "point_words": activity.words, "point_title": activity.title,
        "bulk_in_words": formatting.bulk_in_words, "spread_in_words": formatting.spread_in_words,
    }  # fmt: skip
    return made


# ---------------------------------------------------------------------------------------------------------- addresses


def asked(request: Request, name: str, schema: Schema = TEXT) -> Any:
    """Returns the value of a query parameter, or None if it is empty: a form also sends empty fields."""
    text = request.query_params.get(name, "").strip()
    return text_in(name, schema, text) if text else None


def filters(request: Request, known: Mapping[str, Schema]) -> dict[str, Any]:
    """Returns the values of these query parameters, without those that are empty."""
    given = {name: asked(request, name, schema) for name, schema in known.items()}
    return {name: value for name, value in given.items() if value is not None}


def paging(request: Request, name: str, following: object) -> Shown:
    """Returns the parameters of the next, the previous and the first page, unless there is none.

    A page begins after a bookmark. `back` in the address has the bookmarks of the last pages before it. The bookmark of
    the first page is empty.
    """
    given, past = request.query_params, request.query_params.getlist("back")[-BACK:]
    others, here = {key: text for key, text in given.items() if text and key not in (name, "back")}, given.get(name)

    def page(bookmark: object, before: list[str]) -> str:
        return urlencode({**others, **({name: bookmark} if bookmark else {}), "back": before}, doseq=True)

    return {
        "following": page(following, [*past, here or ""]) if following else "",
        "previous": page(past[-1], past[:-1]) if here and past else None,
        "first": page("", []) if here else None,
    }


def id_of(request: Request) -> int:
    """Returns the id in the address. Raises Refused if no row can have it."""
    return row_id(below(request.scope), request.path_params["id"])


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
    """Returns the filled-in fields of an operation's body. The page itself is `by`."""
    known: Mapping[str, Schema] = body["properties"] if body else {}
    texts = {name: one(form, name) for name in known if name != "by"}
    return {name: value_of(db, name, known[name], text) for name, text in texts.items() if text}


def value_of(db: Any, name: str, schema: Schema, text: str) -> Any:
    """Returns the value of a field in a form that its operation accepts. A time may also be a duration from now."""
    match schema:
        case {"format": "date-time"}:
            return once.instant(name, text, lambda: entries.instant(db))
        case {"type": "object"}:
            return json_value(name, text or "{}")
        case {"type": "array"}:
            return json_value(name, text or "[]")
        case {"type": "integer"}:
            return text_in(name, schema, text or "0")
        case {"type": "boolean"} if text in ("", YES):
            return text == YES
    return value_in(name, schema, text)


def done(here: Site, says: Callable[[Any], str], operation: Callable[..., Any], *of: Any, **given: Any) -> Response:
    """Runs an operation of the API. Says what it did, or that there was nothing to do."""
    try:
        with here.database.writing() as db:
            return report(says(operation(here, db, *of, **given)))
    except Refused as nothing:
        return report(str(nothing))


def report(sentence: str, address: str = "", undo: Shown | None = None) -> Response:
    """Answers without content. The page's script shows the sentence and refreshes, or opens an address and shows it
    there. For ten seconds, it offers to send the form `undo`: a `path` and its `values`.
    """
    there = "_there" if address else ""
    events = {f"said{there}": sentence} | ({f"undo{there}": undo} if undo else {})
    headers = {"HX-Trigger": json.dumps(events)}
    return Response(status_code=204, headers=headers | ({"HX-Redirect": address} if address else {}))
