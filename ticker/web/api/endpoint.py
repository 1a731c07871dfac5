"""How a function becomes an endpoint: it is handed what it asks for, in a thread, and returns data."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ticker.errors import BadInput
from ticker.web.problems import Refused, answer
from ticker.web.site import Site, site

Body = Mapping[str, Any]
Handler = Callable[[Site, Request, Body], "tuple[int, Any]"]
"""A status and what is told with it."""

WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def endpoint(handler: Handler) -> Callable[[Request], Any]:
    async def served(request: Request) -> Response:
        try:
            body = read(await request.body(), request) if request.method in WITH_BODY else {}
            status, data = await run_in_threadpool(handler, site(request), request, body)
        except Exception as error:
            return answer(error, request.scope)
        return Response(status_code=status) if data is None else JSONResponse(data, status)

    served.__name__, served.__doc__ = handler.__name__, handler.__doc__
    return served


def read(text: bytes, request: Request) -> Body:
    """The object in a request's body; none is an empty one."""
    if not text:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "the body is no application/json")
    try:
        found = json.loads(text)
    except RecursionError:
        raise BadInput("body", None, "is nested too deeply") from None
    except ValueError as error:
        raise BadInput("body", None, f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput("body", None, "is no JSON object")
    return found
