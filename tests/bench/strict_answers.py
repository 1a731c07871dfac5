"""A server with limits, as providers of mail and APIs have them. `python -m tests.bench.strict_answers RULES` prints its port.

`GET /poll` is answered after a while, if the rules allow it:

* a request above `concurrency` is refused: its connection is closed without an answer
* more than `count` requests within `period` seconds are answered with 429
* after `GET /overload`, all requests are answered with 429 and `Retry-After`, until that time has passed since the first of them

`GET /count` returns how many polls have begun, and `GET /requests` all of them, as JSON.
"""

import asyncio
import json
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from tests.bench.answers import Polled, polled, serve

OK, TOO_MANY, REFUSED = 200, 429, 0
GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Rules:
    """Times are in seconds. `count` is None if there is no limit of the rate, and `concurrency` likewise.

    An answer takes `answer` seconds on average, and up to the share `spread` of it less or more.
    """

    answer: float
    spread: float
    concurrency: int | None
    count: int | None
    period: float
    retry_after: float


class Request(NamedTuple):
    """Times are those of `time.time`. `ended` is None until the answer is sent."""

    at: float
    status: int
    ended: float | None


class Provider:
    """Decides on requests, and keeps them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.requests: list[Request] = []
        self._active = 0
        self._recent: deque[float] = deque()
        self._is_overloaded = False
        self._overloaded_until: float | None = None

    def overload(self) -> None:
        self._is_overloaded = True

    def open(self) -> int:
        """Returns the number of the new request."""
        now = time.time()
        status = self._judged(now)
        self._active += status == OK
        self.requests.append(Request(now, status, None if status == OK else now))
        return len(self.requests) - 1

    def close(self, number: int) -> None:
        """Notes that the request is answered, or that its client has left."""
        request = self.requests[number]
        if request.ended is None:
            self.requests[number] = request._replace(ended=time.time())
            self._active -= 1

    def _judged(self, now: float) -> int:
        rules = self.rules
        while self._recent and self._recent[0] <= now - rules.period:
            self._recent.popleft()
        self._recent.append(now)
        if self._is_overloaded:
            self._overloaded_until = self._overloaded_until or now + rules.retry_after
            self._is_overloaded = now < self._overloaded_until
        if rules.concurrency is not None and self._active >= rules.concurrency:
            return REFUSED
        too_often = rules.count is not None and len(self._recent) > rules.count
        return TOO_MANY if too_often or self._is_overloaded else OK

    def delay(self, number: int) -> float:
        """Returns the seconds until this request is answered. They are spread evenly, and the same in each run."""
        return self.rules.answer * (1 + self.rules.spread * (2 * (number * GOLDEN % 1) - 1))

    def headers(self) -> str:
        return f"Retry-After: {self.rules.retry_after:g}\r\n" if self._is_overloaded else ""


class Connection(asyncio.Protocol):
    """Has one request."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._number: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        if self._number is not None:
            self._provider.close(self._number)

    def data_received(self, data: bytes) -> None:
        provider, path = self._provider, data.split(b" ", 2)[1].decode()
        if path == "/poll":
            self._poll(provider)
        elif path == "/overload":
            provider.overload()
            self._send("ok")
        else:
            self._send(str(len(provider.requests)) if path == "/count" else json.dumps(provider.requests))

    def _poll(self, provider: Provider) -> None:
        self._number = provider.open()
        match provider.requests[self._number].status:
            case 0:
                self._transport.abort()
            case 429:
                self._send("slow down", "429 Too Many Requests", provider.headers())
            case _:
                asyncio.get_running_loop().call_later(provider.delay(self._number), self._send, "ok")

    def _send(self, text: str, status: str = "200 OK", headers: str = "") -> None:
        if self._number is not None:  # before the client reads its answer, and asks again
            self._provider.close(self._number)
        if not self._transport.is_closing():
            self._transport.write(f"HTTP/1.0 {status}\r\n{headers}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            self._transport.close()


@contextmanager
def strict(rules: Rules) -> Iterator[Polled]:
    """Runs the server until the end of the block."""
    with polled(__name__, json.dumps(asdict(rules))) as server:
        yield server


def overload(server: Polled) -> None:
    with urllib.request.urlopen(f"{server.url}/overload"):
        pass


def requests(server: Polled) -> list[Request]:
    with urllib.request.urlopen(f"{server.url}/requests") as answer:
        return [Request(*one) for one in json.load(answer)]


if __name__ == "__main__":
    asyncio.run(serve(partial(Connection, Provider(Rules(**json.loads(sys.argv[1]))))))
