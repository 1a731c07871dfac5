"""A proxy before a server that does what networks do, when the harness says so; and that knows what it carries.

    with Proxy(listen=folder / "redis", server=socket, kind="redis", record=folder / "redis.jsonl") as proxy:
        proxy.delay(0.05)
        ...
        proxy.heal()

It runs in a thread of its own; every method may be called from any thread, and is in effect when it returns.
As a process of its own (`python -m tests.faults.proxy --help`) it takes the same calls as lines of JSON.
"""

import asyncio
import os
import random
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.faults import wire
from tests.faults.address import Address, Kind, parsed, through
from tests.faults.link import DIRECTIONS, Conditions, Link, Talk
from tests.faults.push_record import FLUSH_EVERY, PushRecord
from tests.faults.talk import PostgresTalk, RedisTalk, Rule, Rules, Tally, can_be_refused, contains, is_commit

PATIENCE = 30.0  # seconds for a call from another thread
BACKLOG = 512
BARE_URLS: dict[Kind, str] = {"redis": "redis://", "postgres": "postgresql://postgres@/postgres"}

Path_ = str | os.PathLike[str]
Result = TypeVar("Result")


class Proxy:
    """Stands before one server, on one or several addresses (`tests.faults.address.parsed` says how they are written).

    `record` is the file of push events, for Redis; `seed` is that of the jitter. `names` are ports that the answers of a
    sentinel name, each with the one that its clients read instead. It can be opened once.
    """

    def __init__(
        self, *, listen: Path_ | Sequence[Path_], server: Path_, kind: Kind, record: Path_ | None = None, seed: int = 0,
        names: Mapping[int, int] = {},
    ) -> None:  # fmt: skip
        given = [listen] if isinstance(listen, (str, os.PathLike)) else listen
        self.kind: Kind = kind
        self.tally = Tally()
        self.addresses: list[Address] = [parsed(one, kind) for one in given]
        self._server = parsed(server, kind)
        self._record = PushRecord(record)
        self._names = {wire.bulk(b"%d" % name): wire.bulk(b"%d" % instead) for name, instead in names.items()}
        self._dice = random.Random(seed)
        self._rules = Rules()
        self._conditions = Conditions()
        self.links: set[Link] = set()
        self._doors: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flapping: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy of {kind}", daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        try:
            self._run(self._open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections and the thread; what was to be recorded is in the file."""
        if self._thread.is_alive():
            self._run(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
            self._loop.close()

    @property
    def url(self) -> str:
        """Where clients connect, with the server's usual user and database."""
        return self.through(BARE_URLS[self.kind])

    def through(self, url: str) -> str:
        """`url`, which leads to the server, but through this proxy (the first address)."""
        return through(self.addresses[0], url)

    # ------------------------------------------------------------------------------------------- what networks do

    def delay(self, seconds: float, jitter: float = 0.0, *, only_new: bool = False) -> None:
        """Every chunk in both directions waits `seconds` and up to `jitter` more; their order stays.

        `only_new`, here and below: only connections that are accepted from now on.
        """
        self._call(self._change, only_new, delay=seconds, jitter=jitter)

    def vanish(self) -> None:
        """All present connections lead nowhere for ever, and nobody says so; new ones work."""
        self._call(self._vanish)

    def cut(self, direction: str = "both", *, only_new: bool = False) -> None:
        """Bytes of that direction ("to_server", "to_client", "both") vanish, closing too; connections stay open.

        New connections lead nowhere, whichever direction is cut, as with TCP.
        """
        self._call(self._cut, DIRECTIONS[direction], only_new)

    def join(self) -> None:
        """Ends a cut. Connections that lost something are reset."""
        self._call(self._join)

    def flap(self, period: float, direction: str = "both") -> None:
        """Cut for `period` seconds, joined for as long, and so on."""
        self._call(self._flap, period, DIRECTIONS[direction])

    def refuse(self) -> None:
        """New connections are refused by the system, as if nothing listened; those that are there go on."""
        self._run(self._listen(is_open=False))

    def reset(self) -> None:
        """All present connections are closed hard; what is on its way is lost."""
        self._call(self._reset)

    def heal(self) -> None:
        """Undoes everything: what was delayed goes at once, connections that lost bytes are reset, rules are dropped."""
        self._run(self._heal())

    # ------------------------------------------------------------------------- what only one who understands can do

    def swallow_commit(self, n: int = 1) -> None:
        """PostgreSQL: the next n COMMITs are done, their answers kept back, and their clients' connections closed."""
        self._only("postgres")
        self._call(self._rules.add, Rule(is_commit, 0, n))

    def swallow_answer(self, nth: int = 1, matching: bytes | None = None) -> None:
        """The same for the n-th matching request from now.

        `matching` is looked for in the command's name (Redis) or in the statement that is run (PostgreSQL); None: all.
        """
        self._call(self._rules.add, Rule(partial(contains, matching), nth - 1, 1))

    def answer_instead(self, error: bytes, matching: bytes | None = None, count: int = 1) -> None:
        """Redis: the next `count` matching commands do not reach the server; each client gets `error` ("OOM ...").

        None matches all but the commands that a loading server answers, too, such as HELLO and MULTI.
        """
        self._only("redis")
        matches = can_be_refused if matching is None else partial(contains, matching)
        self._call(self._rules.add, Rule(matches, 0, count, error))

    def summary(self) -> dict[str, Any]:
        """Counts since it was opened, as plain data."""
        return self._call(self._counts)

    # ------------------------------------------------------------------------------------------------ on the loop

    def _only(self, kind: Kind) -> None:
        if self.kind != kind:
            raise ValueError(f"this is a proxy of {self.kind}, and that is something for {kind}")

    def _call(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        async def called() -> Result:
            return function(*args, **kwargs)

        return self._run(called())

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    async def _open(self) -> None:
        await self._listen(is_open=True)
        if self._record.is_wanted:
            self._start(self._flush_now_and_then())

    async def _shut(self) -> None:
        for door in self._doors:
            door.close()
        for task in list(self._tasks):
            task.cancel()
        while self.links or self._tasks:
            self._reset()
            await asyncio.sleep(0)
        for address in self.addresses:
            if address.path:
                Path(address.path).unlink(missing_ok=True)
        self._record.flush()

    async def _listen(self, *, is_open: bool) -> None:
        """New sockets in place of the old ones, which also refuses what waited there to be accepted."""
        for door in self._doors:
            door.close()
        self._doors = []
        for number, address in enumerate(self.addresses):
            socket, self.addresses[number] = address.bound()
            serve: Any = self._loop.create_unix_server if address.path else self._loop.create_server
            self._doors.append(await serve(self._accepted, sock=socket, backlog=BACKLOG, start_serving=is_open))

    async def _heal(self) -> None:
        self._rules.clear()
        self._stop_flapping()
        self._change(False, delay=0.0, jitter=0.0)
        self._join()
        for link in list(self.links):
            link.release()
        for door in self._doors:
            await door.start_serving()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY)
            self._record.flush()

    def _accepted(self) -> asyncio.Protocol:
        link = Link(self._conditions, self._dice, self._talk, self.links.discard)
        link.client.when_made = partial(self._reach_server, link)
        self.links.add(link)
        self.tally.connections += 1
        return link.client

    def _reach_server(self, link: Link) -> None:
        """A client is not listened to until the server is reached; in a cut it never is."""
        if link.conditions.cut:
            link.has_lost = True
        else:
            link.client.listen(False)
            self._start(self._connect(link))

    async def _connect(self, link: Link) -> None:
        try:
            if self._server.path:
                await self._loop.create_unix_connection(lambda: link.server, self._server.path)
            else:
                await self._loop.create_connection(lambda: link.server, self._server.host, self._server.port)
        except OSError:
            link.client.abort()
        if link.client.is_open:
            link.client.listen(True)
        else:  # it was reset meanwhile
            link.server.abort()

    def _talk(self, link: Link) -> Talk:
        if self.kind == "redis":
            return RedisTalk(link, self._rules, self.tally, self._record, self._names)
        return PostgresTalk(link, self._rules, self.tally)

    def _change(self, only_new: bool, **changes: Any) -> None:
        self._conditions = replace(self._conditions, **changes)
        for link in () if only_new else self.links:
            link.conditions = replace(link.conditions, **changes)

    def _vanish(self) -> None:
        for link in self.links:
            link.conditions = replace(link.conditions, cut=DIRECTIONS["both"])

    def _cut(self, directions: frozenset[Any], only_new: bool) -> None:
        self._stop_flapping()
        self._change(only_new, cut=directions)

    def _join(self) -> None:
        self._stop_flapping()
        self._joined()

    def _joined(self) -> None:
        self._change(False, cut=frozenset())
        for link in [link for link in self.links if link.has_lost]:
            link.reset()

    def _flap(self, period: float, directions: frozenset[Any]) -> None:
        self._stop_flapping()
        self._flapping = self._start(self._cut_and_join(period, directions))

    async def _cut_and_join(self, period: float, directions: frozenset[Any]) -> None:
        while True:
            self._change(False, cut=directions)
            await asyncio.sleep(period)
            self._joined()
            await asyncio.sleep(period)

    def _stop_flapping(self) -> None:
        if self._flapping:
            self._flapping.cancel()
            self._flapping = None

    def _reset(self) -> None:
        for link in list(self.links):
            link.reset()

    def _counts(self) -> dict[str, Any]:
        counts = vars(self.tally)
        names = {name.decode("utf-8", "replace"): count for name, count in self.tally.commands.most_common()}
        return {**counts, "commands": names}


if __name__ == "__main__":
    from tests.faults.remote import main

    main()
