"""What the tasks of a fault run do of which many run in one process: on an event loop, or in threads.

Most runs behave well. A task whose arguments name a deed does it in one run of SELDOM, and says so first, so that the
checker knows what its neighbours had to bear. The tasks of the crowd share a large group; each run sleeps for a time that
depends on the task alone.
"""

import asyncio
import ctypes
import mmap
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.faults.polls import BEAT, LEAVES_AT_LAST, Witness, checkpoint, said, slow_down
from wrappers import Run, task

BATCH, AT_ONCE = 24, 8
SELDOM = 10
LOOP, THREADS, CROWD = "poll.together", "poll.in_threads", "poll.crowd"
SLOTS = 100  # of the crowd
SLEEPS = (2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)  # seconds, of the tasks of the crowd in turn
SLOW_BEAT = 0.5  # seconds: so many runs at the same time say less of themselves
MEGABYTE = 2**20
LEFT_TO_ALL = 8 * MEGABYTE  # of address space, and so many descriptors, while a run uses up the rest
DESCRIPTORS = 200
WANT = 0.3  # seconds for which the neighbours have nothing left


class Overeaten(MemoryError):
    """Raised by a run that used up the memory or the file descriptors of its process."""


@task(LOOP, batch=BATCH, concurrency=AT_ONCE)
async def together(run: Run, deed: str = "", **kwargs: Any) -> int:
    """Waits for its mailbox, as its neighbours do."""
    witness, arguments = Witness(run), kwargs | ({"deed": deed} if deed else {})
    with said(run, witness, LOOP, arguments):
        await _waits(witness, _a_while(run))
        _notes_its_place(run, witness)
        if deed and random.randrange(SELDOM) == 0:
            witness.says("does", deed=deed)
            await ON_LOOP.get(deed, _in_an_instant)(witness, deed)
        slow_down(run, witness, kwargs.get("keys", ()))
        await _waits(witness, 0.05)
        return 1


@task(THREADS, batch=BATCH, concurrency=AT_ONCE, repeatable=True)
def in_threads(run: Run, deed: str = "", **kwargs: Any) -> int:
    witness, arguments = Witness(run), kwargs | ({"deed": deed} if deed else {})
    with said(run, witness, THREADS, arguments):
        witness.works(_a_while(run))
        _notes_its_place(run, witness)
        if deed and random.randrange(SELDOM) == 0:
            witness.says("does", deed=deed)
            IN_THREADS.get(deed, INSTANT.get(deed, lambda _: None))(witness)
        slow_down(run, witness, kwargs.get("keys", ()))
        witness.works(0.05)
        return 1


@task(CROWD, batch=SLOTS, concurrency=SLOTS)
async def crowd(run: Run, sleeps: float, **kwargs: Any) -> int:
    """Waits for a slow mailbox."""
    witness = Witness(run)
    with said(run, witness, CROWD, kwargs | {"sleeps": sleeps}):
        await _waits(witness, sleeps, beat=SLOW_BEAT)
        return 1


def _a_while(run: Run) -> float:
    """Seconds, well within its box."""
    return random.uniform(0.05, min(0.5, run.quota.remaining / 2))


def _notes_its_place(run: Run, witness: Witness) -> None:
    """In one run of four. It disturbs the neighbours only while PostgreSQL is away, because the whole event loop then waits."""
    if run.id % 4 == 0:
        witness.says("does", deed="checkpoints")
        checkpoint(run, witness, run.id)
        witness.says("does", deed="")


async def _waits(witness: Witness, seconds: float, *, beat: float = BEAT) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        witness.says("beat")
        await asyncio.sleep(min(beat, left))
    witness.says("beat")


# --------------------------------------------------------------------------------------- deeds that take an instant


def _crashes(_: Witness) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _reads_nowhere(_: Witness) -> None:
    """Causes a fault of the processor, as opposed to a signal that a process sends."""
    ctypes.string_at(0)


def _kills(_: Witness) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _vanishes(_: Witness) -> None:
    os._exit(0)


INSTANT: dict[str, Callable[[Witness], object]] = {
    "crashes": _crashes, "reads nowhere": _reads_nowhere, "kills": _kills, "vanishes": _vanishes,
}  # fmt: skip


async def _in_an_instant(witness: Witness, deed: str) -> None:
    INSTANT[deed](witness)


# ------------------------------------------------------------------------------------------------- on the event loop


async def _hangs(witness: Witness, _: str) -> None:
    """Waits until it is cancelled."""
    await _waits(witness, LEAVES_AT_LAST)


async def _blocks(witness: Witness, _: str) -> None:
    witness.works(LEAVES_AT_LAST)


async def _swallows(witness: Witness, _: str) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await _waits(witness, LEAVES_AT_LAST)


async def _eats(witness: Witness, _: str) -> None:
    with without_memory():
        await _waits(witness, WANT)
    raise Overeaten("memory")


async def _opens(witness: Witness, _: str) -> None:
    with without_descriptors():
        await _waits(witness, WANT)
    raise Overeaten("descriptors")


ON_LOOP = {"hangs": _hangs, "blocks": _blocks, "swallows": _swallows, "eats": _eats, "opens": _opens}


# ---------------------------------------------------------------------------------------------------------- in threads


def _hangs_in_its_thread(witness: Witness) -> None:
    """Waits until it is interrupted."""
    witness.works(LEAVES_AT_LAST)


def _receives(witness: Witness) -> None:
    """Reads from a mailbox that never answers."""
    near, far = socket.socketpair()
    with near, far:
        near.recv(1)


def _holds_the_lock(witness: Witness) -> None:
    """Holds the interpreter's lock in one long C call: no thread runs, not even the one that watches."""
    ctypes.PyDLL(None).usleep(30_000_000)


def _swallows_in_its_thread(witness: Witness) -> None:
    while True:
        with suppress(BaseException):
            witness.works(LEAVES_AT_LAST)


def _eats_in_its_thread(witness: Witness) -> None:
    with without_memory():
        witness.works(WANT)
    raise Overeaten("memory")


def _opens_in_its_thread(witness: Witness) -> None:
    with without_descriptors():
        witness.works(WANT)
    raise Overeaten("descriptors")


IN_THREADS: dict[str, Callable[[Witness], None]] = {
    "hangs": _hangs_in_its_thread, "receives": _receives, "blocks": _holds_the_lock, "swallows": _swallows_in_its_thread,
    "eats": _eats_in_its_thread, "opens": _opens_in_its_thread,
}  # fmt: skip

DEEDS = {LOOP: (*INSTANT, *ON_LOOP), THREADS: (*INSTANT, *IN_THREADS)}
GROUPED = frozenset({*DEEDS, CROWD})


# ---------------------------------------------------------------------------------------------------- want of anything


@contextmanager
def without_memory() -> Iterator[None]:
    """Limits the address space of the process, and uses up all but a little of it. The machine keeps its memory."""
    before, eaten = resource.getrlimit(resource.RLIMIT_AS), []
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + LEFT_TO_ALL, before[1]))
    try:
        with suppress(MemoryError):
            while True:
                eaten.append(bytearray(MEGABYTE))
        yield
    finally:
        eaten.clear()
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def without_descriptors() -> Iterator[None]:
    before, opened = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, before[0]), before[1]))
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for file in opened:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
