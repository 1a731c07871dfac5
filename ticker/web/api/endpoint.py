"""How an operation is served: what was asked is read and checked, the work done in a thread, and its answer told."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ticker.errors import BadInput, did_you_mean
from ticker.web.access import is_json
from ticker.web.api.fields import Field
from ticker.web.api.operation import Answer, Asked, Operation
from ticker.web.problems import Refused, answer
from ticker.web.site import site

NAMED_AT_MOST = 60  # characters of an unknown name that is told as it came


def endpoint(operations: Mapping[str, Operation]) -> Callable[[Request], Any]:
    """Of one path: by its methods."""

    async def served(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        try:
            sent = b"" if operation.body is None else await request.body()
            return told(await run_in_threadpool(work, operation, request, sent))
        except ClientDisconnect:
            raise
        except Exception as error:
            return answer(error, request.scope)

    return served


def work(operation: Operation, request: Request, sent: bytes) -> Answer:
    of = operation.of and operation.of.read(operation.of.name, request.path_params[operation.of.name])
    query = given(operation.query, pairs(request), "query")
    body = given(operation.body or (), read(sent, request), "body")
    return operation.handler(site(request), Asked(request.scope["root_path"], of, query, body))


def told(found: Answer) -> Response:
    headers = {"Location": found.location} if found.location else None
    if found.data is None:
        return Response(status_code=found.status, headers=headers)
    return JSONResponse(found.data, found.status, headers)


def given(fields: Iterable[Field], said: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What was said, each piece as its field reads it. BadInput for one that is not known, null, or missing."""
    known = {field.name: field for field in fields}
    for name in said:
        if name not in known:
            raise unknown(name, where, known)
    for name, field in known.items():
        if field.required and name not in said:
            raise BadInput(name, None, f"is missing: {field.says[0].lower()}{field.says[1:].rstrip('.')}")
        if name in said and said[name] is None:
            raise BadInput(name, None, "is null; leave out what is not said")
    return {name: known[name].read(name, value) for name, value in said.items()}


def unknown(name: str, where: str, known: Iterable[str]) -> BadInput:
    """It is named as it came where that can be shown."""
    names = ", ".join(known) or "none"
    if name.isprintable() and 0 < len(name) <= NAMED_AT_MOST:
        return BadInput(
            name, None, f"is not known in the {where} of this request{did_you_mean(name, known)}; known: {names}"
        )
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
