"""How an operation is served: what was asked is read and checked, the work done in a thread, and its answer told."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ticker.errors import BadInput, quoted
from ticker.web.access import is_json
from ticker.web.api.fields import Schema, id_in, text_in, value_in
from ticker.web.api.operation import Operation
from ticker.web.problems import Refused, answer
from ticker.web.site import site

NAMED_AT_MOST = 60  # characters of an unknown name that is told as it came


def endpoint(operations: Mapping[str, Operation]) -> Callable[[Request], Any]:
    """Of one path: by its methods."""

    async def served(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        try:
            sent = b"" if operation.body is None else await request.body()
            return await run_in_threadpool(work, operation, request, sent)
        except ClientDisconnect:
            raise
        except Exception as error:
            return answer(error, request.scope)

    return served


def work(operation: Operation, request: Request, sent: bytes) -> Response:
    here = site(request)
    of = [named(operation, name, request.path_params[name]) for name in operation.piece]
    query = given(operation.query, pairs(request), "query")
    told = {name: text_in(name, operation.query[name], text) for name, text in query.items()}
    usual = {name: schema["default"] for name, schema in operation.query.items() if "default" in schema}
    if operation.body is not None:
        known = operation.body["properties"]
        body = given(known, read(sent, request), "body", operation.body["required"])
        told |= {name: value_in(name, known[name], value) for name, value in body.items()}
    if operation.offline:
        found = operation.handler(here, **usual | told)
    else:
        with here.database.reading() if operation.method == "GET" else here.database.writing() as db:
            found = operation.handler(here, db, *of, **usual | told)
    if isinstance(found, Response):
        return found
    status = next(iter(operation.answers))
    return Response(status_code=status) if operation.answers[status] is None else JSONResponse(found, status)


def named(operation: Operation, name: str, text: str) -> Any:
    """What the path names: an owner, or the id of a row, which is looked for later. Refused where no row can have it."""
    if name == "owner":
        return value_in(name, operation.piece[name], text)
    if (found := id_in(text)) is None:
        raise Refused(404, f"there is no {operation.noun} {quoted(text)}; ids are whole numbers from 1")
    return found


def given(known: Mapping[str, Schema], said: Mapping[str, Any], where: str, required: Iterable[str] = ()) -> Mapping[str, Any]:  # fmt: skip
    """What was said. Raises BadInput for a name that is not known, or whose value is null or missing."""
    for name in said:
        if name not in known:
            raise unknown(name, where, known)
    for name in required:
        if name not in said:
            says = known[name]["description"]
            raise BadInput(name, None, f"is missing: {says[0].lower()}{says[1:].rstrip('.')}")
    for name, value in said.items():
        if value is None:
            raise BadInput(name, None, "is null; leave out what is not said")
    return said


def unknown(name: str, where: str, known: Iterable[str]) -> BadInput:
    """It is named as it came where that can be shown."""
    names = ", ".join(known) or "none"
    if name.isprintable() and 0 < len(name) <= NAMED_AT_MOST:
        return BadInput(name, None, f"is not known in the {where} of this request; known: {names}")
    return BadInput(where, name, f"is not known here; known: {names}")


def pairs(request: Request) -> dict[str, str]:
    """What stands behind the `?`, each name once."""
    found: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name in found:
            raise BadInput("query", name, "is given twice; give it once")
        found[name] = text
    return found


def read(sent: bytes, request: Request) -> Mapping[str, Any]:
    """The object in a request's body; none is an empty one."""
    if not sent:
        return {}
    if not is_json(request.headers):
        raise Refused(415, "the body is no application/json; say so in Content-Type")
    try:
        found = json.loads(sent.decode(), parse_constant=_no_number)
    except RecursionError:
        raise BadInput("body", None, "is nested too deeply") from None
    except ValueError as error:  # of the standard library's words only those that name a place are for readers
        where = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput("body", None, f"is not JSON that can be read{where}") from None
    if not isinstance(found, dict):
        raise BadInput("body", None, 'is no JSON object; write {"name": value}')
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
