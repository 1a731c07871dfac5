"""One table: what a run does, by the way in which it runs. Real workers run the same deeds in each of the six ways."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis
from rq import Queue
from rq.job import Job

import ticker
from tests.running import is_alive, stock_worker, until, work
from tests.sentences import sentence
from tests.worker.deeds import DEEDS
from ticker import tracing
from ticker.engine import jobs
from ticker.engine.tick import tick
from ticker.read.tasks import FullRun

pytestmark = pytest.mark.slow


class Way(NamedTuple):
    name: str
    worker: Callable[..., Any]
    said: str = ""  # the arguments of @task
    slots: int = 1
    is_async: bool = False


SINGLE = Way("job of one task", work)
BATCH = Way("batch", work, "batch=60")
COROUTINES = Way("group of coroutines", work, "batch=60, concurrency=60", 60, is_async=True)
THREADS = Way("group of threads", work, "batch=60, concurrency=60", 60)
STOCK = Way("job of one task, stock worker", stock_worker)
STOCK_BATCH = Way("batch, stock worker", stock_worker, "batch=60")

ALL = (SINGLE, BATCH, COROUTINES, THREADS, STOCK, STOCK_BATCH)
OURS, STOCKS = ALL[:4], ALL[4:]
SINGLES, BATCHES, GROUPS = (SINGLE, STOCK), (BATCH, STOCK_BATCH), (COROUTINES, THREADS)
IN_TURN, IN_ONE_PROCESS = SINGLES + BATCHES, BATCHES + GROUPS


@dataclass
class Seen:
    """What the runs of one way left, by the name of the task."""

    runs: dict[str, list[FullRun]]
    tasks: dict[str, ticker.Task]
    ids: dict[str, int]
    lines: list[str]  # of the workers
    errors: dict[str, str]  # of the jobs that failed in RQ
    jobs: set[str]  # that are still in RQ
    held: set[str]  # keys
    files: set[str]
    child: str

    def first(self, name: str) -> Any:
        return self.runs[name][0].run


Look = Callable[[Seen], Any]


def ended(name: str) -> Look:
    """The outcome and the reason of the first run, with N for each number."""
    return lambda seen: re.sub(
        r"\d[\d.]*", "N", f"{seen.first(name).outcome}: {seen.first(name).reason}".removesuffix(": ")
    )


def soft_limit(name: str) -> Look:
    """The seconds from the request of the start, as the reason says."""
    return lambda seen: float(re.findall(r"[\d.]+", seen.first(name).reason)[0])


def first_frame(name: str) -> Look:
    """The function in which the record's traceback begins."""
    return lambda seen: re.findall(r", in (\w+)", seen.first(name).traceback)[0]


def tracebacks(name: str) -> Look:
    """The number of tracebacks in the record, with those of the errors that caused the last one."""
    return lambda seen: seen.first(name).traceback.count("Traceback (most recent call last)")


def waiting(name: str) -> Look:
    """The records, and what the task waits for."""
    return lambda seen: (records(name)(seen), seen.tasks[name].wait_reason)


def is_span_of_run(seen: Seen) -> bool:
    run = seen.first("span")
    place = tracing.place(
        jobs.installation_of(run.job_id), task_id=run.task_id, occurrence=run.occurrence, run_id=run.id, parent_id=None,
        traceparent=None,
    )  # fmt: skip
    span = place.span(tracing.RUN).get_span_context()
    return bool(run.result == [span.trace_id, span.span_id])


def result(name: str) -> Look:
    return lambda seen: seen.first(name).result


def records(name: str) -> Look:
    return lambda seen: [f"{one.run.kind} {one.run.attempt} {one.run.outcome}" for one in seen.runs.get(name, [])]


def in_rq(name: str, number: int = 0) -> Look:
    """What RQ keeps of the job: the end of its error, or nothing."""

    def look(seen: Seen) -> str:
        job = seen.runs[name][number].run.job_id
        if job in seen.errors:
            return seen.errors[job].rstrip().splitlines()[-1].partition(";")[0]
        return "kept" if job in seen.jobs else "gone"

    return look


def log_lines(name: str) -> Look:
    """The lines that name the task, without their time and up to its id."""
    return lambda seen: [
        re.sub(r"^\S+Z ", "", line.partition(f"task={seen.ids[name]} ")[0]).strip()
        for line in seen.lines if f"task={seen.ids[name]} " in line
    ]  # fmt: skip


