"""One fault run from its beginning to the exported history."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import history, journal, keys
from tests.faults.client import ARGUMENT_SECRET, Client, create_owners, register_cast, wait_for
from tests.faults.facts import installation
from tests.faults.groups import CROWD, SLEEPS, THREADS
from tests.faults.journal import Journal
from tests.faults.nemesis import RECOVERY, Nemesis, schedule
from tests.faults.stage import CROWD_WORKERS, SECRET, TICK, Stage, opened
from ticker.db.connections import connect
from ticker.errors import Unavailable

QUEUE_DELAY = 6.0  # seconds: how long a job may wait for a worker while nothing is wrong
RESTARTED = 10.0  # seconds after a calm begins, until which a restart may still show
BACKLOG = 300.0  # seconds: working off what a storm has left is a matter of the machine, and of no promise
CAUGHT_UP = 30  # jobs of a queue, some two seconds' work
LAST_ENDS = 25.0  # seconds that runs and queues are given to end, when the last calm is over


class NeverBegan(Exception):
    """Without any fault, the processes did not come to work: the machine is too slow for this load."""


def play(
    folder: Path, seconds: float, seed: int, *, load: float = 1.0, shared: str = "", own_hosts: bool = False,
    only: Collection[str] = (), pooled: bool = False, workers: int = 4, limits: bool = False, ha: bool = False,
) -> list[str]:  # fmt: skip
    """Plays it, and leaves the history in `folder`; what did not recover by itself, in words."""
    with (
        Journal(folder) as events,
        opened(folder, events, own_hosts=own_hosts, pooled=pooled, workers=workers, crowd=CROWD, ha=ha) as stage,
    ):
        journal.install_audit(stage.postgres.url)
        planned = schedule(seed, seconds, own_hosts=own_hosts, only=only, limits=limits, ha=ha)
        with clocked(stage), prepared(stage, seed, seconds, load, shared, limits=limits):
            nemesis = Nemesis(stage, planned, folder, lambda since: ill(stage, since))
            url = stage.hosts["host-app"].environ["DATABASE_URL"]
            client = Client(events, url, seed, 0.5, stage.edits, limits=limits)
            with stage.playing():
                if slow := ill(stage, time.time()):
                    raise NeverBegan("; ".join(slow))
                client.start()
                nemesis.play(seconds)
                client.stop()
                let_end(stage)
        events.write("last")
        journal.export(stage.postgres.url, folder / history.DATABASE)
    return nemesis.unhealed


@contextmanager
def clocked(stage: Stage) -> Iterator[None]:
    """Twice a second, what the database's clock shows (the servers are on this machine, so ours is theirs), and how much
    of the processors was left since."""
    over, spare = threading.Event(), Spare()

    def note() -> None:
        while not over.wait(0.5):
            stage.journal.write("clocks", wall=time.time(), spare=spare())

    stage.journal.write("clocks", wall=time.time())
    thread = threading.Thread(target=note, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        stage.journal.write("clocks", wall=time.time())


@contextmanager
def prepared(
    stage: Stage, seed: int, seconds: float, load: float, shared: str, *, limits: bool = False
) -> Iterator[None]:
    """Owners, limits and tasks are there; what the checker must know of them is written down."""
    with connect(stage.postgres.url) as db:
        create_owners(db)
        if limits:
            keys.declare_all(db, stage.journal)
        cast = register_cast(db, load, seconds, shared=shared, limits=limits)
    with stage.redis() as redis:
        redis.set("rq:queue:blocked", "no list")
    stage.journal.write(
        "setup", tick=TICK, seed=seed, minutes=seconds / 60, queue_delay=QUEUE_DELAY, restart=RESTARTED,
        secrets=[SECRET, ARGUMENT_SECRET], strict_children=True,
        steady=cast.steady, nasty=cast.nasty, poison=cast.poison, repeatable=[THREADS], crowd=cast.crowd,
        longest_poll=max(SLEEPS), crowd_workers=CROWD_WORKERS,
    )  # fmt: skip
    yield


class Spare:
    """The share of all processors that nobody used since the last call, or that would have yielded (`nice`): 1 on a
    machine that does nothing."""

    def __init__(self) -> None:
        self._idle, self._all = self._read()

    def __call__(self) -> float:
        before, (self._idle, self._all) = (self._idle, self._all), self._read()
        return round((self._idle - before[0]) / max(self._all - before[1], 1), 3)

    def _read(self) -> tuple[int, int]:
        """Ticks since the boot: those to be had, and all."""
        numbers = [int(word) for word in Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]]
        _, nice, _, idle, waiting, *_ = numbers
        return nice + idle + waiting, sum(numbers)


def ill(stage: Stage, since: float) -> list[str]:
    """What does not run again within RECOVERY seconds, or is not worked off within BACKLOG; empty as soon as all is well."""
    return still(lambda: complaints(stage, since), RECOVERY) or still(lambda: backlogs(stage), BACKLOG)


def still(complain: Callable[[], Iterator[str]], patience: float) -> list[str]:
    found: list[str] = []

    def healthy() -> bool:
        found[:] = complain()
        return not found

    wait_for(healthy, patience)
    return found


def complaints(stage: Stage, since: float) -> Iterator[str]:
    """Tickers must have ticked since, workers must run."""
    try:
        ticking = _tickers(stage, since)
    except Unavailable as error:
        yield str(error)
        return
    yield from (f"{process.name} has not ticked" for process in stage.tickers if process.pid not in ticking)
    yield from (f"{process.name} does not run" for process in stage.workers if not process.level(0))


def backlogs(stage: Stage) -> Iterator[str]:
    """What the storm has left is worked off."""
    for queue, waiting in _waiting(stage).items():
        if waiting > CAUGHT_UP:
            yield f"{waiting} jobs wait in {queue}"


def _tickers(stage: Stage, since: float) -> set[int]:
    with connect(stage.postgres.url) as db:
        rows = db.execute("SELECT pid FROM ticker.tickers WHERE last_tick_at > to_timestamp(%s)", [since])
        return {pid for (pid,) in rows}


def _waiting(stage: Stage) -> dict[str, int]:
    """Without what a database that was replaced has left: no worker runs those."""
    with stage.redis() as redis:
        queues = {name: redis.lrange(f"rq:queue:{name}", 0, -1) for name in ("polling", "slow", CROWD)}
    return {
        name: sum(installation(job.decode("utf-8", "replace")) not in stage.edits.replaced for job in jobs)
        for name, jobs in queues.items()
    }


def let_end(stage: Stage) -> None:
    """Nothing becomes due any more; the workers empty their queues, the tickers end what is left."""
    with connect(stage.postgres.url) as db:
        db.execute("UPDATE ticker.tasks SET enabled = false")
    wait_for(lambda: _is_quiet(stage), LAST_ENDS)


def _is_quiet(stage: Stage) -> bool:
    with connect(stage.postgres.url) as db:
        row = db.execute(
            "SELECT (SELECT count(*) FROM ticker.runs WHERE state IN ('running', 'pushed'))"
            " + (SELECT count(*) FROM ticker.tasks WHERE waiting <> '{}')"
        ).fetchone()
        return row == (0,) and not any(_waiting(stage).values())
