"""`ticker demo`: a small application and its mail, on real servers, polled for half a minute. Then it checks itself.

All spans are multiplied by the pace, so that a loaded machine plays the same scene more slowly.
"""

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any, cast

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from sqlalchemy import select, text

import ticker
from ticker import embedded, settings
from ticker.db import connections, sql
from ticker.demo import application, chart, stage, verdict
from ticker.demo.application import REPORTED, UNATTENDED
from ticker.model import Outcome, RunKind
from ticker.queue import rq
from ticker.read.tasks import RunRecord
from ticker.signals import Noted, noted

ABOUT = "You are about to see five mailboxes polled by real workers: one has too much mail, one hangs and is killed, \
one is deleted, a worker dies; then {promises} promises are checked."
INTERRUPTED = 130
DELETED, CRASHED = "shop", "archive"
LOOK, MEASURE = 0.2, 4.0  # seconds between two looks at the tables, and between two measurements
LAST_ACT = 5.0  # seconds that the last polls, the end of the workers and the verdict usually take
PATIENCE = 12.0  # seconds at pace 1 for a step that usually takes one to five
SLOWEST, TOO_SLOW = 8.0, 1.5  # the slowest pace; a factor by which the machine became slower than the pace
NEWEST = 200  # runs that are read again: more than can begin while one of them lasts


class Interrupted(Exception):
    """A signal asks the demo to end."""


def demo(seconds: float = 30, keep: bool = False, web: bool = False, verbose: bool = False) -> int:
    """Plays for about `seconds`, start-up included, or until all was seen; with `keep`, goes on until Ctrl-C.

    Returns 0 if no promise was broken, 1 if one was, or a process ended, 130 if interrupted before that was known.
    """
    ends_at = time.monotonic() + seconds - LAST_ACT
    show = Show(verbose)
    with noted((SIGINT, SIGTERM, SIGHUP)) as signals:
        try:
            return play(ends_at, keep, web, show, signals)
        except Interrupted:
            show.print("interrupted; everything is stopped and removed")
            return INTERRUPTED


def play(ends_at: float, keep: bool, web: bool, show: "Show", signals: Noted) -> int:
    """Sets the stage, and takes it down again, whatever happens in between."""
    show.print(ABOUT.format(promises=len(verdict.PROMISES)), "bold")
    pace = min(stage.measure_pace(), SLOWEST)
    if pace > 1:
        show.print(f"This machine is busy: the demo takes its time, {pace:.1f} times as much.")
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ticker-demo-")))
        environ = cleanup.enter_context(stage.prepared(cleanup.enter_context(embedded.servers_or_given()).environ))
        processes = cleanup.enter_context(stage.Processes(folder, stage.PATIENCE * pace))
        try:
            if page := start(processes, web, signals):
                show.print(f"the page: {page}")
            db = cleanup.enter_context(connections.connect(settings.from_environment().require_database()))
            post = cleanup.enter_context(stage.Post(pace))
            scene = Scene(db, post, processes, show, signals, pace)
            good = perform(scene, ends_at, None if keep else processes.stop, show)
            if keep:
                names = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
                show.print(f"\neverything goes on until Ctrl-C; in another terminal:\n\nexport {names}\nticker list\n")
                with suppress(Interrupted), show.live:
                    scene.go_on()
        except stage.ProcessFailed as failure:
            good = False
            show.print(str(failure), "bold red")
        if show.verbose:
            show.print(processes.logs())
    return 0 if good else 1


def start(processes: stage.Processes, web: bool, signals: Noted) -> str:
    """Starts the Procfile as honcho does, with a second worker; returns the page's address when all are ready."""
    lines = stage.procfile()
    for name, line in (("ticker", "ticker"), ("worker-1", "worker"), ("worker-2", "worker")):
        processes.start(name, lines[line])
    if web:
        processes.start("web", "ticker web --port 0")
    address = None
    while in_redis("scard", "rq:workers:polling") < 2 or (web and not address):
        processes.check()
        address = re.search(r"http://\S+", processes.log("web")) if web else None
        if signals.wait(0.05):
            raise Interrupted
    return address[0] if address else ""