SHORT = ("exhausts", "overruns", "returns_late", "converts", "sleeps", "swallows", "awaits_too_long", "awaits_on")
OPTIONS: dict[str, dict[str, Any]] = {
    "slows": {"limits": ["slow"]},
    "holds_off": {"limits": ["off"]},
    "retries": {"retries": 1, "backoff": "1ms"},
    "has_more_than_its_first_box": {"box": "20s"},
}
FUNCTION_OF = {
    "swallows": "deadly", "follows": "deadly", "sleeps": "sleepy", "sleeper": "sleepy", "awaits": "awaits",
    "awaits_too_long": "awaits", "awaits_on": "awaits", "makes_pieces": "in.pieces",
}  # fmt: skip
NAMES = (
    "early", "deleted", "disabled", "paused", "unknown", "turned_to_pieces", "twin", "sleeper", "awaits", "awaits_too_long",
    "awaits_on", "makes_pieces",
)  # fmt: skip


def play(way: Way, db: Any, store: Any, queue: Any, redis: Redis, folder: Path) -> Seen:
    """Two workers work off a queue each, a run is stopped, and a third worker runs what is due after that."""
    tasks = registered(way, db)
    tick(store, queue)
    change_what_is_in_the_queue(tasks, db)
    arguments = f"is_async={way.is_async}, slots={way.slots}, {way.said}"
    worker = partial(way.worker, patch=f"from tests.worker import deeds; deeds.register({arguments})")
    with ThreadPoolExecutor() as pool:
        at_work = [pool.submit(worker, name) for name in ("polling", "deadly")]
        until(lambda: (folder / "go waits").exists() or (at_work[0].done() and at_work[0].result()), "a run to stop")
        [run] = [run for run in ticker.list_runs(db) if run.task_name == "is_stopped"]
        ticker.stop(db, run.id, by="ann")
        tick(store, queue)
        if way in STOCKS:
            (folder / "go").touch()
        done = [one.result() for one in at_work]
    ticker.run_now(db, tasks["resumes"])
    number = "SELECT count(*) FROM ticker.runs WHERE state = 'running'"
    until(lambda: tick(store, queue) and db.execute(number).fetchone() == (0,), "the ends of all runs")
    done.append(worker("polling", "deadly"))
    tick(store, queue)
    lines = [line for one in done for line in (one.stdout + one.stderr).splitlines()]
    return seen(tasks, lines, db, redis, folder)


def registered(way: Way, db: Any) -> dict[str, ticker.Task]:
    """Registers a task for each deed, and announces how many of them share a job."""
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('slow', 5), ('off', 5)")
    grouped = {"deeds", "deadly", "sleepy"} | ({"awaits", "in.pieces"} if way in BATCHES else set())
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at)"
        " SELECT name, 60, %s, clock_timestamp() FROM unnest(%s::text[]) AS name WHERE %s",
        [way.slots, [*grouped], way not in SINGLES],
    )
    # one statement starts a whole group, and must take no longer than a box
    short = {"box": "2s", "every": "12s"} if way in GROUPS else {"box": "0.5s", "every": "4s"}
    tasks = {}
    for name in ("is_stopped", *(deed for deed in DEEDS if deed != "is_stopped"), *NAMES):
        function = FUNCTION_OF.get(name, "deeds")
        options = short if name in SHORT else {"every": "1h", "box": "2m"} | OPTIONS.get(name, {})
        where = "deadly" if function in ("deadly", "sleepy") else "polling"
        kwargs = {"deed": name if name in DEEDS or function == "awaits" else "process"}
        tasks[name] = ticker.register(db, function, name=name, queue=where, kwargs=kwargs, **options)
    for name, function in (("positional", "deeds"), ("makes_pieces_too", "in.pieces")):
        tasks[name] = ticker.register(db, function, name=name, every="1h", args=["process"], kwargs={})
    tasks["misfit"] = ticker.register(db, "deeds", name="misfit", every="1h", kwargs={"deed": "process", "more": 1})
    return tasks


def change_what_is_in_the_queue(tasks: dict[str, ticker.Task], db: Any) -> None:
    db.execute("UPDATE ticker.tasks SET next_run = next_run + interval '1 h'")
    db.execute("UPDATE ticker.tasks SET last_run = clock_timestamp() WHERE name = 'early'")
    ticker.unregister(db, tasks["deleted"])
    ticker.edit(db, tasks["disabled"], enabled=False)
    ticker.pause(db, tasks["paused"])
    db.execute("UPDATE ticker.tasks SET function = 'unheard.of' WHERE name = 'unknown'")
    db.execute("UPDATE ticker.tasks SET function = 'in.pieces' WHERE name = 'turned_to_pieces'")
    ticker.edit(db, tasks["has_more_than_its_first_box"], box="10m")


