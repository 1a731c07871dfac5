"""Checks each request first: whether it is authenticated, and whether it may change something.

Each request sends a token: as `Authorization: Bearer`, or as the password of HTTP Basic, which browsers ask for. User
names are ignored. If the settings contain no token, one is generated.

Open access without a token has to be requested, and then only this host is served. The client must be on this host, no
proxy may have forwarded the request, and the name in Host must be a loopback name. This keeps pages of other sites from
reaching us through a name of their own (DNS rebinding).

A change is checked further if a page of another site may have made the browser send it, that is, if the request has no
valid bearer token. The browser must not declare that another site sent the request. A POST must contain JSON, or the
header that our page's script sends. Another site's page can send neither unless the server allows it (CORS), which we
never do. The page therefore needs no cookie, and no key that its processes would have to share.
"""

import base64
import binascii
import hmac
import ipaddress
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from anyio import fail_after
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ticker import clock
from ticker import settings as ticker_settings
from ticker.errors import BadInput, ConfigurationError, quoted
from ticker.settings import LEAST_KEY, Settings
from ticker.tasks import checks, identity, rows
from ticker.web.problems import API, Page, Refused, answer, below

log = logging.getLogger("ticker.web")
# Bytes: kwargs and metadata of 64 kB each, which a form makes three times as long, plus the other fields.
BODY_AT_MOST = 512 * 1024
BODY_WITHIN = 10.0  # seconds after the headers, however many bytes arrive
PROXIED = frozenset({"forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN = frozenset({"/healthz", "/readyz"})
"""The paths that load balancers request. Without authentication, the answer is only yes or no."""
HARMLESS = frozenset({f"{API}v1/schedules/validate"})
"""The paths at which a POST changes nothing."""
SCRIPT: Final = "hx-request"
"""The header that htmx adds to its requests."""
NO_TOKEN_SHOWN = (
    "the request has no valid token; send it as a bearer token or as the password of HTTP Basic (TICKER_WEB_TOKEN)"
)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ASSETS, OF_ASSETS = "/static/", {"Cache-Control": "no-cache"}
"""Browsers may keep scripts and styles, and revalidate them by their ETag."""
OWNERS = 1000  # of one viewer
_FRAMER = re.compile(r"'self'|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The sender of a request, as the application around the page knows them.

    `name` is the author of the changes. Without `may_change`, nothing can be changed. `owners` limits the viewer
    to the tasks and runs of up to 1,000 owners, as in `register(owner=...)`, and to the actions on them.
    """

    name: str
    may_change: bool
    owners: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.owners is None:
            return
        named = [identity.identify(one) for one in self.owners]
        if len(named) > OWNERS or identity.NOBODY in named:
            problem = f"has {len(named)} owners" if len(named) > OWNERS else "contains None, which is not an owner"
            raise BadInput("owners", None, f"{problem}; pass up to {OWNERS:,} owners, such as mail_channels:5")
        object.__setattr__(self, "owners", tuple(named))


Who = Callable[[Request], Viewer]


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules. `tokens`: any one of them gives access. `no_token`: clients on this host need none, and all
    others are refused. `trusted`: the application around us has checked access already. `read_only`: nothing can be
    changed. `who` names the sender of a request; `viewer` is the answer.
    """

    tokens: Sequence[str] = field(default=(), repr=False)
    no_token: bool = False
    trusted: bool = False
    read_only: bool = False
    who: Who | None = None
    viewer: Viewer | None = None

    def __post_init__(self) -> None:
        if any(len(token) < LEAST_KEY for token in self.tokens):
            raise ConfigurationError(f"tokens: one has fewer than {LEAST_KEY} characters, and can be guessed")
        if self.no_token and self.tokens:
            raise ConfigurationError(
                "TICKER_WEB_NO_TOKEN=on (--no-token) and a token (TICKER_WEB_TOKEN) are mutually exclusive; leave out one of them"
            )

    def knows(self, headers: Headers) -> bool:
        """Returns whether the request has a valid token. Compares its token with all valid ones, in constant time."""
        shown = _shown(headers.get("authorization", ""))
        return any([hmac.compare_digest(shown, token.encode()) for token in self.tokens])  # noqa: C419 - none is skipped


class Guard:
    """Checks a request before the application gets it, and adds the headers that restrict browsers.

    Also turns errors of the application into answers, which `page` renders for people. Handles every request with these
    settings, even if the environment changes later. A viewer of some owners gets the application `of_owners` instead.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        settings: Settings,
        page: Page,
        headers: Mapping[str, str],
        of_owners: ASGIApp,
    ) -> None:
        self._app, self._of_owners = app, of_owners
        self._headers = headers
        self._access = access
        self._settings = settings
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["ticker.root"], began = scope.get("root_path", ""), False
        added = {**self._headers, **(OF_ASSETS if below(scope).startswith(ASSETS) else {})}
        scope["ticker.access"] = self._access

        async def send_with_headers(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began, own = True, MutableHeaders(scope=message)
                for name, value in added.items():
                    own.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            scope["ticker.known"] = self._authenticate(scope, headers)
            await self._identify(scope)
            self._authorize_change(scope, headers)
            viewer = scope["ticker.access"].viewer
            owners = viewer and viewer.owners
            seeing = nullcontext() if owners is None else rows.seeing((one.type, one.id) for one in owners)
            with ticker_settings.use(self._settings), seeing:
                app = self._app if owners is None else self._of_owners
                await app(scope, _bounded(receive, headers), send_with_headers)
        except ClientDisconnect:
            return
        except Exception as error:
            if began:
                raise
            await answer(error, scope, self._page)(scope, receive, send_with_headers)

    def _authenticate(self, scope: Scope, headers: Headers) -> bool:
        """Returns whether the request may see details. Raises Refused if it may not be served at all."""
        access = self._access
        if access.trusted or access.knows(headers):
            return True
        problem = not_local(scope, headers) if access.no_token else NO_TOKEN_SHOWN
        if problem and below(scope) not in OPEN:
            raise Refused(403 if access.no_token else 401, problem)
        return not problem

    async def _identify(self, scope: Scope) -> None:
        """Asks who sends the request, once. Raises Refused if that fails, but load balancers get their yes or no."""
        if (who := self._access.who) is None:
            return
        try:
            viewer = await run_in_threadpool(who, Request(scope))
            if not isinstance(viewer, Viewer):
                raise TypeError(f"who returned {type(viewer).__name__}, not a Viewer")
            checks.plain("name", viewer.name)
        except Exception as error:
            scope["ticker.known"] = False
            if below(scope) in OPEN:
                return
            log.error("who failed: %s", type(error).__name__, exc_info=error, extra={"event": "who_failed"})
            raise Refused(403, "it is not known who sends this request, because who() failed; see the log") from error
        read_only = self._access.read_only or not viewer.may_change
        scope["ticker.access"] = replace(self._access, read_only=read_only, viewer=viewer)
        scope["ticker.known"] = scope["ticker.known"] and viewer.owners is None

    def _authorize_change(self, scope: Scope, headers: Headers) -> None:
        """Raises Refused if the request may not change anything."""
        if scope["method"] in SAFE:
            return
        if self._access.read_only and below(scope) not in HARMLESS:
            raise Refused(
                403, "nothing can be changed here, because this server is read-only (TICKER_WEB_READ_ONLY, --read-only)"
            )
        viewer = scope["ticker.access"].viewer
        if viewer and not viewer.may_change and below(scope) not in HARMLESS:
            raise Refused(403, f"{quoted(viewer.name)} may read here, but not change anything")
        if headers.get("authorization", "").lower().startswith("bearer ") and self._access.knows(headers):
            return  # a browser does not add a bearer token by itself, and another site's page does not know it
        if not _is_same_origin(headers):
            raise Refused(403, "the request comes from a page of another site (Origin)")
        if scope["method"] != "POST" or is_json(headers) or headers.get(SCRIPT) == "true":
            return  # before a browser sends another method for another site's page, it asks us, and we never allow it
        if below(scope).startswith(API):
            raise Refused(
                415, "the request is not declared as JSON; send Content-Type: application/json, even without a body"
            )
        raise Refused(
            403,
            "the request has neither JSON nor the header of this page's script (HX-Request); load the page again",
        )


def framed_by(ancestors: Sequence[str]) -> Mapping[str, str]:
    """Returns the headers with which pages of these origins may show ours in a frame. Raises ConfigurationError."""
    if not ancestors:
        return HEADERS
    for one in ancestors:
        if not _FRAMER.fullmatch(one):
            raise ConfigurationError(
                f"frame_ancestors: {quoted(one)} is not an origin; write https://ops.example.org, or 'self' in quotes"
            )
    policy = HEADERS["Content-Security-Policy"].replace(
        "frame-ancestors 'none'", f"frame-ancestors {' '.join(ancestors)}"
    )
    others = {name: value for name, value in HEADERS.items() if name != "X-Frame-Options"}
    return others | {"Content-Security-Policy": policy}


def is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def not_local(scope: Scope, headers: Headers) -> str:
    """Returns the evidence that the request did not come directly from this host, or "" if there is none."""
    client = scope.get("client")
    if not (loopback(client[0]) if client else _on_unix_socket(scope)):
        peer = quoted(client[0]) if client else "a peer without an address"
        return f"without a token, only clients on this host are served, and the request comes from {peer}"
    if not loopback(_name(headers.get("host", ""))):
        return "without a token, only the names localhost, 127.0.0.1 and [::1] are served, and the request has another name (Host)"
    if passed := [name for name in headers if name in PROXIED or name.startswith("x-forwarded-")]:
        return (
            f"without a token, requests that a proxy has forwarded are refused, and this one has the header {passed[0]}"
        )
    return ""


def _on_unix_socket(scope: Scope) -> bool:
    """Returns whether our own end is a Unix socket. A network client that has disconnected has no address either."""
    server = scope.get("server")
    return server is not None and server[1] is None


def loopback(host: str) -> bool:
    """Returns whether this is a name or an address of this host alone."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bounded(receive: Receive, headers: Headers) -> Receive:
    """Returns `receive` limited to a body of 512 kB within 10 s. It raises Refused before more is read, or when the
    time is up.
    """
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) <= 15 and int(length) <= BODY_AT_MOST):
        raise _too_long()
    received, ends = 0, clock.monotonic() + BODY_WITHIN

    async def bounded() -> Message:
        nonlocal received
        try:
            with fail_after(ends - clock.monotonic()):
                message = await receive()
        except TimeoutError:
            raise Refused(
                408, f"the body is not complete {BODY_WITHIN:g} s after the headers; send the request again"
            ) from None
        received += len(message.get("body", b""))
        if received > BODY_AT_MOST:
            raise _too_long()
        return message

    return bounded


def _too_long() -> Refused:
    return Refused(413, f"the body is over the limit of {BODY_AT_MOST:,} bytes")


def _shown(authorization: str) -> bytes:
    """Returns the token in the header, for either scheme. Headers are decoded as latin-1, whatever was sent."""
    scheme, _, rest = authorization.partition(" ")
    sent = rest.strip().encode("latin-1")
    if scheme.lower() == "bearer":
        return sent
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(sent, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _is_same_origin(headers: Headers) -> bool:
    """Returns whether the request comes from our site. Older browsers send only the origin, as all do without TLS."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none") and headers.get("origin") != "null"
    origin, host = headers.get("origin"), headers.get("host", "")
    return origin is None or (host != "" and origin.partition("://")[2].lower() == host.lower())


def _name(host: str) -> str:
    """Returns the name in a Host header, without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() and not host.endswith("]") else host
