"""The whole application: what is served where."""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anyio import Lock
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from ticker import clock, settings
from ticker.errors import TickerError
from ticker.metrics import Page
from ticker.read import health
from ticker.settings import Settings
from ticker.web import api, pages
from ticker.web.access import Access, Guard
from ticker.web.database import Database
from ticker.web.problems import answer
from ticker.web.site import Site

log = logging.getLogger("ticker.web")
READINESS_KEPT = 1.0  # seconds


def application(
    found: Settings | None = None,
    *,
    tokens: Sequence[str] | None = None,
    no_token: bool = False,
    trusted: bool = False,
    read_only: bool = False,
) -> Starlette:
    """An ASGI application: the page at its root, the HTTP API under `/api/v1`.

    `found` None: the settings of the environment, as they are now; whatever it reads and writes goes by them. `tokens`:
    any of them is accepted; defaults to TICKER_WEB_TOKEN, and if there is none, one is generated and logged as a warning.
    `no_token`: requests that come directly from this host need none. `trusted`: your application around it decides who has
    access. Raises ConfigurationError if DATABASE_URL is not set.
    """
    said = found or settings.from_environment()
    tokens = tuple(said.web_tokens if tokens is None else tokens)
    no_token = no_token or said.web_no_token
    access = Access(with_token(tokens, no_token or trusted), no_token, trusted, read_only or said.web_read_only)
    breaker = health.CircuitBreaker()
    database = Database(said, breaker)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        database.close()

    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Under, found=said), Middleware(Guard, access=access, page=pages.error_page)],
        exception_handlers={HTTPException: failed, TickerError: failed},  # of all others the guard knows
        lifespan=lifespan,
    )  # fmt: skip
    app.state.site = Site(said, database, access, breaker)
    app.state.readiness = Readiness(app.state.site.look)
    app.state.scrape = Page(said)
    return app


def with_token(tokens: tuple[str, ...], open_: bool) -> tuple[str, ...]:
    """Returns the tokens. If none is set and access is not open, generates one and logs it."""
    if tokens or open_:
        return tokens
    token = new_token()
    log.warning("no token is set (TICKER_WEB_TOKEN); generated one for this process only: token=%s", token)
    return (token,)


def new_token() -> str:
    return secrets.token_urlsafe(32)


class Under:
    """Has every request answered under these settings, whatever the environment says by then."""

    def __init__(self, app: ASGIApp, found: Settings) -> None:
        self._app = app
        self._found = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with settings.use(self._found):
            await self._app(scope, receive, send)


class Readiness:
    """Keeps the result of `look` for one second. Anyone may ask, so a flood of requests must not reach the servers."""

    def __init__(self, look: Callable[[], health.Health]) -> None:
        self._look = look
        self._lock = Lock()
        self._found: tuple[float, health.Health] | None = None

    async def __call__(self) -> health.Health:
        async with self._lock:  # a request that waits here holds no thread
            if self._found is None or clock.monotonic() >= self._found[0] + READINESS_KEPT:
                found = await run_in_threadpool(self._look)
                self._found = clock.monotonic(), found
            return self._found[1]


def alive(_: Request) -> Response:
    """This process answers."""
    return PlainTextResponse("ok\n")


async def ready(request: Request) -> Response:
    """All is well: 200, else 503; with the details for who may come in."""
    found = await request.app.state.readiness()
    told = health.data(found) if request.scope["ticker.known"] else {"healthy": found.ok}
    return JSONResponse(told, 200 if found.ok else 503)


def scraped(request: Request) -> Response:
    """For Prometheus: what the servers tell. What its ticks did, each ticker tells by itself."""
    text, media_type = request.app.state.scrape(request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


def failed(request: Request, error: Exception) -> Response:
    return answer(error, request.scope, pages.error_page)


ROUTES = [
    Mount("/api/v1", api.router),
    Route("/healthz", alive),
    Route("/readyz", ready),
    Route("/metrics", scraped),
    Mount("/static", StaticFiles(packages=[("ticker.web", "static")]), name="static"),
    *pages.routes,
]
