"""Serves version 1 of the HTTP API: JSON in, JSON out. Errors are RFC 9457 problem details that name the field."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from itertools import groupby

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from ticker.web.api import handlers
from ticker.web.api.operation import OPERATIONS, Operation, body_of, path_of, query_of
from ticker.web.site import site

__all__ = ["handlers", "of_owners", "router"]

BY = "the HTTP API"


def route(path: str, operations: Mapping[str, Operation]) -> Route:
    """Serves the methods of one path. The answer to any other method names the methods that the path accepts."""

    async def served(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        sent = b"" if operation.body is None else await request.body()
        return await run_in_threadpool(work, operation, request, sent)

    return Route(path, served, methods=list(operations))


def work(operation: Operation, request: Request, sent: bytes) -> Response:
    """Reads the request, runs the operation in one connection or transaction, and returns the answer."""
    here = site(request, BY)
    of, arguments = path_of(request, operation), query_of(request, operation.query)
    if operation.body is not None:
        arguments |= body_of(request, sent, operation.body)
    opened = here.database.reading if operation.method == "GET" else here.database.writing
    with nullcontext() if operation.offline else opened() as db:
        data = here.data(db, operation.handler(here, db, *of, **arguments))
    status, kind = next(iter(operation.answers.items()))
    if isinstance(data, Response):
        return data
    return Response(status_code=status) if kind is None else JSONResponse(data, status)


def router_of(operations: Iterable[Operation]) -> Router:
    paths = groupby(operations, key=lambda operation: operation.path)
    return Router([route(path, {one.method: one for one in group}) for path, group in paths], redirect_slashes=False)


router, of_owners = router_of(OPERATIONS), router_of(one for one in OPERATIONS if one.owned)
