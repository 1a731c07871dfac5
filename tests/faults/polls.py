"""What the tasks of a fault run do. Each function is its own witness: it says when it begins, lives and ends.

A witness line is one write to a file that only this process writes, with the monotonic clock, which all processes of
a machine share: neither a killed server nor a killed process can lose or reorder it.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from wrappers import NOTHING_TO_DO, HoldLost, Run, SlowDown, task

BEAT = 0.05  # seconds
CLOSED_KEY = "api"
CLOSED_FOR = 4.0  # seconds
AGAIN_AFTER = 2.0  # seconds: no interval of these tasks is shorter
LEAVES_AT_LAST = 60.0  # seconds: the latest end of a child that nobody kills, so that a failing product leaves no mess


class Witness:
    """The file of this process, and what it says of one run."""

    def __init__(self, run: Run, *, child: bool = False) -> None:
        self._run = run
        self._child = child
        self._file = file_of(os.getpid())

    def says(self, event: str, **more: Any) -> None:
        line = {"at": time.monotonic(), "event": event, "task": self._run.task_id, "run": self._run.id}
        line |= {"pid": os.getpid(), "child": self._child, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def works(self, seconds: float) -> None:
        """Beats until so many seconds are over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.says("beat")
            time.sleep(min(BEAT, left))
        self.says("beat")