def seen(tasks: dict[str, ticker.Task], lines: list[str], db: Any, redis: Redis, folder: Path) -> Seen:
    runs: dict[str, list[FullRun]] = {}
    for run in reversed(ticker.list_runs(db, limit=1000)):
        runs.setdefault(run.task_name, []).append(ticker.get_run(db, run.id))
    queues = [Queue(name, connection=redis) for name in ("polling", "deadly")]
    failed = [job for queue in queues for job in queue.failed_job_registry.get_job_ids()]
    held = db.execute("SELECT key FROM ticker.limited_keys WHERE closed_until > clock_timestamp()").fetchall()
    child = runs["leaves_a_child"][0].run.result
    survives = is_alive(child)
    if survives:
        os.kill(child, signal.SIGKILL)
    return Seen(
        runs, {task.name: task for task in ticker.list_tasks(db)}, {name: task.id for name, task in tasks.items()}, lines,
        {id_: Job.fetch(id_, connection=redis).latest_result().exc_string for id_ in failed},
        {key.decode().removeprefix("rq:job:") for key in redis.scan_iter("rq:job:*")},
        {key for (key,) in held}, {path.name for path in folder.iterdir()}, "alive" if survives else "dead",
    )  # fmt: skip


NOT_ASYNC = "the group's functions are coroutines themselves, or run in threads"
NO_PIECES = "a class cannot have concurrency"


class NotHere(NamedTuple):
    """A behaviour that this way does not have, and the reason."""

    reason: str


