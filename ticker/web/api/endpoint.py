"""How an operation is served: what was asked is read and checked, the work done in a thread, and its answer told."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ticker.web.api.operation import Operation
from ticker.web.api.reading import body_of, path_of, query_of
from ticker.web.problems import answer
from ticker.web.site import site


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
    of, said = path_of(request, operation), query_of(request, operation.query)
    if operation.body is not None:
        said |= body_of(request, sent, operation.body)
    if operation.offline:
        found = operation.handler(here, **said)
    else:
        with here.database.reading() if operation.method == "GET" else here.database.writing() as db:
            found = operation.handler(here, db, *of, **said)
    status, schema = next(iter(operation.answers.items()))
    if isinstance(found, Response):
        return found
    return Response(status_code=status) if schema is None else JSONResponse(found, status)
