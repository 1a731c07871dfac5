"""Lists all operations and serves them. The OpenAPI document describes the same list."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from ticker.web.api import limits, openapi, owners, pauses, runs, schedules, state, tasks
from ticker.web.api.operation import Operation
from ticker.web.api.reading import body_of, path_of, query_of
from ticker.web.problems import answer
from ticker.web.site import Site, site


def description(site: Site) -> dict[str, Any]:
    """Returns this description."""
    return openapi.document(OPERATIONS, site.root, needs_token=bool(site.access.tokens))


OPERATIONS = (
    *tasks.OPERATIONS, *runs.OPERATIONS, *schedules.OPERATIONS, *owners.OPERATIONS, *limits.OPERATIONS, *pauses.OPERATIONS,
    *state.OPERATIONS,
    Operation("GET", "/openapi.json", description, {200: {"type": "object"}}, offline=True),
)  # fmt: skip


def route(path: str, operations: Mapping[str, Operation]) -> Route:
    """Serves the methods of one path. The answer to any other method names the methods that the path accepts."""

    async def served(request: Request) -> Response:
        operation = operations["GET" if request.method == "HEAD" else request.method]
        try:
            sent = b"" if operation.body is None else await request.body()
            return await run_in_threadpool(work, operation, request, sent)
        except ClientDisconnect:
            raise
        except Exception as error:
            return answer(error, request.scope)

    return Route(path, served, methods=list(operations))


def work(operation: Operation, request: Request, sent: bytes) -> Response:
    """Reads the request, runs the operation in one connection or transaction, and returns the answer."""
    here = site(request)
    of, arguments = path_of(request, operation), query_of(request, operation.query)
    if operation.body is not None:
        arguments |= body_of(request, sent, operation.body)
    if operation.offline:
        result = operation.handler(here, **arguments)
    else:
        with here.database.reading() if operation.method == "GET" else here.database.writing() as db:
            result = operation.handler(here, db, *of, **arguments)
    status, kind = next(iter(operation.answers.items()))
    if isinstance(result, Response):
        return result
    return Response(status_code=status) if kind is None else JSONResponse(result, status)


PATHS = groupby(OPERATIONS, key=lambda operation: operation.path)
router = Router([route(path, {one.method: one for one in group}) for path, group in PATHS], redirect_slashes=False)
