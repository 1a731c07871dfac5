"""`register_many` does for each task what `register` does, and writes all of them or none."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

import ticker
from tests.doubles import NOW
from ticker import BadInput, UnknownOwner, aio, clock, owners

OF_ITS_OWN = ("id", "guid", "owner_id", "created_at", "updated_at", "phase_ms")
KINDS = [
    {"function": "fetch", "every": "1m"},
    {"function": "fetch", "name": "short", "every": 10, "subject": "ann@example.org", "kwargs": {"limits": ["%", "\\"]}},
    {"function": "fetch", "name": "elastic", "every": "1m..30m", "limits": ["imap.example.org"], "retries": 2},
    {"function": "fetch", "name": "hours", "every": "5m", "during": "9-17 mon-fri", "zone": "Europe/Berlin", "dead_man": 3},
    {"function": "fetch", "name": "later", "every": "1h", "first": NOW + timedelta(hours=5), "metadata": {"a": None}},
    {"function": "fetch", "name": "bounds", "every": "1h", "starts": "2027-01-01T09:00:00Z", "ends": "2028-01-01T09:00:00Z"},
    {"function": "report", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "catch_up": "none", "description": "daily"},
    {"function": "sweep", "calendar": "Mon..Fri 09:00", "queue": "slow", "box": "20m"},
    {"function": "once", "at": "2027-01-31T09:00:00Z", "remove": True, "limits": []},
]  # fmt: skip


@pytest.fixture
def owned(db):
    db.execute("CREATE TABLE mail_channels (id bigint PRIMARY KEY, enabled boolean NOT NULL DEFAULT true)")
    for statement in owners.triggers("mail_channels", key="id", active_when="enabled"):
        db.execute(statement)
    db.execute("INSERT INTO mail_channels SELECT n, n <> 2 FROM generate_series(1, 5) n")
    return db


def definition(task):
    """What does not depend on the owner: within its hours, a task is due at a point of its own."""
    own = {*OF_ITS_OWN, "next_run"} if task.during else OF_ITS_OWN
    return {name: getattr(task, name) for name in task.__slots__ if name not in own}


@pytest.mark.parametrize("item", KINDS, ids=lambda item: item.get("name", item["function"]))
def test_a_task_is_as_register_makes_it(item, owned):
    db = owned
    with clock.use(lambda: NOW):
        one = ticker.register(db, **item, owner="mail_channels:1")
        done = ticker.register_many(db, [{**item, "owner": f"mail_channels:{n}"} for n in (3, 4)])
    assert (done.added, done.changed, done.warnings) == (2, 0, one.warnings)
    for id_ in done.ids:
        assert definition(ticker.get(db, id_)) == definition(ticker.get(db, one))
    registered = db.execute("SELECT DISTINCT registered::text, alarm_at FROM ticker.tasks").fetchall()
    assert len(registered) == 1


def test_tasks_that_spread_are_due_in_their_phases(db):
    window = {"function": "report", "cron": "0 9 * * *", "spread": True, "within": "2h"}
    begin = NOW + timedelta(days=3)
    hourly = {"function": "fetch", "every": "1h", "spread": True}
    items = [hourly, {**hourly, "name": "later", "starts": begin}, {**hourly, "name": "first", "first": begin}, window]
    with clock.use(lambda: NOW):
        done = ticker.register_many(db, [{**item, "owner": f"boxes:{n}"} for n in range(5) for item in items])
        for task in [ticker.get(db, id_) for id_ in done.ids]:
            ticker.unregister(db, task.id)
            item = next(item for item in items if item.get("name", item["function"]) == task.name)
            again = ticker.register(db, **item, owner=(task.owner_type, task.owner_id))
            assert again.next_run == task.next_run
            if task.name == "first":
                assert task.next_run == begin
            elif task.name != "report":
                assert round(task.next_run.timestamp() * 1000) % task.every_ms == task.phase_ms
                assert timedelta(0) <= task.next_run - (task.starts_at or NOW) < timedelta(hours=1)
    assert len(done.ids) == 20


def test_a_task_that_spreads_is_due_at_its_end_if_its_phase_comes_later(db):
    ends = NOW + timedelta(minutes=20)
    item = {"function": "fetch", "every": "1h", "spread": True, "ends": ends}
    with clock.use(lambda: NOW):
        done = ticker.register_many(db, [{**item, "owner": f"boxes:{n}"} for n in range(20)])
        tasks = [ticker.get(db, id_) for id_ in done.ids]
        assert {task.next_run == ends for task in tasks} == {True, False}
        assert all(NOW <= task.next_run <= ends for task in tasks)
        for task in tasks:
            edited = ticker.edit(db, task.id, every="2h")
            assert NOW <= edited.next_run <= ends


def test_again_it_writes_only_what_has_changed_and_leaves_what_an_operator_has_changed(db):
    items = [{"function": "fetch", "every": "1m", "owner": f"boxes:{n}"} for n in range(5)]
    first = ticker.register_many(db, items)
    ticker.edit(db, first.ids[0], every="3m")
    ticker.pause(db, first.ids[1])
    assert ticker.register_many(db, items).changed == 0
    assert ticker.get(db, first.ids[0]).every_ms == 180_000
    items[2]["every"] = "2m"
    items.append({"function": "fetch", "every": "1m", "owner": "boxes:9"})
    second = ticker.register_many(db, items[::-1], by="deploy")
    assert (second.added, second.changed) == (1, 1)
    assert second.ids[::-1][:5] == first.ids
    assert [ticker.get(db, id_).every_ms for id_ in first.ids[:3]] == [180_000, 60_000, 120_000]
    events = db.execute("SELECT task_id, by FROM ticker.events WHERE what = 'edited' ORDER BY id").fetchall()
    assert events[1:] == [(first.ids[2], "deploy")]


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"function": "fetch", "every": "1 fortnight"}, "tasks[1] (fetch) every"),
        ({"function": "fetch", "every": "1m", "kwargs": 5}, "tasks[1] (fetch) kwargs"),
        ({"function": "fetch", "every": "1m", "tolerance": "50s"}, "tasks[1] (fetch) tolerance"),
        ({"function": "fetch", "every": "1m", "evry": 5}, "tasks[1] (fetch): 'evry'"),
        ({"function": "fetch", "every": "1m", "owner": ("boxes", "")}, "tasks[1] (fetch) owner_id"),
        ({"function": "fetch", "every": "1m", "first": "soon"}, "tasks[1] (fetch) first"),
        ({"every": "1m"}, "tasks[1] function"),
        ("fetch", "tasks[1]: 'fetch'"),
        ({"function": "fetch", "every": "1m"}, "tasks: 'fetch' is the name"),
    ],
)
def test_an_error_names_the_item_and_nothing_is_written(item, problem, db):
    with pytest.raises(BadInput) as raised:
        ticker.register_many(db, [{"function": "fetch", "every": "1m"}, item])
    assert str(raised.value).startswith(problem)
    assert ticker.list_tasks(db) == []


def test_an_owner_that_is_gone_raises_and_nothing_is_written(owned):
    items = [{"function": "fetch", "every": "1m", "owner": f"mail_channels:{n}"} for n in (1, 2, 77)]
    with pytest.raises(UnknownOwner, match="mail_channels with the key 77"):
        ticker.register_many(owned, items)
    assert ticker.list_tasks(owned) == []
    ticker.register_many(owned, items[:2])
    assert [task.owner_active for task in ticker.list_tasks(owned)] == [True, False]


def test_a_warning_is_told_once(db):
    done = ticker.register_many(db, [{"function": "fetch", "every": "45s", "name": str(n)} for n in range(9)])
    assert done.warnings == ticker.get(db, done.ids[0]).warnings != ()


@pytest.mark.slow
def test_more_than_a_thousand_and_none(db):
    done = ticker.register_many(
        db, ({"function": "fetch", "every": "1m", "owner": ("boxes", str(n))} for n in range(2_500))
    )
    assert (done.added, len(set(done.ids))) == (2_500, 2_500)
    assert ticker.register_many(db, []).ids == []


@pytest.mark.slow
def test_two_processes_that_register_the_same_tasks_at_once_register_each_once(db, environ):
    items = [{"function": "fetch", "every": "1m", "owner": f"boxes:{n}"} for n in range(300)]

    async def one(order):
        async with await psycopg.AsyncConnection.connect(environ["DATABASE_URL"]) as own:
            return await aio.register_many(own, items[::order])

    async def both():
        return await asyncio.gather(one(1), one(-1))

    one_, two = asyncio.run(both())
    assert one_.ids == two.ids[::-1]
    assert one_.added + two.added == 300 and one_.changed + two.changed == 0
