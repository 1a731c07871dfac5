"""Turns errors into answers: RFC 9457 problem details for programs, a page for people. Each shows only one sentence."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from ticker.errors import BadInput, ConfigurationError, RowLocked, TickerError, Unavailable, UnknownOwner, quoted

log = logging.getLogger("ticker.web")

MEDIA_TYPE = "application/problem+json"
API = "/api/"

Page = Callable[[Request, Mapping[str, Any]], Response]
"""Renders a problem for people."""


class Refused(TickerError):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def status_of(error: Exception) -> int:
    """Returns the HTTP status of an error."""
    match error:
        case Refused():
            return error.status
        case HTTPException():
            return error.status_code
        case BadInput() | UnknownOwner():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case LookupError() if isinstance(error, TickerError):
            return HTTPStatus.NOT_FOUND
        case RowLocked():
            return HTTPStatus.CONFLICT
        case Unavailable() | ConfigurationError():
            return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.INTERNAL_SERVER_ERROR


def sentence_of(error: Exception) -> str:
    match error:
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            return "there is nothing at this address"
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED):
            return (
                f"this address does not accept that method; it accepts {(error.headers or {}).get('Allow', 'others')}"
            )
        case HTTPException():
            return str(error.detail)
        case TickerError():
            return str(error)
    return "an internal error has occurred; the log of this process has the details"


def answer(error: Exception, scope: Scope, page: Page) -> Response:
    """Returns the answer to an error. It names the field of the input that caused it.

    An unexpected error is logged with its traceback, and answered without it.
    """
    status = status_of(error)
    field = "owner" if isinstance(error, UnknownOwner) else getattr(error, "field", None)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error(
            "%s %s: %s",
            quoted(scope["method"]),
            quoted(below(scope)),
            type(error).__name__,
            exc_info=error,
            extra={"event": "request_failed"},
        )
    problem = {
        "type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence_of(error),
        **({"field": field} if field else {}),
    }  # fmt: skip
    headers = dict(getattr(error, "headers", None) or {})
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Basic realm="ticker", charset="UTF-8"'
    if below(scope).startswith(API):
        return JSONResponse(problem, status, headers, MEDIA_TYPE)
    response = page(Request({**scope, "root_path": scope["ticker.root"]}), problem)
    response.headers.update(headers)
    return response


def below(scope: Scope) -> str:
    """Returns the path below the mount point of the application. Its parts may be mounted further down."""
    path: str = scope["path"]
    return path.removeprefix(scope["ticker.root"])
