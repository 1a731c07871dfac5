"""The channel `webhook`: posts the notice as signed JSON. Only a 2xx answer counts as success; redirects are not
followed.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from ticker import clock
from ticker.notify import message, wire
from ticker.notify.message import NotDelivered, Notice


class Webhook:
    """Posts to one URL, which is a secret: anyone who knows it can post there. Each key in `keys` adds a signature."""

    name = "webhook"

    def __init__(self, url: str, keys: Sequence[str] = ()) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._keys = tuple(keys)

    def deliver(self, notice: Notice) -> str:
        body = json.dumps(message.data(notice)).encode("ascii")
        status = self.request("POST", body, self._headers(notice, body))
        answer = f"answered {_in_words(status)}"
        if not 200 <= status < 300:
            raise NotDelivered(answer)
        return answer

    def _headers(self, notice: Notice, body: bytes) -> Mapping[str, str]:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "rq-ticker",
            "Idempotency-Key": notice.key,
            "Connection": "close",
        }
        if self._keys:
            timestamp = str(int(clock.python_utc().timestamp()))
            headers["Ticker-Timestamp"] = timestamp
            headers["Ticker-Signature"] = ",".join(f"sha256={signature(key, timestamp, body)}" for key in self._keys)
        return headers

    def request(self, method: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Returns the status of the answer, without reading its body."""
        with wire.connected(self._host, self._port, secure=self._secure) as (line, late):
            kind = HTTPSConnection if self._secure else HTTPConnection  # its default port is not in the header Host
            connection = kind(self._host, self._port)
            connection.sock = line
            connection.request(method, self._target, body, headers)
            status = connection.getresponse().status
            if late.is_set():  # http.client treats truncated headers as complete ones
                raise TimeoutError
            return status


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Returns the HMAC-SHA256, in hex, of the timestamp, a dot and the body as sent."""
    return hmac.new(
        key.encode("utf-8", "surrogateescape"), timestamp.encode() + b"." + body, hashlib.sha256
    ).hexdigest()


def _in_words(status: int) -> str:
    """Returns the status with our own phrase, as the server's may contain anything."""
    return f"{status} {HTTPStatus(status).phrase}" if status in [*HTTPStatus] else str(status)
