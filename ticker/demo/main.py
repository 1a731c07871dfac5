"""`ticker demo`: polls the mail of a small application on real servers for half a minute, then checks the results.

All durations are multiplied by the pace, so that a loaded machine plays the same scene more slowly.
"""

import re
import shlex
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
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
from ticker.demo.stage import PROCFILE
from ticker.model import Outcome, RunKind
from ticker.queue import rq
from ticker.queue.scripts import PREFIX
from ticker.read.tasks import RunRecord
from ticker.signals import Noted, noted

ABOUT = "You are about to see five mailboxes polled by real workers: one has too much mail, one hangs and is killed, \
one is deleted, a worker dies; then {promises} promises are checked."
DELETED, CRASHED = "shop", "archive"
LOOK, MEASURE = 0.2, 4.0  # seconds between two queries, and between two measurements of the pace
LAST_ACT = 5.0  # seconds that the last polls, stopping the workers and the verdict usually take
PATIENCE = 12.0  # seconds at pace 1 for a step that usually takes one to five
SLOWEST, TOO_SLOW = 8.0, 1.5  # the slowest pace; a machine that slows down by this factor is too slow to judge
NEWEST = 200  # newest runs that are read again: more than can begin while one of them lasts


def demo(seconds: float = 30, keep: bool = False, web: bool = False, verbose: bool = False) -> int:
    """Plays for about `seconds`, start-up included, or longer if a promise has not been seen. `keep` continues until Ctrl-C.

    Returns 0 if no promise was broken, 1 if one was or a process ended, 130 if interrupted before the verdict.
    """
    ends_at = time.monotonic() + seconds - LAST_ACT
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(ABOUT.format(promises=len(verdict.PROMISES)), style="bold")
    with noted((SIGINT, SIGTERM, SIGHUP)) as signals:
        try:
            return play(console, signals, ends_at, keep, web, verbose)
        except KeyboardInterrupt:  # raised when a signal has been noted
            console.print("interrupted; everything was stopped and removed")
            return 130


def play(console: Console, signals: Noted, ends_at: float, keep: bool, web: bool, verbose: bool) -> int:
    """Sets the stage, performs the scene, and always removes everything afterwards."""
    pace = min(stage.measure_pace(), SLOWEST)
    if pace > 1:
        console.print(f"This machine is busy: the demo takes {pace:.1f} times as long.")
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ticker-demo-")))
        environ = cleanup.enter_context(stage.prepared(cleanup.enter_context(embedded.servers_or_given()).environ))
        processes = cleanup.enter_context(closing(stage.Processes(folder, stage.PATIENCE * pace)))
        try:
            if page := start(processes, web, signals):
                console.print(f"the page: {page}")
            db = cleanup.enter_context(connections.connect(settings.from_environment().require_database()))
            post = cleanup.enter_context(stage.Post(pace))
            live = Live(console=console, auto_refresh=False)
            scene = Scene(db, post, processes, signals, live, pace, verbose)
            good = perform(scene, ends_at, None if keep else processes.close)
            if keep:
                names = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
                console.print(
                    f"\nthe demo continues until Ctrl-C; in another terminal:\n\nexport {names}\nticker list\n"
                )
                post.stopped = None  # mail arrives again
                with suppress(KeyboardInterrupt), scene.live:
                    while True:
                        scene.look()
        except ChildProcessError as failure:
            good = False
            console.print(str(failure), style="bold red")
        if verbose:
            console.print(processes.logs())
    return 0 if good else 1


def start(processes: stage.Processes, web: bool, signals: Noted) -> str:
    """Starts the Procfile's processes as honcho does, with a second worker. Returns the page's address once all are ready."""
    for name, line in (("ticker", "ticker"), ("worker-1", "worker"), ("worker-2", "worker")):
        processes.start(name, PROCFILE[line])
    if web:
        processes.start("web", "ticker web --port 0")
    while in_redis("scard", f"{PREFIX}:workers:polling") < 2 or (web and "http://" not in processes.log("web")):
        processes.check()
        if signals.wait(0.05):
            raise KeyboardInterrupt
    return re.findall(r"http://\S+", processes.log("web"))[0] if web else ""


