"""How many polls a worker makes per second, and what each costs: `python -m tests.bench polls [--seconds N] [--rounds N] [--only NAME,...]`.

Each poll asks a local server. In "uniform", each answer takes 200 ms. In "mix", one in a hundred takes 15 s, and two in a
thousand never come; time boxes of 16 s end them. Each arm has more polls to make than it can make. It is measured for some
seconds (`--mix-seconds` in the mix) after it has warmed up:

job each   a job and a process for each poll
batch      50 polls in one job, one after another
group      50, 100, 500 or 1,000 coroutines at the same time; at least 500 in one job
threads    20 threads at the same time, 200 in one job

The other arms are other libraries (`uv run --group bench`), with and without a record of each poll; ours is always recorded.
Checkpoints and autovacuum are off, because they would affect some arms and not others; in `day`, both are on. CPU is per
poll. That of `worker` is the CPU of all its processes, without the tick, which is listed separately. Redis connections and
PostgreSQL sessions are the worker's. `of slots` is the rate divided by what the slots allow, which is their number divided by
the mean duration.
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from tests.bench import answers, usage
from tests.bench.answers import Polled, polled
from tests.bench.figures import Figure, Stage, parser, show, stage
from tests.bench.poll import BOX
from tests.bench.pollers import OURS, PEERS, Ours, Peer
from tests.bench.usage import KEEPS_LOG, Meter, Used
from tests.running import PATIENCE, ROOT, until
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue

GRACE = 1.0  # seconds
WARM = 3.0  # seconds
TASKS = 200_000
# Due tasks are spread over the table, as they are after a while. Nothing is left of earlier arms.
FRESH = """
UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL, last_run = NULL, last_occurrence = NULL, running_until = NULL,
    run_token = NULL, every_ms = 3600000, box_ms = %(box)s, function = %(function)s,
    next_run = clock_timestamp() + CASE WHEN id %% %(step)s = 0 AND id <= %(last)s THEN interval '-1 s' ELSE interval '1 day' END
