from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

routes: list[Any] = []


def error_page(request: Request, problem: dict[str, Any]) -> Response:
    return PlainTextResponse(problem["detail"], problem["status"])