def in_redis(command: str, *arguments: str) -> int:
    with closing(rq.connect(settings.from_environment().require_redis())) as redis:
        return int(getattr(redis, command)(*arguments))


def perform(scene: "Scene", ends_at: float, stop: Callable[[], None] | None, show: "Show") -> bool:
    """Plays the scene, and judges it; returns whether no promise was broken."""
    with show.live:
        scene.play(ends_at)
        if stop:
            stop()
        scene.look()
    evidence = scene.evidence()
    why = max(evidence.whys, key=lambda why: sum("too_early" in line.words for line in why.lines))
    show.print("\n".join([f"$ ticker why {why.task_id}", *map(str, why.lines[:4]), ""]))
    judged = list(verdict.judge(evidence, scene.was_too_slow()))
    for status, sentence in judged:
        show.print(f"{status:10}  {sentence}", verdict.STYLES[status])
    held, unknown = ([status for status, _ in judged].count(status) for status in ("ok", "not judged"))
    good = held + unknown == len(judged)
    not_judged = f", {unknown} not judged: the machine was too slow" if unknown else ""
    show.print(f"\n{held} of {len(judged)} promises held{not_judged}", "bold green" if good else "bold red")
    return good


class Show:
    """The chart with what is said below it: live in a terminal; in a pipe, at the end of `with show.live`."""

    def __init__(self, verbose: bool) -> None:
        self._console, self.verbose, self.lines = Console(highlight=False), verbose, [""]
        self.live = Live(console=self._console, auto_refresh=False)
        self.width = max(self._console.width, 60)

    def print(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style), soft_wrap=True)

    def draw(self, lanes: Sequence[Text]) -> None:
        self.live.update(Group("", *lanes, *map(Text, self.lines), ""), refresh=True)


