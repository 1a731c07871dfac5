"""The server that is polled: `python -m tests.bench.answers` prints its port.

`GET /200` is answered after 200 ms. `GET /mix` is, too, but one in a hundred after 15 s, and two in a thousand never.
`GET /count` returns how many polls have begun.
"""

import asyncio
import itertools
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

USUAL, SLOW = 0.2, 15.0  # seconds
SHARE_SLOW, SHARE_HUNG = 0.01, 0.002

_polls = itertools.count(1)
_begun = 0


class Answer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        global _begun
        path = data.split(b" ", 2)[1].decode()
        if path == "/count":
            self._send(str(_begun))
            return
        _begun = next(_polls)
        delay = mixed(_begun) if path == "/mix" else int(path[1:]) / 1000
        if delay is not None:
            asyncio.get_running_loop().call_later(delay, self._send, "ok")

    def _send(self, text: str) -> None:
        if not self._transport.is_closing():
            self._transport.write(f"HTTP/1.0 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())  # type: ignore[attr-defined]
            self._transport.close()


def mixed(number: int) -> float | None:
    """Returns the seconds after which this poll is answered, or None for never."""
    if number % round(1 / SHARE_HUNG) == 7:
        return None
    return SLOW if number % round(1 / SHARE_SLOW) == 42 else USUAL


async def serve(protocol: Callable[[], asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Polled:
    """The server, as benchmarks see it."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.url = pid, f"http://127.0.0.1:{port}"

    def begun(self) -> int:
        with urllib.request.urlopen(f"{self.url}/count") as answer:
            return int(answer.read())


@contextmanager
def polled(module: str = __name__, *arguments: str) -> Iterator[Polled]:
    """Runs a server until the end of the block: this one, or that of another module, which also prints its port."""
    with subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Polled(process.pid, int(process.stdout.readline()))
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve(Answer))
