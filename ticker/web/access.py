"""Who may come in, and which requests may change something. Every request passes here first.

Without a token only this host is served: the name it is called by must be one of the loopback's, so that no page of
another site can reach it through a name of its own (DNS rebinding). With one, each request shows it: `Authorization:
Bearer`, or as the password of HTTP Basic, which browsers ask for; user names are not looked at.

What changes something needs more where the browser might have been sent by another page, that is, where no bearer token
stands in the request: an Origin, if it names one, that is our own, and JSON (which a form of another site cannot send) or
the token of a form that we made.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ticker.web.problems import Refused, answer

BODY_AT_MOST = 256 * 1024  # bytes: kwargs and metadata of 64 kB each, and what stands around them
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OPEN = frozenset({"/healthz", "/readyz"})
"""What a load balancer asks; without a token these say yes or no, and nothing else."""
HERE = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
COOKIE: Final = "ticker_form"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Access:
    """Who may come in. `tokens`: any of them opens; none: this host alone. `trusted`: the application around us has
    looked already. `read_only`: nobody changes anything."""

    tokens: Sequence[str] = ()
    trusted: bool = False
    read_only: bool = False

    def knows(self, headers: Headers) -> bool:
        """Whether the request shows a token; all are compared, in constant time."""
        shown = _shown(headers.get("authorization", "")).encode()
        return any([hmac.compare_digest(shown, token.encode()) for token in self.tokens])


class Guard:
    """Asks before the application is asked, and adds the headers that keep browsers in bounds."""

    def __init__(self, app: ASGIApp, access: Access, forms: "Forms") -> None:
        self._app = app
        self._access = access
        self._forms = forms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
            await send(message)

        try:
            scope["ticker.known"] = self._come_in(scope, headers)
            self._change(scope, headers)
            await self._app(scope, _bounded(receive, headers), send_with_headers)
        except Refused as refusal:
            await answer(refusal, scope)(scope, receive, send_with_headers)

    def _come_in(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request may be told details; Refused where it may not be served at all."""
        access, path = self._access, _path(scope)
        if access.trusted or (access.tokens and access.knows(headers)):
            return True
        if not access.tokens and _name(headers.get("host", "")) in HERE:
            return True
        if path in OPEN:
            return False
        if access.tokens:
            raise Refused(401, "a token is wanted: as a bearer token, or as the password of HTTP Basic (TICKER_WEB_TOKEN)")
        raise Refused(
            403, "without TICKER_WEB_TOKEN only this host is served, under the names localhost, 127.0.0.1 and [::1]"
        )

    def _change(self, scope: Scope, headers: Headers) -> None:
        if scope["method"] in SAFE:
            return
        if self._access.read_only:
            raise Refused(403, "this page is read-only (TICKER_WEB_READ_ONLY)")
        if self._access.tokens and headers.get("authorization", "").lower().startswith("bearer "):
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if (origin is not None and urlsplit(origin).netloc != headers.get("host")) or site not in ("same-origin", "none"):
            raise Refused(403, "the request comes from a page of another site (Origin)")
        if not _is_json(headers) and not self._forms.fits(headers):
            raise Refused(403, "the request has neither a JSON body nor the token of one of our forms; load the page again")


class Forms:
    """The token of our own forms: a browser's cookie, signed. Another site can send the cookie, and cannot read it."""

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._key = hashlib.sha256("\n".join(tokens).encode()).digest() if tokens else secrets.token_bytes(32)

    def cookie(self, headers: Headers) -> str:
        """The browser's own, or a new one."""
        return _cookie(headers) or secrets.token_urlsafe(24)

    def token(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def fits(self, headers: Headers) -> bool:
        cookie, shown = _cookie(headers), headers.get("x-csrf-token", "")
        return bool(cookie) and hmac.compare_digest(self.token(cookie).encode(), shown.encode())


def _bounded(receive: Receive, headers: Headers) -> Receive:
    """The request's body, up to 256 kB; Refused beyond, before more of it is read."""
    told = headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or len(told) > 15 or int(told) > BODY_AT_MOST:
        raise Refused(413, f"the body has over {BODY_AT_MOST} bytes")
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > BODY_AT_MOST:
            raise Refused(413, f"the body has over {BODY_AT_MOST} bytes")
        return message

    return bounded


def _shown(authorization: str) -> str:
    """The token in the header, of either scheme."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found and 20 <= len(found.value) <= 100 else ""


def _is_json(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host


def _path(scope: Scope) -> str:
    """Below where we are mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def loopback(hosts: Iterable[str]) -> bool:
    """Whether all of these are addresses of this host alone."""
    return all(host in HERE for host in hosts)