@cache
def file_of(pid: int) -> int:
    """Opens the file once for all runs of a process, because one of them may use up its descriptors."""
    return os.open(folder() / f"{pid}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def folder() -> Path:
    return Path(os.environ["FAULTS_WITNESS"])


@contextmanager
def said(run: Run, witness: Witness, name: str, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """The function's own word that it has begun, and that it has ended."""
    occurrence = run.occurrence.timestamp() if run.occurrence else None
    witness.says(
        "begin", token=run._token, function=name, kwargs=kwargs, occurrence=occurrence, box=run.quota.remaining,
        process=os.environ.get("FAULTS_PROCESS", ""),
    )  # fmt: skip
    try:
        yield
    finally:
        witness.says("end")


def witnessed(name: str, *, batch: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function that is handed its witness; begin and end are said for it."""

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        def function(run: Run, **kwargs: Any) -> Any:
            witness = Witness(run)
            with said(run, witness, name, kwargs):
                return body(run, witness, **kwargs)

        return task(name, batch=batch)(function)

    return register


# ------------------------------------------------------------------------------------------------- well behaved


@witnessed("poll.plain")
def plain(run: Run, witness: Witness, **_: Any) -> int:
    witness.works(0.03)
    return 1


@witnessed("poll.steps")
def steps(run: Run, witness: Witness, **_: Any) -> None:
    """Goes on from its cursor, and stops cleanly when its quota is used up."""
    position = int(run.cursor or 0)
    for _step in range(6):
        witness.works(0.02)
        position += 1
        checkpoint(run, witness, position)
        if run.quota.exceeded:
            break


@witnessed("poll.quiet")
def quiet(run: Run, witness: Witness, **_: Any) -> object:
    """Finds nothing in five runs of six. Some runs ask for the next time."""
    witness.works(0.02)
    if run.id % 5 == 0:
        run.again(AGAIN_AFTER)
    return None if run.id % 6 == 0 else NOTHING_TO_DO


@witnessed("poll.fails")
def fails(run: Run, witness: Witness, **_: Any) -> None:
    witness.works(0.02)
    raise RuntimeError("the mailbox is locked")


@witnessed("poll.several", batch=4)
def several(run: Run, witness: Witness, **_: Any) -> None:
    """One of several in a job."""
    witness.works(0.03)


@witnessed("poll.lasts")
def lasts(run: Run, witness: Witness, **_: Any) -> None:
    """Waits for its mailbox, so that an outage finds it in mid-run."""
    witness.works(2.5)


# ------------------------------------------------------------------------------------------------------ with limits


@witnessed("poll.slows")
def slows(run: Run, witness: Witness, keys: Sequence[str] = (), **_: Any) -> None:
    """Meets a server that answers 429, now and then."""
    witness.works(0.2)
    slow_down(run, witness, keys)
    witness.works(0.05)


def slow_down(run: Run, witness: Witness, keys: Sequence[str]) -> None:
    """Holds off the key in one run of six, if the task has it. Half of these runs end with it."""
    if CLOSED_KEY in keys and run.id % 6 == 0:
        witness.says("holds", key=CLOSED_KEY, seconds=CLOSED_FOR)
        if run.id % 12 == 0:
            raise SlowDown(CLOSED_KEY, CLOSED_FOR)
        witness.says("does", deed="closes")  # while PostgreSQL is away, the neighbours on an event loop wait, too
        run.slow_down(CLOSED_KEY, CLOSED_FOR)
        witness.says("does", deed="")
        witness.says("held", key=CLOSED_KEY)


@task("poll.pieces")
class Pieces:
    """Hands out its work."""

    def generate(self, run: Run, **kwargs: Any) -> list[int]:
        with said(run, witness := Witness(run), "poll.pieces", kwargs):
            witness.works(0.02)
            return [1, 2, 3]

    def process(self, run: Run, piece: int, **kwargs: Any) -> int:
        with said(run, witness := Witness(run), "poll.pieces", kwargs):
            witness.works(0.1 * piece)
            return piece


# --------------------------------------------------------------------------------------- for the soak, without a witness


@task("poll.light")
def light() -> object:
    """No new mail."""
    return NOTHING_TO_DO


@task("poll.light_batch", batch=50)
def light_batch() -> object:
    return NOTHING_TO_DO


# ------------------------------------------------------------------------------------------------- badly behaved


@witnessed("poll.swallows")
def swallows(run: Run, witness: Witness, **_: Any) -> None:
    """Never looks at its quota, and lets no exception through."""
    while True:
        with suppress(BaseException):
            witness.works(3600)


@witnessed("poll.computes")
def computes(run: Run, witness: Witness, **_: Any) -> None:
    """One long C call that holds the interpreter's lock."""
    ctypes.PyDLL(None).usleep(30_000_000)


@witnessed("poll.deaf")
def deaf(run: Run, witness: Witness, **_: Any) -> None:
    """Blocks every signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    witness.works(LEAVES_AT_LAST)


@witnessed("poll.leaves")
def leaves(run: Run, witness: Witness, **_: Any) -> None:
    """Leaves a child, and a daemon in a session of its own, and returns."""
    for daemon in (False, True):
        if os.fork() == 0:
            _live_on(run, daemon)
    witness.works(0.05)


def _live_on(run: Run, daemon: bool) -> None:
    with suppress(BaseException):
        if daemon:
            os.setsid()
            if os.fork():
                os._exit(0)
        Witness(run, child=True).works(LEAVES_AT_LAST)
    os._exit(0)


@witnessed("poll.vanishes")
def vanishes(run: Run, witness: Witness, **_: Any) -> None:
    witness.works(0.02)
    os._exit(0)


@witnessed("poll.crashes")
def crashes(run: Run, witness: Witness, **_: Any) -> None:
    witness.works(0.02)
    os.kill(os.getpid(), signal.SIGSEGV)


@witnessed("poll.exits")
def exits(run: Run, witness: Witness, **_: Any) -> None:
    witness.works(0.02)
    sys.exit(3)


@witnessed("poll.falls", batch=4)
def falls(run: Run, witness: Witness, number: int = 0, **_: Any) -> None:
    """One of several in a job: the second takes the process with it, the fourth never returns by itself."""
    witness.works(LEAVES_AT_LAST if number == 3 else 0.02)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@witnessed("poll.shouts")
def shouts(run: Run, witness: Witness, **_: Any) -> object:
    """NULs, ANSI, a subprocess, a megabyte; and what it returns cannot be stored."""
    sys.stdout.write("\0\x1b[31m" + "x" * 1_000_000 + "\n")
    subprocess.run(["true"], check=True)
    witness.works(0.02)
    return object()


@witnessed("poll.stops")
def stops(run: Run, witness: Witness, **_: Any) -> None:
    """Stops itself, as a debugger would."""
    witness.works(0.02)
    os.kill(os.getpid(), signal.SIGSTOP)
    witness.works(LEAVES_AT_LAST)


@witnessed("poll.goes")
def goes(run: Run, witness: Witness, **_: Any) -> None:
    """Deletes its own owner while it runs; what it writes afterwards must change nothing."""
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("DELETE FROM mailboxes WHERE id = %s", [int(run.owner_id)])
    checkpoint(run, witness, "after its owner")


def checkpoint(run: Run, witness: Witness, value: Any) -> None:
    """A write of a run that lost its hold must be refused; what the database answered is part of the history."""
    try:
        run.checkpoint(value)
    except HoldLost:
        witness.says("stale_write", result="refused")
        raise