WHERE id %% %(step)s = 0 OR last_run IS NOT NULL OR waiting <> '{}' OR next_run < clock_timestamp()"""
QUIET = (KEEPS_LOG, "--autovacuum=off", "--checkpoint_timeout=1h")
STARTED = "SELECT count(*) FROM ticker.runs"
ENDED = "SELECT count(*) FROM ticker.runs WHERE state = 'ended'"


NOT_IN_MIX = {"job each", "batch of 50"}


@dataclass(frozen=True)
class Measured:
    """One arm in one round. CPU is in seconds; `ticked` is what the tick used for `due` tasks."""

    used: Used
    polls: int
    recorded: int = 0
    ticked: Used | None = None
    due: int = 0

    @property
    def rate(self) -> float:
        return self.polls / self.used.seconds

    @property
    def runs(self) -> int:
        return self.recorded or self.polls

    def cpu(self, role: str) -> float:
        """Returns milliseconds of CPU per poll."""
        return 1000 * self.used.cpu[role] / self.polls


class Bench:
    """Measures arms on the servers of a stage."""

    def __init__(self, on: Stage, server: Polled, kind: str, seconds: float) -> None:
        self._on, self._server, self._kind, self._seconds = on, server, kind, seconds
        self._warm = WARM + answers.SLOW * (kind == "mix")  # slow answers take up slots only after a while

    def due(self, concurrency: int) -> int:
        """Returns more polls than can be made."""
        return int(1.3 * concurrency / mean_duration(self._kind) * (self._warm + self._seconds)) + 100

    def measure(self, arm: Ours | Peer) -> Measured:
        self._on.redis.flushall()
        with closing(Meter(self._on)) as meter:
            return self._ours(arm, meter) if isinstance(arm, Ours) else self._peer(arm, meter)

    def _ours(self, arm: Ours, meter: Meter) -> Measured:
        due = self.due(arm.concurrency)
        fresh(self._on, arm.function, due)
        with worker(self._on, meter, f"{self._server.url}/{self._kind}"):
            ticked = push(self._on, meter, due)
            return Measured(*self._window(meter, self._recorded), ticked, due)

    def _peer(self, peer: Peer, meter: Meter) -> Measured:
        environ = {
            "POLLS_REDIS": self._on.redis_url, "POLLS_DATABASE": self._on.database_url,
            "POLLS_URL": f"{self._server.url}/{self._kind}", "POLLS_RECORD": str(int(peer.record)), "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        enqueue = [sys.executable, "-m", peer.module, str(self.due(peer.concurrency))]
        subprocess.run(enqueue, cwd=ROOT, check=True, capture_output=True, env=os.environ | environ)
        with usage.running([sys.executable, "-m", *peer.worker], **environ) as pids:
            meter.roots = {"worker": pids}
            return Measured(*self._window(meter, lambda: 0))

    def _window(self, meter: Meter, recorded: Callable[[], int]) -> tuple[Used, int, int]:
        """Returns what was used in the measured seconds, and how many polls began and were recorded then."""
        idle = self._server.begun()
        until(lambda: self._server.begun() > idle, "the first poll")
        time.sleep(self._warm)
        with meter.measured() as used:
            began, written = self._server.begun(), recorded()
            time.sleep(self._seconds)
            began, written = self._server.begun() - began, recorded() - written
        assert began, "no poll began in the measured time"
        return used, began, written

    def _recorded(self) -> int:
        return int(self._on.db.execute(ENDED).fetchall()[0][0])


@contextmanager
def worker(on: Stage, meter: Meter, url: str, count: int = 1) -> Iterator[None]:
    """Runs our workers until the end of the block. They listen when it begins."""
    environ = {"DATABASE_URL": on.database_url, "REDIS_URL": on.redis_url, "POLLS_URL": url}
    command = [
        sys.executable,
        *["-m", "wrappers", "--tasks", "tests.bench.polled", "--logging_level", "WARNING", "polling"],
    ]
    with usage.running(*[command] * count, **environ) as pids:
        meter.roots |= {"worker": pids}
        patience = PATIENCE + 5 * count
        until(lambda: len(on.redis.smembers("rq:workers")) == count, "the workers", patience)
        time.sleep(1)  # they print that they listen just before they do
        yield


def fresh(on: Stage, function: str, due: int) -> None:
    """Makes this many tasks of a function due, on servers that are otherwise empty."""
    on.redis.flushall()
    on.db.execute("TRUNCATE ticker.runs")
    step = on.tasks // due
    on.db.execute(FRESH, {"function": function, "step": step, "last": step * due, "box": 1000 * BOX})
    on.db.execute("VACUUM ANALYZE ticker.tasks")


def push(on: Stage, meter: Meter, due: int) -> Used:
    """Pushes all due tasks in one tick. Returns what the tick used."""
    with (
        closing(PostgresStore(on.database_url)) as store, closing(RedisQueue.from_url(on.redis_url)) as queue,
        meter.measured() as used,
    ):  # fmt: skip
        report = tick(store, queue, options=TickOptions())
    assert report.enqueued == due, report
    return used


def own_memory(on: Stage, function: str, runs: int) -> float:
    """Returns the kB that each further active run takes in our processes. Its function needs no memory itself."""
    taken = []
    for due in (1, runs):
        fresh(on, function, due)
        with closing(Meter(on)) as meter, worker(on, meter, "http://127.0.0.1:0/200"):
            push(on, meter, due)
            until(lambda due=due: on.db.execute(STARTED).fetchall()[0][0] == due, "all have started")  # type: ignore[misc]
            time.sleep(2)
            taken.append(usage.memory(meter.roots["worker"]))
    return 1000 * (taken[1] - taken[0]) / (runs - 1)


def allowed(kind: str, concurrency: int) -> float:
    """Returns the polls per second that so many slots allow."""
    return concurrency / mean_duration(kind)


def mean_duration(kind: str) -> float:
    """Returns how many seconds a poll takes."""
    if kind != "mix":
        return int(kind) / 1000
    hung, slow = answers.SHARE_HUNG, answers.SHARE_SLOW
    return (1 - hung - slow) * answers.USUAL + slow * answers.SLOW + hung * (BOX + GRACE / 2)


def rows(kind: str, arms: dict[str, Ours | Peer], rounds: list[dict[str, Measured]]) -> Iterator[list[str]]:
    """Yields the cells of a table, with medians over the rounds."""
    for name, arm in arms.items():
        mine = [of[name] for of in rounds if name in of]
        if not mine:
            continue
        each = [of[name].rate / of["job each"].rate for of in rounds if name in of and "job each" in of]
        yield [
            name, f"{middle(m.rate for m in mine):.1f}", f"{median(each):.1f}" if each else "",
            f"{middle(m.rate / allowed(kind, arm.concurrency) for m in mine):.0%}",
            *(f"{middle(m.cpu(role) for m in mine):.2f}" for role in ("worker", "PostgreSQL", "Redis")),
            f"{max(m.used.sessions for m in mine)}", f"{max(m.used.connections for m in mine)}",
            f"{max(m.used.memory['worker'] for m in mine):.0f}",
            f"{middle(m.used.log / m.runs / 1000 for m in mine):.2f}", f"{middle(m.used.images / m.runs / 1000 for m in mine):.2f}",
            f"{middle(m.recorded / m.polls for m in mine):.0%}" if isinstance(arm, Ours) else "",
        ]  # fmt: skip


HEADS = (
    "arm", "polls/s", "x job each", "of slots", "worker ms", "PostgreSQL ms", "Redis ms", "sessions", "Redis conn.", "MB", "log kB",
    "images kB", "recorded",
)  # fmt: skip


def middle(values: Iterator[float]) -> float:
    return median(list(values))


def ticks(rounds: Sequence[dict[str, Measured]]) -> Iterator[Figure]:
    """Yields what the ticks cost for each task of our own arms."""
    for name in OURS:
        found = [(of[name].ticked, of[name].due) for of in rounds if name in of]
        used = [(used, due) for used, due in found if used]
        if used:
            cost = [1000 * one.cpu["PostgreSQL"] / due for one, due in used]
            logs, images = ([getattr(one, kind) / due / 1000 for one, due in used] for kind in ("log", "images"))
            yield Figure(f"{name}: the tick, CPU of PostgreSQL per task", median(cost), "ms", max(cost))
            note = f"images {median(images):.2f} kB more"
            yield Figure(f"{name}: the tick, log per task", median(logs), "kB", max(logs), note)


def limits(uniform: Sequence[dict[str, Measured]], mix: Sequence[dict[str, Measured]]) -> Iterator[Figure]:
    """Yields the figures that have a limit."""
    group, largest, threads = "group of 100", "group of 1000", "20 threads"
    for of in uniform:
        for name, least in ((group, 40), (threads, 12)):
            if name in of and "job each" in of:
                yield Figure(
                    f"{name}, times a job each", of[name].rate / of["job each"].rate, "x", None, f"at least {least}"
                )
        if group in of:
            one = of[group]
            yield Figure("polls of a group of 100", one.rate, "/s", None, "at least 200")
            yield Figure("CPU of PostgreSQL per grouped run", one.cpu("PostgreSQL"), "ms", None, "at most 0.2")
            yield Figure(
                "log per grouped run, without images", one.used.log / one.runs / 1000, "kB", None, "at most 2.2"
            )
            yield Figure("sessions of its worker", one.used.sessions, "", None, "at most 2")
            yield Figure("connections to Redis of its worker", one.used.connections, "", None, "at most 2")
        if largest in of:
            yield Figure("polls of a group of 1000", of[largest].rate, "/s", None, "at least 1200")
        for name in OURS:
            if name in of and name.startswith("group"):
                yield Figure(f"CPU of the worker per poll, {name}", of[name].cpu("worker"), "ms", None, "at most 0.45")
    for of in mix:
        if group in of:
            share = of[group].rate / allowed("mix", OURS[group].concurrency)
            yield Figure("mix, group of 100, of what its slots allow", 100 * share, "%", None, "at least 80")
            yield Figure("mix, CPU of PostgreSQL per run", of[group].cpu("PostgreSQL"), "ms", None, "at most 0.3")


def chosen(only: str) -> dict[str, Ours | Peer]:
    """Returns the arms that were asked for and are installed."""
    wanted = [name for name in only.split(",") if name]
    arms: dict[str, Ours | Peer] = {**OURS, **PEERS}
    missing = {arm.package for arm in PEERS.values() if importlib.util.find_spec(arm.package) is None}
    if missing:
        print(f"# not installed: {', '.join(sorted(missing))} (uv run --group bench)", flush=True)
    return {
        name: arm for name, arm in arms.items()
        if (not wanted or any(name.startswith(one) for one in wanted)) and not (isinstance(arm, Peer) and arm.package in missing)
    }  # fmt: skip


def play(bench: Bench, arms: dict[str, Ours | Peer]) -> dict[str, Measured]:
    found = {}
    for name, arm in arms.items():
        print(f"# {name}", file=sys.stderr, flush=True)
        try:
            found[name] = bench.measure(arm)
        except (AssertionError, subprocess.CalledProcessError) as error:
            print(f"# {name}: {error} {getattr(error, 'stderr', b'')[-2000:]!r}", flush=True)
    return found


def main() -> None:
    reader = parser(__doc__, seconds=10, rounds=1)
    reader.add_argument("--mix-seconds", type=int, default=20, help="0: without the mix")
    reader.add_argument("--only", default="", help="arms whose names begin with one of these, separated by commas")
    reader.add_argument("--memory", type=int, default=1, help="0: without the memory of a run")
    options = reader.parse_args()
    arms = chosen(options.only)
    mixed = {name: arm for name, arm in arms.items() if name not in NOT_IN_MIX}
    uniform, mix, memory = [], [], []
    with polled() as server, stage(TASKS, *QUIET) as on:
        kinds = {kind: partial(Bench, on, server, kind) for kind in ("200", "mix")}
        most = max(arm.concurrency for arm in arms.values())
        assert max(kinds["mix"](options.mix_seconds).due(most), kinds["200"](options.seconds).due(most)) <= on.tasks
        for _ in range(options.rounds):
            uniform.append(play(kinds["200"](options.seconds), arms))
            if options.mix_seconds:
                mix.append(play(kinds["mix"](options.mix_seconds), mixed))
        if options.memory:
            for what, function, runs in (("coroutine", "polls.wait", 500), ("thread", "polls.wait_in_thread", 100)):
                taken = own_memory(on, function, runs)
                memory.append(Figure(f"memory of ours per {what} at work", taken, "kB", None, "at most 60"))
    found = {"uniform": list(rows("200", arms, uniform)), "mix": list(rows("mix", mixed, mix))}
    figures = [*limits(uniform, mix), *memory, *ticks(uniform)]
    show(figures, options.json, {"seconds": options.seconds}, {name: [HEADS, *cells] for name, cells in found.items()})


if __name__ == "__main__":
    main()
