"""What the public door does, whatever driver stands behind it. `db` is the connection that the tests look with."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

import ticker
from tests.drivers.doors import DOORS, Door
from tests.factories import a_run
from ticker import owners
from ticker.model import Outcome

pytestmark = pytest.mark.slow

ODD = '50% off, $1 for "it\'s" \\ {braces} ü'  # as a value, none of it is SQL's, a driver's or a template's
VALUES = {"a": [1, 2.5, None, True, {"ü": ODD}], "long": "x" * 5_000}
NINE = datetime(2026, 1, 5, 9, tzinfo=UTC)


QUICK = ("psycopg2", "asyncpg")  # the others need half a minute


@pytest.fixture(params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in DOORS])
def door(request: pytest.FixtureRequest, environ: dict[str, str], database_url: str) -> Door:
    return DOORS[request.param](database_url)


def test_a_task_is_registered_once_and_changed_by_what_is_new(door: Door, db: Any) -> None:
    said = {"every": "1m", "kwargs": VALUES, "metadata": {"plan": ODD}, "description": ODD, "retries": 1}
    task = door("register", "poll", name=ODD, **said)
    assert (task.kwargs, task.metadata, task.description) == (VALUES, {"plan": ODD}, ODD)
    assert door("register", "poll", name=ODD, **said).id == task.id
    changed = door("register", "poll", name=ODD, **said | {"every": "5m"}, by=ODD[:20])
    assert (changed.id, changed.every_ms, changed.kwargs) == (task.id, 300_000, VALUES)
    assert changed == ticker.get(db, task.id) == door("get", ODD)
    assert [line.event.by for line in ticker.journal(db) if line.event] == [ODD[:20]]


SCHEDULES: list[dict[str, Any]] = [
    {"every": "1h", "spread": True}, {"every": "1h", "starts": NINE + timedelta(days=9_000)}, {"cron": "0 9 * * *"},
    {"cron": "0 9 * * *", "zone": "Europe/Berlin", "spread": True, "within": "1h"}, {"calendar": "Mon *-*-* 09:00"},
    {"at": "2099-01-01T00:00:00Z"}, {"every": "1d", "first": NINE + timedelta(days=9_000), "max_runs": 3},
]  # fmt: skip


def test_each_schedule_gets_its_first_time_in_utc(door: Door, db: Any) -> None:
    for schedule in SCHEDULES:
        task = door("register", "poll", name=str(schedule), **schedule)
        assert task == ticker.get(db, task) == door("get", task)
        assert {time.tzinfo for time in times(task)} == {UTC}, schedule


def test_an_operator_edits_a_task(door: Door, db: Any) -> None:
    task = door("register", "poll", every="1m", kwargs={"a": 1})
    door("edit", task, kwargs={"a": 2}, cron="*/5 * * * *", enabled=False, by="anna")
    assert door("edit", "poll", enabled=True).kwargs == {"a": 2}
    assert door("register", "poll", every="1m", kwargs={"a": 1}).kwargs == {"a": 2}
    with pytest.raises(ticker.BadInput):
        door("edit", task, every="0s")
    with pytest.raises(ticker.UnknownTask):
        door("edit", 99, every="1m")
    assert ticker.get(db, task).enabled


@pytest.mark.parametrize("schedule", [{"every": "1m"}, {"cron": "* * * * *"}], ids=str)
def test_a_task_is_paused_and_resumed(door: Door, db: Any, schedule: dict[str, Any]) -> None:
    task = door("register", "poll", **schedule)
    [paused] = door("pause", task, by="anna", reason=ODD, until=datetime.now(UTC) + timedelta(hours=1))
    assert (paused.paused_by, paused.paused_reason) == ("anna", ODD)
    db.execute("UPDATE ticker.tasks SET next_run = now() - interval '1 hour'")
    [resumed] = door("resume", task, by="anna")
    assert resumed == ticker.get(db, task) and not resumed.paused_by
    assert door("resume", task) == []


def test_manual_runs_are_planned_and_found(door: Door, db: Any) -> None:
    task = door("register", "poll", every="1m")
    [run_id] = door("run_now", task)
    run = door("get_run", run_id)
    assert (run.run.state, run.run.kind) == ("planned", "manual") and run == ticker.get_run(db, run_id)
    assert [found.id for found in door("list_runs", task=task)] == [run_id]
    assert door("list_runs", outcome=Outcome.FAILED) == []
    with pytest.raises(ticker.UnknownRun):
        door("get_run", 99)


def test_deleted_tasks_are_returned(door: Door, db: Any) -> None:
    task = door("register", "poll", every="1m")
    assert [gone.id for gone in door("unregister", "poll", by="anna")] == [task.id]
    assert door("unregister", "poll") == [] and ticker.list_tasks(db) == []


def test_an_owner_has_just_the_tasks_that_are_wanted(door: Door, followed: str, db: Any) -> None:
    door("register", "poll", owner=("mail_channels", "1"), every="1m")
    tasks = door("reconcile", "mail_channels:1", [{"function": "sum", "cron": "0 9 * * *", "kwargs": VALUES}])
    assert tasks == ticker.list_tasks(db) and [task.name for task in tasks] == ["sum"]


def test_nothing_is_written_where_an_operation_fails_halfway(door: Door, followed: str, db: Any) -> None:
    task = door("register", "poll", owner="mail_channels:1", every="1m")
    db.execute("ALTER TABLE mail_channels DISABLE TRIGGER ALL")
    db.execute("DELETE FROM mail_channels")
    with pytest.raises(ticker.UnknownOwner):
        door("reconcile", "mail_channels:1", [{"function": "sum", "every": "1m"}])
    assert ticker.list_tasks(db) == [task]


def test_default_tasks_are_made_for_owners_that_exist(door: Door, followed: str, db: Any) -> None:
    wanted = [
        ticker.Wanted(function="poll", every="1m", kwargs={"a": ODD}),
        ticker.Wanted(function="sum", cron="0 9 * * *"),
    ]
    assert door("defaults", followed, wanted, existing=True) == 4
    db.execute("INSERT INTO mail_channels VALUES (3, true)")
    assert [task.kwargs for task in door("list_tasks", owner="mail_channels:3")] == [{"a": ODD}, {}]


def test_tasks_are_listed_by_all_that_is_asked(door: Door, db: Any) -> None:
    task = door("register", "poll", owner="feeds:7", every="1m", group="g", submitter="s", subject="mail")
    for number in range(3):
        door("register", "other", name=f"other {number}", every="1m", kwargs={"n": number})
    asked = {"owner": "feeds:7", "owner_type": "feeds", "name": "poll", "function": "poll", "queue": task.queue, "group": "g",
             "submitter": "s", "search": "FEEDS:7"}  # fmt: skip
    assert door("list_tasks", **asked) == ticker.list_tasks(db, owner_type="feeds") == [task]
    assert [len(door("list_tasks", after=task.id, limit=limit)) for limit in (1, 2, 10)] == [1, 2, 3]
    for state in ("failing", "late", "paused", "inactive", "running", "waiting"):
        assert door("list_tasks", state=state) == door("list_tasks", state=state, owner="feeds:7") == []


def test_owners_are_listed_with_their_troubles(door: Door, db: Any) -> None:
    door("register", "poll", owner="feeds:7", every="1m")
    door("register", "poll", owner="feeds:8", every="1m")
    door("pause", owner="feeds:8")
    first, second = door("list_owners", owner_type="feeds")
    assert (first.owner, second.owner, second.paused) == ("feeds:7", "feeds:8", 1)
    assert door("list_owners", paused=True) == [second] == door("list_owners", after=first)
    assert [first, second] == ticker.list_owners(db)


def test_limits_are_declared_listed_and_removed(door: Door, db: Any) -> None:
    assert door("register", "poll", every="1m", limits=["a", "b"]).limits == ("a", "b")
    made = door("limit", "a*", concurrency=2, rate="10/1s", by="anna")
    [listed] = door("list_limits")
    assert (listed.key, listed.limited_by, listed.concurrency, listed.tokens, listed.waiting) == ("a", "a*", 2, 10, 1)
    assert door("unlimit", "a*") == made and door("unlimit", "a*") is None and door("list_limits") == []


def test_json_is_what_was_written(door: Door, db: Any) -> None:
    for value in (None, "5", "abc", '"abc"', 5, [1, "2"], {"a": ODD}, "null", True):
        task = door("register", "poll", name=repr(value), every="1m")
        db.execute("UPDATE ticker.tasks SET cursor = %s", [Jsonb(value)])
        run = a_run(db, task, result=Jsonb(value))
        assert door("get", task).cursor == value
        assert door("list_runs", task=task)[0].result == door("get_run", run).run.result == value


def test_a_task_is_explained(door: Door, db: Any) -> None:
    task = door("register", "poll", every="1m", retries=1)
    for minute in range(3):
        a_run(db, task, occurrence=NINE + timedelta(minutes=minute), outcome="failed", retried=minute == 1)
    found = door("why", task, limit=2)
    assert [line.what for line in found.lines if line.run] == ["failed", "failed"]
    assert said(found) == said(ticker.why(db, task, limit=2))
    assert next(line.due for line in door("why", task, at=NINE, limit=1).lines if line.run) == NINE
    with pytest.raises(ticker.UnknownTask):
        door("why", 99)


def test_what_ended_is_told_and_drops_are_counted(door: Door, db: Any) -> None:
    task = door("register", "poll", owner="feeds:7", every="1m")
    a_run(db, task, occurrence=NINE)
    a_run(db, task, occurrence=NINE + timedelta(minutes=1), outcome="dropped", reason="too_early", started_at=None)
    door("pause", task)
    asked: list[dict[str, Any]] = [
        {}, {"task": task}, {"owner": "feeds:7"}, {"owner_type": "feeds"}, {"outcome": "succeeded"}, {"reason": "too_early"},
        {"task": "poll", "owner": "feeds:7", "since": NINE, "limit": 1},
    ]  # fmt: skip
    for wanted in asked:
        assert list(map(str, door("journal", **wanted))) == list(map(str, ticker.journal(db, **wanted))) != []
    for by in ("reason", "owner", "task", "function"):
        assert door("drops", by=by, since=NINE) == ticker.drops(db, by=by, since=NINE) != []


def said(why: Any) -> list[str]:
    return [*map(str, why.lines)]


def times(value: Any) -> Iterator[datetime]:
    for field in fields(value) if is_dataclass(value) else ():
        found = getattr(value, field.name)
        yield from (one for one in (found if isinstance(found, tuple) else [found]) if isinstance(one, datetime))


@pytest.fixture
def followed(db: Any) -> str:
    """The table of owners 1 and 2."""
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY, enabled bool NOT NULL DEFAULT true)")
    db.execute("\n".join(owners.triggers("mail_channels", active_when="enabled")))
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")
    return "mail_channels"