TABLE: list[tuple[str, Look, dict[tuple[Way, ...], Any]]] = [
    # ---------------------------------------------------------------------------------------------------- outcomes
    ("succeeded", ended("returns"), {ALL: "succeeded"}),
    ("nothing to do", ended("finds_nothing"), {ALL: "nothing_to_do"}),
    ("partial", ended("exhausts"), {ALL: "partial"}),
    ("failed", ended("raises"), {ALL: "failed: ValueError: no such host"}),
    ("failed by sys.exit", ended("exits"), {ALL: "failed: SystemExit: N"}),
    ("positional arguments", lambda seen: seen.first("positional").pid == seen.first("positional").result, {ALL: True}),
    ("kwargs that do not fit", lambda seen: ended("misfit")(seen)[:33], {ALL: "failed: TypeError: the task's kwa"}),
    ("a generator returned", lambda seen: ended("generator")(seen)[:33], {ALL: "failed: TypeError: the function r"}),
    ("timed out", ended("overruns"), {ALL: sentence("why.timed_out_by_its_limit")}),
    ("async def timed out", ended("awaits_too_long"), {
        IN_TURN: sentence("why.timed_out_by_its_limit"), GROUPS: NotHere(NOT_ASYNC)}),
    ("soft limit", soft_limit("overruns"), {  # B + g/2, or B + g/4 where a coroutine is cancelled
        IN_TURN: 0.7, (COROUTINES,): 2.25, (THREADS,): 2.5}),
    ("soft limit of an async def", soft_limit("awaits_too_long"), {IN_TURN: 0.6, GROUPS: NotHere(NOT_ASYNC)}),
    ("soft limit swallowed by an async def", ended("awaits_on"), {
        IN_TURN: sentence("why.soft_limit_ignored"), GROUPS: NotHere(NOT_ASYNC)}),
    ("soft limit swallowed", ended("returns_late"), {ALL: sentence("why.soft_limit_ignored")}),
    ("soft limit turned into an error", ended("converts"), {ALL: "failed: OSError: the connection was closed"}),
    ("soft limit during time.sleep", records("sleeps"), {
        IN_TURN: ["scheduled 1 timed_out"], GROUPS: ["scheduled 1 killed"]}),
    ("killed at the hard limit", records("swallows"), {
        OURS: ["scheduled 1 killed"], STOCKS: ["scheduled 1 lost"]}),  # a tick finds what a stock worker lost
    ("what follows a kill in the same job", records("follows"), {
        IN_TURN: ["scheduled 1 succeeded"], GROUPS: ["scheduled 1 interrupted"]}),
    ("stopped", ended("is_stopped"), {OURS: "interrupted: stopped by ann", STOCKS: "succeeded"}),
    # ------------------------------------------------------------------------------------------------ the record
    ("result", result("returns"), {ALL: {"a": 1}}),
    ("result after the soft limit", result("returns_late"), {ALL: 5}),
    ("output", lambda seen: seen.runs["returns"][0].output, {ALL: "printed\n"}),
    ("error output", lambda seen: seen.runs["returns"][0].error_output[20:], {ALL: " WARNING app: logged\n"}),
    ("process in the record", lambda seen: seen.first("process").pid == seen.first("process").result, {ALL: True}),
    ("last line of a traceback", lambda seen: seen.first("raises").traceback.splitlines()[-1], {
        ALL: "ValueError: no such host"}),
    ("first frame of a traceback", first_frame("raises"), {
        (*IN_TURN, THREADS): "plain", (COROUTINES,): "coroutine"}),
    ("first frame after a soft limit", first_frame("overruns"), {
        (*IN_TURN, THREADS): "plain", (COROUTINES,): "coroutine"}),
    ("first frame of an async def", first_frame("awaits_too_long"), {IN_TURN: "awaits", GROUPS: NotHere(NOT_ASYNC)}),
    ("tracebacks of an async def", tracebacks("awaits_too_long"), {IN_TURN: 1, GROUPS: NotHere(NOT_ASYNC)}),
    ("first frame of a piece", lambda seen: re.findall(r", in (\w+)", seen.runs["makes_pieces"][2].run.traceback)[0], {
        IN_TURN: "process", GROUPS: NotHere(NO_PIECES)}),
    ("last frame where kwargs do not fit", lambda seen: re.findall(r", in (\w+)", seen.first("misfit").traceback), {
        ALL: ["called"]}),
    # ------------------------------------------------------------------------------------------ before its start
    ("too early", records("early"), {ALL: ["scheduled 1 dropped"]}),
    ("reason of a drop", ended("early"), {ALL: "dropped: too_early"}),
    ("deleted while its job waits", ended("deleted"), {ALL: "dropped: gone"}),
    ("disabled while its job waits", ended("disabled"), {ALL: "dropped: paused"}),
    ("paused while its job waits", waiting("paused"), {ALL: ([], "closed")}),
    ("its function becomes unknown", records("unknown"), {ALL: []}),
    ("its function becomes one with pieces", ended("turned_to_pieces"), {ALL: "failed: N of N pieces failed"}),
    # a job of one task keeps RQ's time limit of its push; that of a batch has the time of all its tasks
    ("its box becomes longer", result("has_more_than_its_first_box"), {SINGLES: False, IN_ONE_PROCESS: True}),
    # the process in which its function would have run; the worker asks for a job of one task before that process exists
    ("process in the record of a drop", lambda seen: seen.first("early").pid is not None, {
        (SINGLE,): False, OURS[1:] + STOCKS: True}),
    # ---------------------------------------------------------------------------------------------- what RQ sees
    ("RQ: succeeded", in_rq("returns"), {ALL: "gone"}),
    ("RQ: too early", in_rq("early"), {ALL: "gone"}),
    ("RQ: failed", in_rq("raises"), {SINGLES: "ValueError: no such host", IN_ONE_PROCESS: "gone"}),
    ("RQ: sys.exit", in_rq("exits"), {SINGLES: "SystemExit: 4", IN_ONE_PROCESS: "gone"}),
    ("RQ: timed out", lambda seen: in_rq("overruns")(seen)[:25], {
        SINGLES: "wrappers.layers.TimedOut:", IN_ONE_PROCESS: "gone"}),
    ("RQ: soft limit swallowed", in_rq("returns_late"), {ALL: "gone"}),
    ("RQ: stopped", in_rq("is_stopped"), {ALL: "gone"}),
    ("RQ: closed", in_rq("slows"), {ALL: "gone"}),
    ("RQ: killed", in_rq("swallows"), {
        IN_TURN: "Work-horse terminated unexpectedly", GROUPS: "gone"}),  # a group's job ends once all its tasks have begun
    # ------------------------------------------------------------------------------------------------- log lines
    ("line of a success", log_lines("returns"), {OURS: ["INFO ticker.run run succeeded"], STOCKS: []}),
    ("line of a drop", lambda seen: [line[:24] for line in log_lines("early")(seen)], {
        OURS: ["WARNING ticker.run dropp"], STOCKS: ["dropped reason=too_early"]}),
    # RQ writes the traceback of a single job
    ("lines of a failure", log_lines("raises"), {
        (SINGLE,): ["WARNING ticker.run run failed"],
        OURS[1:]: ["WARNING ticker.run run failed", "ERROR ticker.run traceback of"],
        (STOCK,): ["run failed"], (STOCK_BATCH,): ["run failed", "traceback of"]}),
    ("tracebacks in the log", lambda seen: sum(line.endswith("ValueError: no such host") and "task=" not in line for line in seen.lines), {
        ALL: 1}),
    # ------------------------------------------------------------------------------------------ what a run asks
    ("checkpoint", lambda seen: seen.tasks["resumes"].cursor, {ALL: 2}),
    ("manual run", records("resumes"), {ALL: ["scheduled 1 succeeded", "manual 1 succeeded"]}),
    ("retry", records("retries"), {ALL: ["scheduled 1 failed", "retry 2 succeeded"]}),
    ("run.again", lambda seen: seen.first("asks_again").result == str(seen.tasks["asks_again"].next_run), {ALL: True}),
    ("SlowDown", ended("slows"), {ALL: sentence("why.ended_as_held_off", key="slow")}),
    ("held keys", lambda seen: seen.held, {ALL: {"slow", "off"}}),
    ("run.slow_down", ended("holds_off"), {ALL: "succeeded"}),
    ("pieces", records("makes_pieces"), {
        IN_TURN: ["scheduled 1 failed", "piece 1 succeeded", "piece 1 failed"], GROUPS: NotHere(NO_PIECES)}),
    ("pieces with positional arguments", records("makes_pieces_too"), {
        IN_TURN: ["scheduled 1 failed", "piece 1 succeeded", "piece 1 failed"], GROUPS: NotHere(NO_PIECES)}),
    ("RQ: failed piece", in_rq("makes_pieces", 2), {IN_TURN: "ValueError: no such piece", GROUPS: NotHere(NO_PIECES)}),
    # ------------------------------------------------------------------------------------ where the function runs
    ("thread", result("thread"), {(*IN_TURN, COROUTINES): "MainThread", (THREADS,): "ticker-run"}),
    ("thread of an async def", result("awaits"), {IN_TURN: "MainThread", GROUPS: NotHere(NOT_ASYNC)}),
    ("other threads", result("other_threads"), {IN_TURN: False, GROUPS: True}),
    ("audit hooks", result("audit_hooks"), {IN_TURN: 0, GROUPS: 1}),
    ("asyncio.run", result("asyncio_run"), {
        (*IN_TURN, THREADS): "runs", (COROUTINES,): "asyncio.run() cannot be called from a running event loop"}),
    ("an awaitable returned", result("awaitable"), {ALL: "awaited"}),
    ("one process for two runs", lambda seen: seen.first("process").pid == seen.first("twin").pid, {
        SINGLES: False, IN_ONE_PROCESS: True}),
    ("rq.get_current_job", lambda seen: seen.first("current_job").result == seen.first("current_job").job_id, {
        ALL: True}),
    ("Sentry's transaction and tags", result("labels"), {ALL: ["deeds", True]}),
    ("OpenTelemetry's span", is_span_of_run, {ALL: True}),
    # ------------------------------------------------------------------------------------------- what a run leaves
    ("a child after its run", result("meets_the_child"), {OURS: "dead", STOCKS: "alive"}),
    ("a child after its worker", lambda seen: seen.child, {OURS: "dead", STOCKS: "alive"}),
    ("coroutine", lambda seen: "cancelled" in seen.files, {ALL: True}),
    ("thread left: the record", ended("leaves_a_thread"), {ALL: "succeeded: it left threads: follower"}),
    ("thread left: the next run meets it", result("meets_the_thread"), {SINGLES: False, IN_ONE_PROCESS: True}),
]  # fmt: skip


def cells() -> Iterator[Any]:
    """Yields a test for each behaviour and way, way by way. Each behaviour says something of each way."""
    for way in ALL:
        for behaviour, look, expected in TABLE:
            [cell] = [value for ways, value in expected.items() if way in ways]
            if not isinstance(cell, NotHere):
                yield pytest.param(way, look, cell, id=f"{behaviour}[{way.name}]")


SEEN: dict[Way, Seen | Exception] = {}  # each way is played once


@pytest.fixture
def seen_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Way], Seen]:
    def seen_in(way: Way) -> Seen:
        if way not in SEEN:
            request.getfixturevalue("environ")
            monkeypatch.setenv("TICKER_OTEL", "on")
            try:
                SEEN[way] = play(way, *map(request.getfixturevalue, ("db", "store", "queue", "redis", "folder")))
            except Exception as error:
                SEEN[way] = error
        found = SEEN[way]
        if isinstance(found, Exception):
            raise found
        return found

    return seen_in


@pytest.mark.parametrize(("way", "look", "expected"), [*cells()])
def test_way(way: Way, look: Look, expected: Any, seen_in: Callable[[Way], Seen]) -> None:
    assert look(seen_in(way)) == expected
