"""`ticker demo`: polls mailboxes on real servers with real workers, kills a worker, and checks what was promised."""

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

import ticker
from ticker import clock, embedded, migrations
from ticker.db import connections
from ticker.demo import application, evidence
from ticker.demo.evidence import PROMISES, Evidence
from ticker.signals import Noted, noted
from wrappers.sandbox import subreaper

ABOUT = (
    "You are about to see five mailboxes polled by real workers: one has too much mail, one hangs and is killed, "
    "one is deleted, a worker dies; then {promises} promises are checked."
)
VERDICTS = {True: ("ok", "green"), None: ("not seen", "yellow"), False: ("FAILED", "bold red")}
WORKER = "ticker worker --tasks ticker.demo.application"
UNATTENDED = "slow"  # a queue that has no worker at first
MAILS = {"support": 3, "sales": 3, "archive": 50}  # messages of the mailboxes that are polled to the end
LOOK, PATIENCE = 0.2, 60.0  # seconds between two queries; for a step that usually takes one to ten


def demo(web: bool = False) -> int:
    """Plays until all promises have been seen. With `web`, serves the page, and continues until Ctrl-C.

    Returns an exit code: 0 if all promises held, 1 if one did not, 130 after Ctrl-C.
    """
    subreaper.require_linux()  # for its workers
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())
    console.print(ABOUT.format(promises=len(PROMISES)), style="bold")
    with noted((SIGINT, SIGTERM, SIGHUP)) as signals:
        try:
            with stage(console, signals, web) as scene:
                scene.play()
                held = judge(console, scene.seen)
                while web:
                    scene.processes.wait()
                return 0 if held else 1
        except KeyboardInterrupt:  # raised when a signal has been noted
            console.print("interrupted; everything was stopped and removed")
            return 130


