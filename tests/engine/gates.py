"""The rows of `test_what_waits`: what keeps a due task from running, and how each of these begins and ends."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

import ticker
from tests.followed import ACTIVE, Channel, put
from tests.harness import QUEUE, WORKER, Played, Taken, finish, start, start_planned
from ticker import owners
from ticker.db import sql
from ticker.engine.tick import TickOptions, tick
from ticker.read.tasks import RunRecord
from ticker.tasks.fields import Task

SECOND = timedelta(seconds=1)
CLOSES = 10  # seconds after the beginning of the play
LAST_HOURS = datetime(2100, 1, 6, 16, 59, 50, tzinfo=UTC)  # ten seconds before they end; they begin again at 17:16
TICKER = "00000000-0000-0000-0000-000000000001"


class Gate(NamedTuple):
    """How a mechanism begins and ends to keep the task from running. Without `open`, time ends it before `opens`."""

    close: Callable[["Stage"], object] = lambda stage: None
    open: Callable[["Stage"], object] = lambda stage: None
    keys: tuple[str, ...] = ()
    during: str = ""
    depths: dict[str, int] = {}  # noqa: RUF012 - of queues
    opens: float = 1000  # seconds after the beginning of the play
    prepare: Callable[["Stage"], object] = lambda stage: None


class Stage:
    """One task and one gate. Its neighbours have the same function, queue and keys, and do what closes the gate."""

    def __init__(self, play: Played, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.play, self.db, self.name, self.gate, self.patch = play, play.db, name, GATES[name], monkeypatch
        self.count, self.at_work, self.is_open = 0, list[tuple[Task, str]](), False
        self.gate.prepare(self)

    def register(self, due: float = 20, **fields: Any) -> datetime:
        """Returns when it is due."""
        if not {"cron", "at"} & fields.keys():
            first = self.play.begin + due * SECOND
            fields |= {"every": "10m", "tolerance": "1m", "box": "2m", "first": first, "during": self.gate.during}
        given = {"group": "mail", "owner": ("mail_channels", "1"), "limits": self.gate.keys, **fields}
        self.task = ticker.register(self.db, "poll", **given)
        assert self.task.next_run
        return self.task.next_run

    def close(self, seconds: float = CLOSES) -> None:
        self.play.at(seconds)
        self.gate.close(self)

    def open(self, seconds: float | None = None) -> None:
        self.play.at(self.gate.opens if seconds is None else seconds)
        self.gate.open(self)
        self.is_open = True

    def tick(self, seconds: float) -> None:
        self.play.at(seconds)
        options = TickOptions(period=30_000, depths=self.gate.depths)
        report = tick(self.play.store, self.play.queue, self.play.now, options)
        self.play.store.heartbeat(TICKER, "host", 1, self.play.now, {"left": report.left}, 30_000)

    def take(self) -> list[Taken]:
        """Takes the jobs, unless only those that close the gate wait. Returns the answers about the task."""
        pushed = any((run.task_id, run.state) == (self.task.id, "pushed") for run in self.play.runs())
        taken = self.play.take() if self.is_open or pushed or self.now().waiting else []
        return [one for one in taken if one.task_id == self.task.id]

    def turns(self, *seconds: float) -> list[Taken]:
        """A tick at each of these times, and then a worker."""
        return [taken for at in seconds for taken in (self.tick(at), self.take())[1]]

    def started_after(self, opens: float | None = None) -> list[Taken]:
        """Opens the gate. Returns what starts within a minute."""
        self.open(opens)
        at = self.play.since_begin(self.play.now)
        return [one for one in self.turns(at, at + 30, at + 60) if one.refusal is None]

    def now(self) -> Task:
        return ticker.get(self.db, self.task.id)

    def runs(self, kind: str = "scheduled") -> list[RunRecord]:
        return [run for run in self.play.runs() if (run.task_id, run.kind) == (self.task.id, kind)]

    def verdict(self, taken: list[Taken]) -> str:
        """What became of the first job. The text is empty if there was none."""
        if not taken or taken[0].refusal is None:
            return "starts" if taken else ""
        reason = taken[0].refusal
        is_dropped = any((run.outcome, run.reason) == ("dropped", reason) for run in self.play.runs())
        return f"{'dropped' if is_dropped else 'waits'}: {reason}"

    def neighbour(self) -> Task:
        self.count += 1
        fields = {"name": f"neighbour {self.count}", "limits": self.gate.keys, "first": self.play.now}
        return ticker.register(self.db, "poll", every="1d", **fields)

    def neighbour_starts(self) -> bool:
        task, token = self.neighbour(), str(uuid4())
        refusal = start(self.db, task, self.play.now, self.play.now, token=token)["refusal"]
        self.at_work += [(task, token)] * (refusal is None)
        ticker.edit(self.db, task, enabled=False)
        return refusal is None

    def runs_end(self, outcome: str = "succeeded") -> None:
        assert all(finish(self.db, task, token, outcome, self.play.now) for task, token in self.at_work)
        self.at_work.clear()


def pause_of_many(*keys: str, **scope: str) -> Gate:
    """A pause of all tasks, or of some."""
    return Gate(
        lambda stage: ticker.pause_all(stage.db, **scope, by="ann", reason="it moves"),
        lambda stage: ticker.resume_all(stage.db, **scope),
        keys,
    )


def limit_of_keys(close: Callable[[Stage], object], open_: Callable[[Stage], object], **numbers: Any) -> Gate:
    def declare(stage: Stage) -> None:
        if numbers:
            ticker.limit(stage.db, "imap.*", **numbers)

    return Gate(close, open_, ("imap.a",), prepare=declare)


def create_owner(stage: Stage) -> None:
    columns = (
        "kind text DEFAULT 'channel', enabled boolean DEFAULT true, paused boolean DEFAULT false, note text DEFAULT ''"
    )
    stage.db.execute(f"CREATE TABLE mail_channels (id bigint PRIMARY KEY, {columns})")
    stage.db.execute("INSERT INTO mail_channels (id) VALUES (1)")
    put(stage.db, owners.triggers(Channel, active_when=ACTIVE))


def use_up(stage: Stage) -> None:
    while stage.neighbour_starts():
        pass


def use_up_starts(stage: Stage) -> None:
    use_up(stage)
    stage.runs_end()


def close_key(stage: Stage, for_ms: int = 3_600_000) -> None:
    """As a run does that raises `SlowDown`."""
    assert stage.neighbour_starts()
    given = {"key": "imap.a", "run_id": stage.play.runs()[-1].id, "for_ms": for_ms, "age": 0.0, "now": stage.play.now}
    sql.on(stage.db, "ticker")("close_key", **given)
    stage.runs_end("slowed_down")


def fill_queue(stage: Stage) -> None:
    """With a job of other software, unless one of the task waits."""
    if not stage.play.redis.llen(QUEUE):
        stage.play.redis.rpush(QUEUE, "foreign")


def refuse(stage: Stage) -> None:
    """A worker did not know the function of a neighbour, whose job is also the one that is tried at this time."""
    stage.patch.setitem(WORKER, "functions", ["another"])
    task = stage.neighbour()
    assert start(stage.db, task, stage.play.now, stage.play.now)["refusal"] == "unknown_here"
    stage.tick(stage.play.since_begin(stage.play.now))
    ticker.edit(stage.db, task, enabled=False)


def run_by_hand(stage: Stage) -> None:
    """Its box is an hour."""
    [run_id] = ticker.run_now(stage.db, stage.task)
    token = str(uuid4())
    if start_planned(stage.db, stage.task, run_id, stage.play.now, token=token)["refusal"] is None:
        stage.at_work.append((stage.task, token))
        stage.db.execute("UPDATE ticker.runs SET until = until + interval '1 hour' WHERE id = %s", [run_id])
        stage.db.execute("UPDATE ticker.tasks SET running_until = running_until + interval '1 hour'")


def suspect(stage: Stage) -> None:
    """The task and a neighbour, whose job waits, are suspects of the same death."""
    given = {"names": ["poll"], "batches": [1], "concurrencies": [10], "repeatables": [False], "queues": ["polling"]}
    sql.on(stage.db, "ticker")("announce", **given)
    stage.neighbour()
    stage.db.execute("UPDATE ticker.tasks SET alone_until = '9999-12-31Z', share = 1")
    stage.tick(stage.play.since_begin(stage.play.now))


def run_neighbours(stage: Stage) -> None:
    for taken in stage.play.take():
        if taken.refusal is None and taken.task_id != stage.task.id:
            stage.play.end(taken, "succeeded")


GATES = {
    "it is disabled": Gate(
        lambda stage: ticker.edit(stage.db, stage.task, enabled=False, by="ann"),
        lambda stage: ticker.edit(stage.db, stage.task, enabled=True),
    ),
    "its inactive owner": Gate(
        lambda stage: stage.db.execute("UPDATE mail_channels SET enabled = false"),
        lambda stage: stage.db.execute("UPDATE mail_channels SET enabled = true"),
        prepare=create_owner,
    ),
    "it is paused": Gate(
        lambda stage: ticker.pause(stage.db, stage.task, by="ann", reason="it moves"),
        lambda stage: ticker.resume(stage.db, stage.task),
    ),
    "all are paused": pause_of_many(),
    "its group is paused": pause_of_many(group="mail"),
    "its function is paused": pause_of_many(function="poll"),
    "its queue is paused": pause_of_many(queue="polling"),
    "its owner type is paused": pause_of_many(owner_type="mail_channels"),
    "its key is paused": pause_of_many("imap.a", limit="imap.*"),
    "its key has no place": limit_of_keys(use_up, Stage.runs_end, concurrency=2),
    "its key has no start left": limit_of_keys(use_up_starts, lambda stage: None, rate="2/990s", burst=2),
    "a hold of its key": limit_of_keys(close_key, lambda stage: ticker.release(stage.db, "imap.a")),
    "its hours are over": Gate(
        during="9-17,17:16-23",
        opens=1600,
        prepare=lambda stage: vars(stage.play).update(begin=LAST_HOURS, now=LAST_HOURS),
    ),
    "its queue is full": Gate(
        fill_queue, lambda stage: stage.play.redis.lrem(QUEUE, 0, "foreign"), depths={"polling": 1}
    ),
    "no worker knows its function": Gate(
        refuse, lambda stage: stage.patch.setitem(WORKER, "functions", ["poll"]), opens=500
    ),
    "a run of it is at work": Gate(run_by_hand, Stage.runs_end),
    "it is not its turn": Gate(suspect, run_neighbours, opens=500),
}