class Scene:
    """The play. Each step waits for what it needs to see, never for a time. `tasks` keeps deleted ones, too."""

    def __init__(
        self, db: Any, post: stage.Post, processes: stage.Processes, show: Show, signals: Noted, pace: float
    ) -> None:
        self._db, self._post, self._processes, self._show, self._signals = db, post, processes, show, signals
        self._pace = self._slowest = pace
        self._measured_at = time.monotonic()
        self._deletion: verdict.Deletion | None = None
        self._victim: int | None = None
        self.runs: list[RunRecord] = []
        self._polls, self._reports, self._feeds = application.register_all(post.server_address[1], pace)
        self.tasks = {task.id: task for task in [*self._polls.values(), *self._reports.values(), *self._feeds]}
        self._zero = min(task.created_at for task in self.tasks.values())

    def was_too_slow(self) -> bool:
        """Returns whether the machine was, or became, slower than the scene was scaled for."""
        return self._slowest >= SLOWEST or self._slowest > TOO_SLOW * self._pace

    def play(self, ends_at: float) -> None:
        """Goes on until all that was promised was seen, and until `ends_at`, a reading of time.monotonic()."""
        self._until(lambda: self._waiting(DELETED) > 0 and self.tasks[self._polls[DELETED].id].last_outcome is not None)
        self._delete(DELETED)
        self._until(self._kill_a_worker)
        self._until(lambda: self._waiting(REPORTED[0]) > 1)
        self._start_late_worker()
        self._until(lambda: verdict.seen(self.evidence()), at_least=ends_at)
        self._post.stopped = time.monotonic()
        self._post.delays.clear()  # the slow mailboxes are fast now, and each one is polled at once
        for mailbox, task in self._polls.items():
            if mailbox != DELETED:
                ticker.run_now(self._db, task)
        self._say("no more mail; what is left is fetched")
        self._until(lambda: verdict.stored_once(self.evidence())[0] is True)

    def go_on(self) -> None:
        """Mail arrives again, until a signal ends it (Interrupted)."""
        self._post.stopped = None
        while True:
            self.look()

    def look(self) -> None:
        """Reads the tables, shows what is new, and pauses for a moment."""
        ended_before = {run.id for run in self.runs if run.ended_at}
        alive = {task.id: task for task in ticker.list_tasks(self._db)}
        self.tasks = {id_: alive.get(id_, replace(task, waiting=())) for id_, task in self.tasks.items()}
        newest = {run.id: run for run in ticker.list_runs(self._db, limit=NEWEST)[::-1] if run.task_id in self.tasks}
        self.runs = [run for run in self.runs if run.id not in newest] + list(newest.values())
        for run in self.runs:
            if self._show.verbose and run.ended_at and run.id not in ended_before:
                at, task = chart.clock(run.ended_at, self._zero), self.tasks[run.task_id]
                self._show.print(f"{at}  {task.subject} {task.name} {run.outcome} {run.reason}")
        self._show.draw(chart.lanes(self.tasks.values(), self.runs, self._zero, self._now(), self._show.width))
        self._processes.check()
        if self._signals.wait(LOOK):
            raise Interrupted
        if time.monotonic() > self._measured_at + MEASURE * self._pace:
            self._slowest = max(self._slowest, stage.measure_pace(3))
            self._measured_at = time.monotonic()

    def evidence(self) -> verdict.Evidence:
        """Returns all that is recorded by now."""
        with application.sessions().begin() as session:
            rows = session.execute(select(application.Message.mailbox, application.Message.uid)).all()
        failed = [run.id for run in self.runs if run.outcome == Outcome.FAILED and run.kind == RunKind.SCHEDULED]
        return verdict.Evidence(
            tasks=list(self.tasks.values()), runs=self.runs, deletion=self._deletion, victim=self._victim,
            delivered=[(mailbox, uid) for mailbox in self._polls for uid in range(1, self._post.newest(mailbox) + 1)],
            retrieved=list(self._post.retrieved), stored=[(mailbox, uid) for mailbox, uid in rows],
            failed=[ticker.get_run(self._db, id_) for id_ in failed],
            whys=[ticker.why(self._db, t) for t in (self._reports[REPORTED[0]], *self._feeds)],
        )  # fmt: skip

    def _delete(self, mailbox: str) -> None:
        channel = int(self._polls[mailbox].owner_id)
        with application.sessions().begin() as session:
            session.execute(text(f"DELETE FROM {application.SCHEMA}.mail_channels WHERE id = {channel}"))
        left = [task for task in ticker.list_tasks(self._db) if task.subject == mailbox]
        self._deletion = verdict.Deletion(mailbox, self._now(), len(left))
        self._say(f"{mailbox}: DELETE FROM mail_channels WHERE id = {channel}; {len(left)} tasks left")

    def _kill_a_worker(self) -> bool:
        """Kills the worker of a run that goes on for a while; returns whether there was one."""
        for run in self.runs:
            is_young = run.started_at and self._now() - run.started_at < timedelta(seconds=1.4 * self._pace)
            if run.task_id == self._polls[CRASHED].id and not run.ended_at and is_young:
                self._victim = run.id
                self._processes.kill(in_redis("hget", f"rq:worker:{run.worker}", "pid"))
                self._processes.start("worker-3", stage.procfile()["worker"])
                self._say(f"{CRASHED}: kill -9 of the worker that runs it; another worker starts")
                return True
        return False

    def _start_late_worker(self) -> None:
        command = stage.procfile()["worker"].rpartition(" ")[0]
        self._processes.start("late-worker", f"{command} {UNATTENDED}")
        waiting = self._waiting(REPORTED[0])
        self._say(f"{waiting} jobs of one task wait in a queue without a worker; one starts now")

    def _waiting(self, mailbox: str) -> int:
        return len(self.tasks[self._reports[mailbox].id].waiting)

    def _now(self) -> datetime:
        return cast(datetime, sql.on(self._db, stage.SCHEMA)("instant", now=None)[0]["now"])

    def _say(self, line: str) -> None:
        self._show.lines.append(f"{chart.clock(self._now(), self._zero)}  {line}")

    def _until(self, condition: Callable[[], bool], at_least: float = 0.0) -> None:
        """Looks until it is so, but no longer than PATIENCE: the verdict names what is missing."""
        began = max(time.monotonic(), at_least)
        while (waited := time.monotonic() - began) < 0 or (waited < PATIENCE * self._slowest and not condition()):
            self.look()
