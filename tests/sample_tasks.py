"""Functions for the tests that run real workers. Each leaves a trace in the table `trace` of the test's database."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.running import until
from wrappers import NOTHING_TO_DO, Run, task


def trace(what: str, value: Any = None) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(
            "INSERT INTO trace (what, value, pid) VALUES (%s, %s, %s)", [what, Jsonb(value), os.getpid()]
        )


@task("plain")
def plain(**kwargs: Any) -> int:
    trace("plain", kwargs)
    return 5


@task("async")
async def asynchronous(run: Run) -> str:
    trace("async", run.quota.remaining)
    return "done"


@task("async.hangs")
async def hangs() -> None:
    import asyncio

    await asyncio.sleep(1000)


@task("resumes")
def resumes(run: Run) -> None:
    """Reads one item per run."""
    run.checkpoint((run.cursor or 0) + 1)
    trace("resumes", run.cursor)


@task("exhausts")
def exhausts(run: Run) -> None:
    while not run.quota.exceeded:
        time.sleep(0.01)


@task("fails")
def fails() -> None:
    raise ValueError("no \x00 such host")


@task("fails.saying")
def fails_saying(words: str) -> None:
    raise ValueError(words)


@task("swallows")
def swallows() -> None:
    """Leaves a child and a daemon, and overlooks every exception."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    daemon = subprocess.run(
        ["/bin/sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
    )
    trace("swallows", [os.getpid(), child.pid, int(daemon.stdout)])
    while True:
        with suppress(BaseException):
            time.sleep(0.05)


@task("swallows.exceptions")
def swallows_exceptions() -> None:
    """The usual mistake: the soft limit ends it."""
    while True:
        with suppress(Exception):
            time.sleep(0.05)


@task("long.c.call")
def long_c_call() -> None:
    trace("long.c.call")
    sum(range(10**13))  # one call of C for hours: no Python handler gets its turn


@task("fills.memory")
def fills_memory() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 24))


@task("writes.temporary")
def writes_temporary() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 20))


@task("stops.itself")
def stops_itself() -> None:
    trace("stops.itself")
    os.kill(os.getpid(), signal.SIGSTOP)


@task("leaves.by.exit")
def leaves_by_exit() -> None:
    os._exit(0)


@task("crashes")
def crashes() -> None:
    ctypes.string_at(0)


@task("deletes.owner")
def deletes_owner(run: Run, channel_id: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("DELETE FROM mail_channels WHERE id = %s", [channel_id])
    trace("deletes.owner", channel_id)


@task("deletes.owner.and.goes.on")
def deletes_owner_and_goes_on(run: Run) -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("DELETE FROM mail_channels WHERE id = 1")
        run.checkpoint(2, session=connection)
    run.checkpoint(3)
    return run.cursor  # type: ignore[no-any-return]


@task("disables.owner")
def disables_owner(run: Run, channel_id: int) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("UPDATE mail_channels SET enabled = false WHERE id = %s", [channel_id])


@task("returns.odd")
def returns_odd() -> Any:
    return {"when": object(), "nul": "\x00"}


@task("returns.nan")
def returns_nan() -> float:
    return float("nan")


@task("returns.much")
def returns_much() -> str:
    return "x" * 5000


@task("returns.escapes")
def returns_escapes(run: Run) -> list[str]:
    run.checkpoint("\\u0000")
    return ["\\u0000", "\0"]


@task("odd.cursor")
def odd_cursor(run: Run) -> None:
    run.checkpoint("\0")


@task("returns.late")
def returns_late() -> None:
    with suppress(BaseException):
        time.sleep(1000)


@task("kills.itself")
def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task("has.nothing")
def has_nothing() -> Any:
    return NOTHING_TO_DO


@task("pieces")
class Pieces:
    """Its pieces come from its arguments; each says what becomes of it."""

    def generate(self, run: Run, pieces: list[Any]) -> Iterator[Any]:
        sys.stdout.write(f"found {len(pieces)}\n")
        yield from pieces

    def process(self, run: Run, piece: Any, pieces: list[Any]) -> Any:
        trace("piece", [piece, run.attempt, run.quota.remaining, run.occurrence and run.occurrence.isoformat()])
        match piece:
            case "fails":
                raise ValueError("no such feed")
            case "fails.once" if run.attempt == 1:
                raise ValueError("not yet")
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "dies.once" if run.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            case "exhausts":
                exhausts(run)
            case "nothing":
                return NOTHING_TO_DO
            case {"deletes": channel_id}:
                deletes_owner(run, channel_id)
            case {"makes": mine, "waits for": other}:
                Path(mine).touch()
                until(Path(other).exists, other)
        return piece


@task("pieces.many")
class ManyPieces:
    """Makes so many; `fails` after that."""

    def generate(self, count: int, fails: bool = False) -> Iterator[int]:
        yield from range(count)
        if fails:
            raise ValueError("no more")

    def process(self, piece: int, count: int, fails: bool = False) -> None:
        trace("piece", piece)


@task("pieces.wrong")
class WrongPieces:
    """What no generate may yield."""

    def generate(self, what: str) -> Any:
        match what:
            case "raises":
                return self.raises()
            case "too large":
                return ["small", "x" * 17_000]
            case "no JSON":
                return [1, object()]
            case "a text":
                return "abc"
            case "a mapping":
                return {"uid": 1}
            case "none":
                return []

    def raises(self) -> Iterator[int]:
        yield 1
        raise OSError("the list broke off")

    def process(self, piece: Any, what: str) -> None:
        trace("wrong", piece)


@task("pieces.async")
class AsyncPieces:
    async def generate(self, run: Run) -> list[int]:
        return [1, 2]

    async def process(self, piece: int) -> int:
        trace("async.piece", piece)
        return piece


@task("pieces.stream")
class StreamedPieces:
    async def generate(self) -> AsyncIterator[int]:
        for piece in (3, 4):
            yield piece

    async def process(self, run: Run, piece: int) -> int:
        trace("async.piece", piece)
        return piece


@task("pieces.of.nobody")
class PiecesOfNobody:
    """Deletes its owner before its pieces are recorded."""

    def generate(self, run: Run, channel_id: int) -> Iterator[int]:
        deletes_owner(run, channel_id)
        yield 1

    def process(self, piece: int, channel_id: int) -> None:
        trace("of nobody", piece)
