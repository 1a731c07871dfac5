"""What happens: the channels are registered, polled, and one after the other meets its fate."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from sqlalchemy import select, text

import ticker
from ticker.db import sql
from ticker.demo import application, live, verdict
from ticker.demo.cast import CAST, DELETED, REPORTED, UNATTENDED
from ticker.demo.chart import clock
from ticker.demo.evidence import Deletion, Evidence
from ticker.demo.mailbox import read_deliveries
from ticker.demo.pop3 import read_log
from ticker.demo.post import Post
from ticker.demo.processes import Processes, procfile
from ticker.demo.stage import TICKERS_SCHEMA, Interruption
from ticker.demo.watch import Watch
from ticker.model import Outcome, RunKind, Task
from ticker.read.tasks import FullRun

LOOK = 0.2  # seconds between two looks at the tables
PATIENCE = 12.0  # seconds for a step that usually takes one to five


class Scene:
    """The play. Each step waits for what it needs to see, never for a time."""

    def __init__(
        self, database: Any, post: Post, processes: Processes, show: live.Show, interruption: Interruption
    ) -> None:
        self._db, self._post, self._processes, self._show = database, post, processes, show
        self._interruption = interruption
        self._deletion: Deletion | None = None
        self.polls, self.reports, self.feeds = register_all(post.port)
        self.watch = Watch(database, [*self.polls.values(), *self.reports.values(), *self.feeds])
        self._failed: dict[int, FullRun] = {}
        self.zero = min(task.created_at for task in self.watch.tasks.values())

    def play(self, ends_at: float) -> None:
        """Until all that was promised has been seen; also until `ends_at`, a reading of time.monotonic()."""
        support, shop = (self.reports[mailbox] for mailbox in REPORTED)
        with self._post.arriving():
            self._until(lambda: self.watch.waiting(shop) > 0 and self._has_worked(self.polls[DELETED]))
            self._delete(DELETED)
            self._until(lambda: self.watch.waiting(support) > 1)
            self._start_late_worker(self.watch.waiting(support))
            self._until(lambda: verdict.seen(self.evidence()), at_least=ends_at)

    def fetch_the_rest(self) -> None:
        """No more mail. The slow mailboxes are fast now, and each one is polled at once."""
        self._post.cure()
        for mailbox, task in self.polls.items():
            if mailbox != DELETED:
                ticker.run_now(self._db, task)
        self._say("no more mail; what is left is fetched")
        self._until(lambda: verdict.settled(self.evidence()))

    def go_on(self) -> None:
        """Mail arrives again, until a signal ends it (Interrupted)."""
        with self._post.arriving():
            while True:
                self.look()

    def look(self) -> None:
        """Shows what is new, and pauses for a moment."""
        for run in self.watch.look():
            self._show.say(live.ended(run, self.watch.tasks[run.task_id], self.zero))
        self._show.refresh(self.watch, self.now(), self.zero)
        self._processes.check()
        self._interruption.pause(LOOK)

    def evidence(self) -> Evidence:
        """All that is recorded by now."""
        with application.sessions().begin() as session:
            stored = session.execute(select(application.Message.mailbox, application.Message.uid)).all()
        return Evidence(
            tasks=list(self.watch.tasks.values()),
            runs=self.watch.runs,
            deletion=self._deletion,
            deliveries=list(read_deliveries(self._post.deliveries)),
            retrievals=read_log(self._post.retrievals),
            stored=[(mailbox, uid) for mailbox, uid in stored],
            failed=self._failures(),
            whys={task.id: ticker.why(self._db, task) for task in self.questions()},
        )

    def questions(self) -> list[Task]:
        """Tasks of which one would ask why."""
        return [self.reports[REPORTED[0]], *self.feeds]

    def _failures(self) -> dict[int, FullRun]:
        """The feeds' failed runs, each read until there is nothing more to come of it."""
        for task in self.feeds:
            for run in self.watch.runs_of(task):
                if run.outcome == Outcome.FAILED and run.kind == RunKind.SCHEDULED and run.id not in self._failed:
                    found = ticker.get_run(self._db, run.id)
                    if found.pieces or any(attempt.outcome == Outcome.SUCCEEDED for attempt in found.attempts):
                        self._failed[run.id] = found
        return self._failed

    def now(self) -> datetime:
        """By the one clock."""
        return cast(datetime, sql.on(self._db, TICKERS_SCHEMA)("instant", now=None)[0]["now"])

    def _delete(self, mailbox: str) -> None:
        channel = int(self.polls[mailbox].owner_id)
        with application.sessions().begin() as session:
            session.execute(text(f"DELETE FROM {application.SCHEMA}.mail_channels WHERE id = {channel}"))
        left = [task for task in ticker.list_tasks(self._db) if task.subject == mailbox]
        self._deletion = Deletion(mailbox, self.now(), len(left))
        self._say(f"{mailbox:8} DELETE FROM mail_channels WHERE id = {channel}: {len(left)} tasks left")

    def _start_late_worker(self, waiting: int) -> None:
        command = procfile()["worker"].rpartition(" ")[0]
        self._processes.start("late-worker", f"{command} {UNATTENDED}")
        self._say(f"{waiting} jobs of one task wait in the queue {UNATTENDED}, which has no worker; one starts now")

    def _has_worked(self, task: Task) -> bool:
        return any(run.outcome == Outcome.SUCCEEDED for run in self.watch.runs_of(task))

    def _say(self, line: str) -> None:
        self._show.say(f"{clock(self.now(), self.zero)}  {line}")

    def _until(self, condition: Callable[[], bool], at_least: float = 0.0) -> None:
        """Until it is so, but no longer than PATIENCE (the verdict says what is missing); until `at_least` in any case."""
        give_up = max(time.monotonic(), at_least) + PATIENCE
        while (now := time.monotonic()) < at_least or (now < give_up and not condition()):
            self.look()


def register_all(port: int) -> tuple[dict[str, Task], dict[str, Task], list[Task]]:
    """All tasks, in one transaction: those that poll and those that report, by mailbox; and those of the feeds."""
    polls, reports = {}, {}
    with application.sessions().begin() as session:
        for part in CAST:
            channel, polls[part.mailbox] = application.add_channel(
                session, "127.0.0.1", port, part.mailbox,
                function=part.function, every=part.every, tolerance=part.tolerance, box=part.box,
            )  # fmt: skip
            if part.mailbox in REPORTED:
                reports[part.mailbox] = ticker.register(
                    session, "mail.report", every="5s", tolerance="2.5s", box="0.8s", queue=UNATTENDED,
                    owner=channel, kwargs={"channel_id": channel.id}, subject=part.mailbox,
                )  # fmt: skip
        feeds = application.add_feeds(session)
    return polls, reports, feeds