def in_redis(command: str, *arguments: str) -> int:
    with closing(rq.connect(settings.from_environment().require_redis())) as redis:
        return int(getattr(redis, command)(*arguments))


def perform(scene: "Scene", ends_at: float, stop: Callable[[], None] | None) -> bool:
    """Plays the scene and prints the verdict. Returns whether no promise was broken."""
    with scene.live:
        scene.play(ends_at)
        if stop:
            stop()
        scene.look()
    evidence, console = scene.evidence(), scene.live.console
    why = max(evidence.whys, key=lambda why: sum("too_early" in line.words for line in why.lines))
    console.print("\n".join([f"$ ticker why {why.task_id}", *map(str, why.lines[:4]), ""]))
    too_slow = scene.slowest >= SLOWEST or scene.slowest > TOO_SLOW * scene.pace
    judged = list(verdict.judge(evidence, too_slow))
    for status, sentence in judged:
        console.print(f"{status:10}  {sentence}", style=verdict.STYLES[status])
    held, unknown = ([status for status, _ in judged].count(status) for status in ("ok", "not judged"))
    good = held + unknown == len(judged)
    not_judged = f", {unknown} not judged: the machine was too slow" if unknown else ""
    console.print(f"\n{held} of {len(judged)} promises held{not_judged}", style="bold green" if good else "bold red")
    return good


