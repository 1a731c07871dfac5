"""One connection through a proxy: two sockets, a lane for each direction, and the conditions on both lanes.

What a lane gets is delayed, lost or passed on; closing travels along the lanes too, behind the bytes before it.
"""

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Direction = Literal["to_server", "to_client"]
DIRECTIONS: dict[str, frozenset[Direction]] = {
    "to_server": frozenset({"to_server"}),
    "to_client": frozenset({"to_client"}),
    "both": frozenset({"to_server", "to_client"}),
}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: TCP sends RST instead of FIN

Passed = Callable[[bool], None]
"""Told once whether the bytes were handed to the other side's socket."""


@dataclass(frozen=True)
class Conditions:
    """What a network does to a connection. Seconds; `cut` names the directions whose bytes vanish."""

    delay: float = 0.0
    jitter: float = 0.0
    cut: frozenset[Direction] = frozenset()

    def lag(self, dice: random.Random) -> float:
        return self.delay + (dice.random() * self.jitter if self.jitter else 0.0)


class Talk(Protocol):
    """What understands the bytes of a link, and decides which of them go on."""

    def asked(self, data: bytes) -> None:
        """The client sent this."""

    def answered(self, data: bytes) -> None:
        """The server sent this."""

    def ended(self) -> None:
        """Neither will send any more."""


class End(asyncio.Protocol):
    """One of the two sockets. `heard` gets its bytes; `silent` is called once, when no more will come."""

    def __init__(
        self, heard: Callable[[bytes], None], silent: Callable[[], None], gone: Callable[[], None], *, half_open: bool
    ) -> None:
        self._heard, self._silent, self._gone, self._half_open = heard, silent, gone, half_open
        self._transport: asyncio.Transport | None = None
        self._is_silent = False
        self.other: End | None = None
        self.when_made: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.when_made:
            self.when_made()

    def data_received(self, data: bytes) -> None:
        self._heard(data)

    def eof_received(self) -> bool:
        self._fall_silent()
        return self._half_open

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fall_silent()
        self._gone()

    def _fall_silent(self) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._silent()

    def pause_writing(self) -> None:
        if self.other:
            self.other.listen(False)

    def resume_writing(self) -> None:
        if self.other:
            self.other.listen(True)

    def listen(self, on: bool) -> None:
        """Reads on, or leaves what comes in the system's buffers, so that a slow reader slows the writer."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def write(self, data: bytes) -> bool:
        """Whether somebody may still read it: a client that has closed does not."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return not self._is_silent and not self._transport.is_closing()

    def finish(self) -> None:
        """What was written still goes out; then the other side reads an end."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._half_open:
            self._transport.close()
        else:
            self._transport.write_eof()  # a server answers what it has got, and closes

    def abort(self) -> None:
        """Closed hard: by RST where there is such a thing."""
        if self._transport is None:
            return
        wire: Any = self._transport.get_extra_info("socket")
        if wire is not None and wire.fileno() >= 0 and wire.family != socket.AF_UNIX:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._transport.abort()


class Lane:
    """One direction of a link, in order: every chunk waits its time, and then is passed on, or vanishes in a cut."""

    def __init__(self, direction: Direction, link: "Link", end: End) -> None:
        self._direction: Direction = direction
        self._link = link
        self._end = end
        self._queue: deque[tuple[float, bytes | None, Passed | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, data: bytes | None, passed: Passed | None = None) -> None:
        """None is the end of what is sent."""
        lag = self._link.conditions.lag(self._link.dice)
        if not lag and not self._queue:
            self._pass(data, passed)
            return
        earliest = self._queue[-1][0] if self._queue else 0.0
        self._queue.append((max(earliest, self._link.loop.time() + lag), data, passed))
        self._wait()

    def release(self) -> None:
        """What waits goes now."""
        self._stop_waiting()
        while self._queue:
            _, data, passed = self._queue.popleft()
            self._pass(data, passed)

    def drop(self) -> None:
        """What waits is lost."""
        self._stop_waiting()
        while self._queue:
            _, _, passed = self._queue.popleft()
            if passed:
                passed(False)

    def _wait(self) -> None:
        if self._timer is None and self._queue:
            self._timer = self._link.loop.call_at(self._queue[0][0], self._pass_due)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass_due(self) -> None:
        self._timer = None
        now = self._link.loop.time() + 1e-3  # timers are that coarse
        while self._queue and self._queue[0][0] <= now:
            _, data, passed = self._queue.popleft()
            self._pass(data, passed)
        self._wait()

    def _pass(self, data: bytes | None, passed: Passed | None) -> None:
        is_through = False
        if self._direction in self._link.conditions.cut:
            self._link.has_lost = True
        elif data is None:
            self._end.finish()
        else:
            is_through = self._end.write(data)
        if passed:
            passed(is_through)


class Link:
    """A client's connection and ours to the server. `over` is called once, when both are gone."""

    def __init__(
        self,
        conditions: Conditions,
        dice: random.Random,
        talk: Callable[["Link"], Talk],
        over: Callable[["Link"], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.conditions = conditions
        self.dice = dice
        self.has_lost = False  # bytes or an end, in a cut: such a connection cannot go on when it is joined
        self._over: Callable[[Link], None] | None = over
        self.client = End(self._client_spoke, self._client_silent, self._gone, half_open=True)
        self.server = End(self._server_spoke, self._server_silent, self._gone, half_open=False)
        self.client.other, self.server.other = self.server, self.client
        self.to_server = Lane("to_server", self, self.server)
        self.to_client = Lane("to_client", self, self.client)
        self._talk = talk(self)

    def hang_up(self) -> None:
        """The client's side is closed; the server reads an end after what was on its way."""
        self.client.abort()

    def reset(self) -> None:
        """Both sides are closed hard, and what is on its way is lost."""
        self.to_server.drop()
        self.to_client.drop()
        self.client.abort()
        self.server.abort()

    def release(self) -> None:
        self.to_server.release()
        self.to_client.release()

    def _client_spoke(self, data: bytes) -> None:
        self._talk.asked(data)

    def _server_spoke(self, data: bytes) -> None:
        self._talk.answered(data)

    def _client_silent(self) -> None:
        if self.server.is_open:
            self.to_server.send(None)
        else:
            self.client.abort()  # nobody is there whom it concerns

    def _server_silent(self) -> None:
        self.to_client.send(None)

    def _gone(self) -> None:
        if self._over and not self.client.is_open and not self.server.is_open:
            over, self._over = self._over, None
            self.to_server.drop()
            self.to_client.drop()
            self._talk.ended()
            over(self)
