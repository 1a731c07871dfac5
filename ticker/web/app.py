"""Builds the ASGI application from its routes."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anyio import Lock
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles

from ticker import clock
from ticker import settings as ticker_settings
from ticker.metrics.servers import Servers
from ticker.read import health
from ticker.settings import Settings
from ticker.web import api, pages
from ticker.web.access import Access, Guard, Who, framed_by
from ticker.web.problems import answer
from ticker.web.site import Database, Site

log = logging.getLogger("ticker.web")
READINESS_KEPT = 1.0  # seconds


def application(
    settings: Settings | None = None,
    *,
    tokens: Sequence[str] | None = None,
    no_token: bool = False,
    trusted: bool = False,
    read_only: bool = False,
    who: Who | None = None,
    frame_ancestors: Sequence[str] = (),
) -> Starlette:
    """Returns an ASGI application with the page at its root, and the HTTP API under `/api/v1`.

    `settings` defaults to those of the environment, as they are now. `tokens`: any one of them gives access. They
    default to TICKER_WEB_TOKEN; if it is not set, a token is generated and logged as a warning. `no_token`: requests
    that come directly from this host need no token. `trusted`: the application that mounts it decides who has access.
    `read_only`: nothing can be changed.

    `who(request)` returns a `Viewer(name, may_change, owners)` for each request that has access: the author of its changes,
    whether it may make any, and whose tasks and runs it may see (None: all). It is called once, in a thread. An error of it is
    answered with 403. `frame_ancestors`: the origins whose pages may show this page in a frame, such as `https://ops.example.org`; by default, none.

    Raises ConfigurationError if DATABASE_URL is not set, or if an origin is invalid.
    """
    settings = settings or ticker_settings.from_environment()
    tokens = tuple(settings.web_tokens if tokens is None else tokens)
    no_token = no_token or settings.web_no_token
    is_read_only = read_only or settings.web_read_only
    access = Access(with_token(tokens, no_token or trusted), no_token, trusted, is_read_only, who)
    breaker = health.CircuitBreaker()
    database = Database(settings, breaker)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        database.close()

    app = Starlette(
        routes=ROUTES,
        middleware=[
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5),
            Middleware(
                Guard,
                access=access,
                settings=settings,
                page=pages.error_page,
                headers=framed_by(frame_ancestors),
                of_owners=Router(OF_OWNERS),
            ),
        ],
        exception_handlers={HTTPException: failed},  # the guard answers all other errors
        lifespan=lifespan,
    )
    app.state.site = Site(settings, database, access, breaker)
    app.state.readiness = Readiness(app.state.site.look)
    app.state.servers = Servers(settings)
    return app


def with_token(tokens: tuple[str, ...], open_: bool) -> tuple[str, ...]:
    """Returns the tokens. If none is set and access is not open, generates one and logs it."""
    if tokens or open_:
        return tokens
    token = new_token()
    log.warning(
        "no token is set (TICKER_WEB_TOKEN); generated one for this process only: token=%s",
        token,
        extra={"event": "token_generated"},
    )
    return (token,)


def new_token() -> str:
    return secrets.token_urlsafe(32)


class Readiness:
    """Keeps the result of `look` for one second. Anyone may ask, so a flood of requests must not reach the servers."""

    def __init__(self, look: Callable[[], health.Health]) -> None:
        self._look = look
        self._lock = Lock()
        self._last: tuple[float, health.Health] | None = None

    async def __call__(self) -> health.Health:
        async with self._lock:  # a request that waits here holds no thread
            if self._last is None or clock.monotonic() >= self._last[0] + READINESS_KEPT:
                status = await run_in_threadpool(self._look)
                self._last = clock.monotonic(), status
            return self._last[1]


def alive(_: Request) -> Response:
    """Answers that this process is alive."""
    return PlainTextResponse("ok\n")


async def ready(request: Request) -> Response:
    """Answers 200 if all is well, otherwise 503. Authenticated clients get the details."""
    status = await request.app.state.readiness()
    content = health.data(status) if request.scope["ticker.known"] else {"healthy": status.ok}
    return JSONResponse(content, 200 if status.ok else 503)


def scraped(request: Request) -> Response:
    """Serves the metrics of the database and Redis to Prometheus. Each ticker serves those of its own ticks."""
    from ticker.metrics import exposition  # not before it is needed, because its library is an extra

    text, media_type = exposition.text(request.app.state.servers.figures(), request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


def failed(request: Request, error: Exception) -> Response:
    return answer(error, request.scope, pages.error_page)


STATIC = Mount("/static", StaticFiles(packages=[("ticker.web", "static")]), name="static")
HEALTH = [Route("/healthz", alive), Route("/readyz", ready)]
ROUTES = [Mount("/api/v1", api.router), *HEALTH, Route("/metrics", scraped), STATIC, *pages.routes]
OF_OWNERS = [Mount("/api/v1", api.of_owners), *HEALTH, STATIC, *pages.of_owners]
"""The routes of viewers who may see only the tasks and runs of some owners."""