@dataclass
class Scene:
    """The steps of the demo. Each step waits for an event, never for a time. `tasks` also keeps deleted tasks."""

    db: Any
    post: stage.Post
    processes: stage.Processes
    signals: Noted
    live: Live  # the chart and the text below it; in a pipe it is printed at the end
    pace: float
    verbose: bool
    messages: list[str] = field(default_factory=lambda: [""])
    runs: dict[int, RunRecord] = field(default_factory=dict)
    deletion: verdict.Deletion | None = None
    victim: int | None = None

    def __post_init__(self) -> None:
        self.slowest, self.measured_at = self.pace, time.monotonic()
        self.polls, self.reports, self.feeds = application.register_all(self.post.server_address[1], self.pace)
        self.tasks = {task.id: task for task in [*self.polls.values(), *self.reports.values(), *self.feeds]}
        self.zero = min(task.created_at for task in self.tasks.values())

    def play(self, ends_at: float) -> None:
        """Plays until all promises have been seen, and at least until `ends_at`, a reading of time.monotonic()."""
        self._until(lambda: self._waiting(DELETED) > 0 and self.tasks[self.polls[DELETED].id].last_outcome is not None)
        self._delete(DELETED)
        self._until(self._kill_a_worker)
        self._until(lambda: self._waiting(REPORTED[0]) > 1)
        self.processes.start("late-worker", PROCFILE["worker"].replace("polling", UNATTENDED))
        self._say(f"{self._waiting(REPORTED[0])} jobs of one task wait in a queue without a worker; one starts now")
        self._until(lambda: verdict.seen(self.evidence()), at_least=ends_at)
        self.post.stopped = time.monotonic()
        self.post.delays.clear()  # makes the slow mailboxes fast; each mailbox is polled at once
        for mailbox, task in self.polls.items():
            if mailbox != DELETED:
                ticker.run_now(self.db, task)
        self._say("no more mail arrives; the rest is fetched")
        self._until(lambda: verdict.stored_once(self.evidence())[0] is True)

    def look(self) -> None:
        """Reads the tables, redraws the chart, and pauses briefly."""
        alive = {task.id: task for task in ticker.list_tasks(self.db)}
        self.tasks = {id_: alive.get(id_, replace(task, waiting=())) for id_, task in self.tasks.items()}
        ended_before = {run.id for run in self.runs.values() if run.ended_at}
        newest = ticker.list_runs(self.db, limit=NEWEST)[::-1]
        self.runs |= {run.id: run for run in newest if run.task_id in self.tasks}
        for run in self.runs.values():
            if self.verbose and run.ended_at and run.id not in ended_before:
                at, task = chart.clock(run.ended_at, self.zero), self.tasks[run.task_id]
                self.live.console.print(f"{at}  {task.subject} {task.name} {run.outcome} {run.reason}")
        width = max(self.live.console.width, 60)
        tracks = chart.tracks(self.tasks.values(), [*self.runs.values()], self.zero, self._now(), width)
        self.live.update(Group("", *tracks, *map(Text, self.messages), ""), refresh=True)
        self.processes.check()
        if self.signals.wait(LOOK):
            raise KeyboardInterrupt
        if time.monotonic() > self.measured_at + MEASURE * self.pace:
            self.slowest = max(self.slowest, stage.measure_pace(3))
            self.measured_at = time.monotonic()

    def evidence(self) -> verdict.Evidence:
        """Returns everything recorded so far."""
        with application.sessions().begin() as session:
            rows = session.execute(select(application.Message.mailbox, application.Message.uid)).all()
        runs = [*self.runs.values()]
        failed = [run.id for run in runs if run.outcome == Outcome.FAILED and run.kind == RunKind.SCHEDULED]
        return verdict.Evidence(
            tasks=self.tasks, runs=runs, deletion=self.deletion, victim=self.victim,
            delivered=[(mailbox, uid) for mailbox in self.polls for uid in range(1, self.post.newest(mailbox) + 1)],
            retrieved=list(self.post.retrieved), stored=[(mailbox, uid) for mailbox, uid in rows],
            failed=[ticker.get_run(self.db, id_) for id_ in failed],
            whys=[ticker.why(self.db, t) for t in (self.reports[REPORTED[0]], *self.feeds)],
        )  # fmt: skip

    def _delete(self, mailbox: str) -> None:
        channel = int(self.polls[mailbox].owner_id)
        with application.sessions().begin() as session:
            session.execute(text(f"DELETE FROM {application.SCHEMA}.mail_channels WHERE id = {channel}"))
        left = [task for task in ticker.list_tasks(self.db) if task.subject == mailbox]
        self.deletion = mailbox, self._now(), len(left)
        self._say(f"{mailbox}: DELETE FROM mail_channels WHERE id = {channel}; {len(left)} tasks left")

    def _kill_a_worker(self) -> bool:
        """Kills the worker of a run that has just begun. Returns whether there was one."""
        for run in self.runs.values():
            is_young = run.started_at and self._now() - run.started_at < timedelta(seconds=1.4 * self.pace)
            if run.task_id == self.polls[CRASHED].id and not run.ended_at and is_young:
                self.victim = run.id
                self.processes.kill(in_redis("hget", f"{PREFIX}:worker:{run.worker}", "pid"))
                self.processes.start("worker-3", PROCFILE["worker"])
                self._say(f"{CRASHED}: kill -9 of the worker that runs it; another worker starts")
                return True
        return False

    def _waiting(self, mailbox: str) -> int:
        return len(self.tasks[self.reports[mailbox].id].waiting)

    def _now(self) -> datetime:
        return cast(datetime, sql.on(self.db, stage.SCHEMA)("instant", now=None)[0]["now"])

    def _say(self, line: str) -> None:
        self.messages.append(f"{chart.clock(self._now(), self.zero)}  {line}")

    def _until(self, condition: Callable[[], bool], at_least: float = 0.0) -> None:
        """Polls until the condition holds, for at most PATIENCE. The verdict names what is missing."""
        began = max(time.monotonic(), at_least)
        while (waited := time.monotonic() - began) < 0 or (waited < PATIENCE * self.slowest and not condition()):
            self.look()
