"""Lists all operations and serves them. The OpenAPI document describes the same list."""

from collections.abc import Mapping
from contextlib import nullcontext
from itertools import groupby
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from ticker.read import overview
from ticker.read.health import Health
from ticker.web.api import gates, openapi, runs, tasks
from ticker.web.api.operation import Operation, body_of, path_of, query_of
from ticker.web.api.schemas import object_of
from ticker.web.problems import answer
from ticker.web.site import Site, site

BY = "the HTTP API"


def stats(here: Site, _: None) -> dict[str, Any]:
    """Returns the number of tasks, in total and by state, the health, and whether the API is read-only or hides
    arguments.
    """
    with here.database.reading() as db:
        counts = overview.counts(db)
    return {
        "counts": counts,
        "health": here.look(),
        "read_only": here.access.read_only,
        "hides_args": here.settings.hide_args,
    }


def functions(_: Site, db: Any) -> dict[str, Any]:
    """Lists the functions that workers have announced, by name."""
    return {"functions": overview.functions(db)}


def description(here: Site, _: None) -> dict[str, Any]:
    """Returns this description."""
    return openapi.document(OPERATIONS, here.root, needs_token=bool(here.access.tokens))


STATS = object_of(counts=overview.Counts, health=Health, read_only=bool, hides_args=bool)

OPERATIONS = (
    *tasks.OPERATIONS, *runs.OPERATIONS, *gates.OPERATIONS,
    Operation("GET", "/stats", stats, {200: STATS}, offline=True),
    Operation("GET", "/functions", functions, {200: object_of(functions=list[overview.Function])}),
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


PATHS = groupby(OPERATIONS, key=lambda operation: operation.path)
router = Router([route(path, {one.method: one for one in group}) for path, group in PATHS], redirect_slashes=False)