@contextmanager
def stage(console: Console, signals: Noted, web: bool) -> Iterator["Scene"]:
    """Starts servers and processes. Stops and removes everything afterwards."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TICKER_")}
    with (
        TemporaryDirectory(prefix="ticker-demo-") as folder,
        embedded.servers() as servers,
        patch.dict(os.environ, environ | servers.environ | {"TICKER_TICK": "0.5s"}, clear=True),
        closing(Processes(Path(folder), signals)) as processes,
    ):
        migrations.upgrade(servers.database_url)
        application.create()
        processes.start("ticker", "ticker run")
        for name in ("worker-1", "worker-2"):
            processes.start(name, f"{WORKER} --name {name} polling")
        for name in ("worker-1", "worker-2"):
            processes.wait_for(name, "Listening")
        if web:
            processes.start("web", "ticker web --port 0")
            page = processes.wait_for("web", r"http://\S+")
            variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in servers.environ.items())
            console.print(f"until Ctrl-C: {page} or, in another terminal, export {variables}; ticker list")
        with connections.connect(servers.database_url) as db:
            yield Scene(db, processes, Live(console=console, auto_refresh=False))


def judge(console: Console, seen: Evidence) -> bool:
    """Prints what `ticker why` says, and each promise. Returns whether all have held."""
    console.print("\n".join([f"$ ticker why {seen.why[0].task_id}", *map(str, seen.why[:4]), ""]))
    findings = {claim: check(seen) for claim, check in PROMISES.items()}
    for claim, (ok, detail) in findings.items():
        status, style = VERDICTS[ok]
        console.print(f"{status:10}  {claim}: {detail}", style=style)
    held = sum(ok is True for ok, _ in findings.values())
    good = held == len(PROMISES)
    console.print(f"\n{held} of {len(PROMISES)} promises held", style="bold green" if good else "bold red")
    return good


class Scene:
    """The steps of the demo. Each step waits for an event, never for a time."""

    def __init__(self, db: Any, processes: "Processes", live: Live) -> None:
        self.db, self.processes, self.live = db, processes, live
        with application.sessions().begin() as session:
            add = partial(application.add, session)
            tasks = [
                add("support", MAILS["support"], 0, every="3s"),
                add("sales", MAILS["sales"], 0, every="5s", queue=UNATTENDED),
                add("shop", 3, 0, every="5s", queue=UNATTENDED),
                add("archive", MAILS["archive"], 0.1, every="5s"),
                add("legacy", 1, 3600, "mail.fetch_stubbornly", every="5s", box="1s"),
            ]
        self.zero, self.sentences = tasks[0].created_at, [""]
        delivered = [(mailbox, uid + 1) for mailbox, count in MAILS.items() for uid in range(count)]
        self.seen = Evidence({task.id: task for task in tasks}, delivered=delivered)

    def play(self) -> None:
        with self.live:
            self.until(self.kill_a_worker)
            self.until(lambda: len(self.task("sales").waiting) > 1)
            statement = f"DELETE FROM public.demo_mail_channels WHERE id = {self.task('shop').owner_id}"
            self.db.run(statement, [])
            left = sum(task.subject == "shop" for task in ticker.list_tasks(self.db))
            self.seen = replace(self.seen, deletion=("shop", left))
            self.say(f"shop: {statement}; {left} tasks left")
            self.processes.start("worker-4", f"{WORKER} {UNATTENDED}")
            self.say(f"sales: {len(self.task('sales').waiting)} jobs wait in a queue without a worker; one starts now")
            self.until(lambda: all(check(self.seen)[0] for check in PROMISES.values()))

    def until(self, condition: Callable[[], bool]) -> None:
        """Looks until the condition holds, for at most PATIENCE. The verdict names what is missing."""
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE and not condition():
            self.look()

    def look(self) -> None:
        """Reads the tables, redraws the chart, and pauses briefly. Deleted tasks are kept."""
        alive = {task.id: task for task in ticker.list_tasks(self.db)}
        tasks = {id_: alive.get(id_, replace(task, waiting=())) for id_, task in self.seen.tasks.items()}
        runs = [run for run in ticker.list_runs(self.db, limit=1000)[::-1] if run.task_id in tasks]
        why = ticker.why(self.db, self.task("sales").id).lines
        stored = [
            (row["mailbox"], row["uid"]) for row in self.db.run("SELECT mailbox, uid FROM public.demo_messages", [])
        ]
        self.seen = replace(self.seen, tasks=tasks, runs=runs, why=why, stored=stored)
        chart = evidence.chart(self.seen, self.zero, clock.python_utc(), max(self.live.console.width, 60))
        self.live.update(Group("", *chart, *map(Text, self.sentences), ""), refresh=True)
        self.processes.wait()

    def kill_a_worker(self) -> bool:
        """Kills the worker of a run of the archive that has just begun. Returns whether there was one."""
        for run in self.seen.runs:
            if run.task_id == self.task("archive").id and run.started_at and not run.ended_at:
                self.processes.kill(run.worker)
                self.processes.start("worker-3", f"{WORKER} polling")
                self.seen = replace(self.seen, victim=run.id)
                self.say("archive: kill -9 of the worker that runs it; another worker starts")
                return True
        return False

    def task(self, mailbox: str) -> ticker.Task:
        return next(task for task in self.seen.tasks.values() if task.subject == mailbox)

    def say(self, line: str) -> None:
        self.sentences.append(f"{evidence.clock(clock.python_utc(), self.zero)}  {line}")


class Processes:
    """Commands, each with its own log. `close` kills them and all of their children."""

    def __init__(self, logs: Path, signals: Noted) -> None:
        self._logs, self._signals = logs, signals
        self._running: dict[str, Popen[bytes]] = {}
        subreaper.become_subreaper()  # the children of a killed process become ours
        self._others = subreaper.children()

    def start(self, name: str, command: str) -> None:
        """Starts the command in a session of its own, which Ctrl-C does not reach."""
        with (self._logs / name).open("ab") as log:
            self._running[name] = Popen(
                [sys.executable, "-m", *command.split()], stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, worker: str) -> None:
        """Kills a worker with SIGKILL. Its supervisor, the process that was started, ends after it."""
        supervisor = self._running.pop(worker)
        for pid in subreaper.children(supervisor.pid) or {supervisor.pid}:
            os.kill(pid, SIGKILL)

    def wait(self) -> None:
        """Pauses briefly. Raises TickerError if a command ended by itself, and KeyboardInterrupt after a signal."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                last = ((self._logs / name).read_text(errors="replace").splitlines() or [""])[-1]
                raise ticker.TickerError(f"{name} ended unexpectedly with exit code {code}: {last}")
        if self._signals.wait(LOOK):
            raise KeyboardInterrupt

    def wait_for(self, name: str, pattern: str) -> str:
        """Waits until the command's log matches the pattern. Returns the match."""
        while not (match := re.search(pattern, (self._logs / name).read_text(errors="replace"))):
            self.wait()
        return match[0]

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
        subreaper.kill_new_children(self._others, patience=30)
