"""Errors as answers: RFC 9457 problem details for programs, a page for people. None shows more than its one sentence."""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from ticker.errors import BadInput, ConfigurationError, RowLocked, TickerError, Unavailable

log = logging.getLogger("ticker.web")

MEDIA_TYPE = "application/problem+json"
API = "/api/"


class Refused(TickerError):
    """A request that is not served. `status` is HTTP's."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def status_of(error: Exception) -> int:
    """Which of HTTP's status codes says it."""
    match error:
        case Refused():
            return error.status
        case HTTPException():
            return error.status_code
        case BadInput():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case LookupError() if isinstance(error, TickerError):
            return HTTPStatus.NOT_FOUND
        case RowLocked():
            return HTTPStatus.CONFLICT
        case Unavailable() | ConfigurationError():
            return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.INTERNAL_SERVER_ERROR


def sentence_of(error: Exception) -> str:
    if isinstance(error, HTTPException):
        return str(error.detail)
    if isinstance(error, TickerError):
        return str(error)
    return "something went wrong here; the log of this process says what"


def details(error: Exception) -> dict[str, Any]:
    """The problem as an object; `field` names what of the input it is about."""
    status = status_of(error)
    found = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence_of(error)}
    return found | ({"field": error.field} if isinstance(error, BadInput) else {})


def answer(error: Exception, scope: Scope, page: Callable[[Request, dict[str, Any]], Response] | None = None) -> Response:
    """What the requester is told; an error that nobody expected is logged with its traceback, and told without."""
    found = details(error)
    if found["status"] == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s: %s", scope["method"], scope["path"], type(error).__name__, exc_info=error)
    headers = dict(getattr(error, "headers", None) or {})
    if found["status"] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Basic realm="ticker", charset="UTF-8"'
    if page is not None and API not in scope["path"]:
        response = page(Request(scope), found)
        response.headers.update(headers)
        return response
    return JSONResponse(found, found["status"], headers, MEDIA_TYPE)
