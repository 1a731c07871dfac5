"""How long after its hard limit anything of a run still lives: `python -m tests.bench.overshoot [--rounds N]`.

Real workers on embedded servers; each function of `overruns` leaves a child and a daemon, too. A death is seen through
a pidfd, to a millisecond or so. Prints a markdown table.
"""

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import ticker
from tests.bench.overruns import CASES
from tests.running import ROOT, until
from ticker import embedded, migrations
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue
from ticker.tasks.fields import Task
from wrappers.sandbox import limits
from wrappers.sandbox.subreaper import children

EVERY, TOLERANCE, BOX, GRACE = 3, 1, 1.5, 0.3  # seconds
GIVE_UP = 10.0  # seconds past the limit
_numbers = count(1)


@dataclass(frozen=True)
class Overrun:
    """A run that will not end by itself: when it must be over, by `limits.now`, and all its processes."""

    over_at: float
    pidfds: tuple[int, ...]

    def overshoot(self) -> float:
        """Seconds from the limit to the death of the last process; waits for it. AssertionError if one stays."""
        for pidfd in self.pidfds:
            left = self.over_at + GIVE_UP - limits.now()
            assert select.select([pidfd], [], [], max(left, 0))[0], "a process is still alive"
            os.close(pidfd)
        return limits.now() - self.over_at


@dataclass
class Launched:
    """`python -m wrappers`: the keeper, and the worker under it."""

    keeper: "subprocess.Popen[str]"
    worker: int = field(init=False)

    def __post_init__(self) -> None:
        [self.worker] = until(lambda: children(self.keeper.pid), "the worker")


@contextmanager
def launched(tasks: str = "tests.bench.overruns", **environ: str) -> Iterator[Launched]:
    """A worker; behind the block it has ended, by SIGTERM if not before. What it said is shown if the block fails."""
    command = [sys.executable, "-m", "wrappers", "--tasks", tasks, "polling"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environ, stdout=log, stderr=subprocess.STDOUT, text=True
        ) as keeper,
    ):
        launcher = Launched(keeper)
        try:
            yield launcher
        except BaseException:
            log.seek(0)
            print(log.read()[-4000:], file=sys.stderr)
            raise
        finally:
            with suppress(ProcessLookupError):  # it was killed
                os.kill(launcher.worker, signal.SIGCONT)
            keeper.terminate()


def overrun(db: Any, store: PostgresStore, queue: RedisQueue, name: str, folder: Path) -> Overrun:
    """Pushes a new task with that function; returns when a worker is in it.

    On a loaded machine a box may be over before the function has left its note: then the next task.
    """
    while True:
        number = next(_numbers)
        note = folder / f"{number}.json"
        task = ticker.register(
            db, f"overrun {name}", name=f"{name} {number}", every=EVERY, tolerance=TOLERANCE, box=BOX,
            kwargs={"note": str(note), "grace": GRACE},
        )  # fmt: skip
        tick(store, queue)
        until(partial(noted_or_ended, db, task, note), "the function's note")
        ticker.edit(db, task, enabled=False)  # one run is enough
        if note.exists():
            found = json.loads(note.read_text())
            return Overrun(found["over_at"], tuple(os.pidfd_open(pid) for pid in found["pids"]))


def noted_or_ended(db: Any, task: Task, note: Path) -> bool:
    return note.exists() or any(run.ended_at for run in ticker.list_runs(db, task=task))


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    db: Any
    store: PostgresStore
    queue: RedisQueue
    folder: Path
    rounds: int

    def beside_a_living_worker(self, how: str, deed: int = 0) -> dict[str, list[float]]:
        """The overshoots of each case, with one worker for all, which gets the signal `deed` in mid-run."""
        with launched(TICKER_HARD_LIMIT=how) as launcher:
            return {name: [self._measure(name, launcher, deed) for _ in range(self.rounds)] for name in CASES}

    def beside_a_killed_worker(self) -> dict[str, list[float]]:
        """With a new worker for each run, killed in its middle."""
        found: dict[str, list[float]] = {name: [] for name in CASES}
        for name in CASES * self.rounds:
            with launched() as launcher:
                found[name].append(self._measure(name, launcher, signal.SIGKILL))
        return found

    def _measure(self, name: str, launcher: Launched, deed: int) -> float:
        run = overrun(self.db, self.store, self.queue, name, self.folder)
        os.kill(launcher.worker, deed)
        overshoot = run.overshoot()
        if deed == signal.SIGSTOP:
            os.kill(launcher.worker, signal.SIGCONT)
        return overshoot


@contextmanager
def busy(loops: int = 2) -> Iterator[None]:
    """Beside the block, so many processes compute."""
    with ExitStack() as running:
        for _ in range(loops):
            process = running.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            running.callback(process.kill)
        yield


@contextmanager
def bench(rounds: int) -> Iterator[Bench]:
    """Embedded servers, and a folder for the notes."""
    with embedded.servers(syncs=True) as servers, ExitStack() as opened:
        os.environ.update(servers.environ)
        migrations.upgrade(servers.database_url)
        store = opened.enter_context(closing(PostgresStore(servers.database_url)))
        queue = opened.enter_context(closing(RedisQueue.from_url(servers.redis_url)))
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        yield Bench(opened.enter_context(connect(servers.database_url)), store, queue, folder, rounds)


def measured(bench: Bench) -> dict[str, dict[str, list[float]]]:
    """By column, by case: the overshoots in seconds."""
    columns: dict[str, Callable[[], dict[str, list[float]]]] = {
        "timers": lambda: bench.beside_a_living_worker("auto"),
        "watchdog": lambda: bench.beside_a_living_worker("watchdog"),
        "worker stopped": lambda: bench.beside_a_living_worker("auto", signal.SIGSTOP),
        "worker killed": bench.beside_a_killed_worker,
    }
    found = {}
    for name, measure in columns.items():
        found[name] = measure()
        with busy():
            found[f"{name}, busy"] = measure()
    return found


def table(found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Lines of markdown: median and maximum in milliseconds."""
    yield "| the function | " + " | ".join(found) + " |"
    yield "|---" * (len(found) + 1) + "|"
    for name in CASES:
        cells = (f"{1000 * median(column[name]):.0f} / {1000 * max(column[name]):.0f}" for column in found.values())
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    began = time.monotonic()
    with bench(rounds) as prepared:
        found = measured(prepared)
    print("\n".join(table(found)))
    print(f"\n{rounds} rounds; {os.cpu_count()} cores; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
