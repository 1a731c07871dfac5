"""Late tasks: due and not started, wherever they wait. Every screen gives the same number."""

import re
from datetime import timedelta
from threading import Event

import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import command
from tests.sentences import sentence
from ticker import settings
from ticker.daemon.tick_job import TickJob
from ticker.db import steps
from ticker.metrics import standing
from ticker.read import formatting, health, overview, tasks
from ticker.web import application

AGO = "clock_timestamp() - interval '{}'"
NOT_DUE = "next_run = clock_timestamp() + interval '1 m'"
WAITS = "waiting = ARRAY[clock_timestamp() - interval '{}']"
IN_QUEUE = f"{NOT_DUE}, {WAITS}"


@pytest.fixture
def poll(environ, db):
    return ticker.register(db, "poll", every="1m", tolerance="6s", owner="channels:5")


def test_a_short_list_of_many_late_tasks_is_that_of_the_first_ones(environ, db, monkeypatch):
    """All that are late are counted, but only so many are sorted by when they were resumed."""
    monkeypatch.setattr(overview, "LATE_READ", 3)
    for number in range(1, 8):
        ticker.register(db, "poll", owner=f"channels:{number}", every="1m")
    db.execute(
        f"UPDATE ticker.tasks SET next_run = {AGO.format('1 h')} + id * interval '1 s',"
        f" resumed_at = CASE WHEN id = 1 THEN {AGO.format('5 min')} END"
    )
    seen = overview.overview(db, limit=2)
    assert ([task.id for task in seen.late], seen.counts.late) == ([2, 3], 7)
    assert [task.id for task in overview.overview(db, limit=7).late] == [2, 3, 4, 5, 6, 7, 1]


def test_the_first_screen_counts_late_tasks_once(environ, db, poll, monkeypatch):
    asked = []
    monkeypatch.setattr(overview, "late", lambda db: asked.append(db) or 1)
    assert health.look(settings.current()).late == 1 and len(asked) == 1
    with TestClient(application(trusted=True), base_url="http://localhost") as client:
        assert client.get("/").status_code == client.get("/processes").status_code == 200
    assert len(asked) == 1


def numbers(db):
    """What each screen says, in the order of the document."""
    page = overview.overview(db)
    [owner] = ticker.list_owners(db)
    return [
        page.counts.late, len(page.late), owner.late, len(ticker.list_owners(db, late=True)), len(ticker.list_tasks(db, state="late")),
        health.look(settings.current()).late, int(steps.run(db, standing.tasks())["ticker_tasks_late"][()]),
        sum(tasks.late_since(task, page.now) is not None for task in ticker.list_tasks(db)),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "late"),
    [
        (f"next_run = {AGO.format('30 s')}", 0),
        (f"next_run = {AGO.format('40 s')}", 1),
        (f"next_run = {AGO.format('40 s')}, resumed_at = {AGO.format('10 s')}", 0),
        (f"next_run = {AGO.format('40 s')}, paused_by = 'ann'", 0),
        (IN_QUEUE.format("30 s"), 0),
        (IN_QUEUE.format("40 s"), 1),
        (IN_QUEUE.format("40 s") + ", enabled = false", 0),
        (IN_QUEUE.format("40 s") + ", limits = '{a}'", 1),
        (WAITS.format("5 m") + f", next_run = {AGO.format('4 m')}", 1),
    ],
    ids=[
        "just due", "due", "resumed", "paused", "just pushed", "in the queue", "disabled", "limited and in the queue", "both",
    ],
)  # fmt: skip
def test_each_screen_counts_what_is_due_and_has_not_started(poll, db, change, late):
    db.execute(f"UPDATE ticker.tasks SET {change}")
    assert numbers(db) == [late] * 8


@pytest.fixture
def full(environ, db, store, queue):
    """A tick has pushed the task a and left b, because their key has room for one. The key of c has no limit."""
    ticker.limit(db, "imap.*", concurrency=1)
    for name, key in {"a": "imap.x", "b": "imap.x", "c": "free"}.items():
        ticker.register(db, "poll", name=name, every="1m", limits=[key])
    TickJob(store, queue, settings.current(), Event())()


@pytest.mark.slow
def test_a_task_that_waits_for_a_limit_says_so_after_its_first_tick(full, db):
    [task] = ticker.list_tasks(db, state="no_room")
    assert (task.name, formatting.state(task), overview.counts(db).no_room) == ("b", "no_room", 1)
    top = next(line for line in command("top", "--once") if re.search(r"\bb\b", line))
    assert sentence("cli.top_limited", active=0, places=1, key="imap.x").within(top)
    assert "waits because" in "".join(ticker.why(db, task).next)
    ticker.unlimit(db, "imap.*")
    assert ticker.list_tasks(db, state="no_room") == []


@pytest.mark.slow
def test_an_overdue_task_whose_key_has_no_limit_is_late(full, db):
    db.execute(f"UPDATE ticker.tasks SET next_run = {AGO.format('40 s')}, waiting = '{{}}' WHERE name <> 'a'")
    assert [[task.name for task in ticker.list_tasks(db, state=state)] for state in ("late", "no_room")] == [
        ["c"],
        ["b"],
    ]
    assert [task.name for task in overview.overview(db).late] == ["c"]
    db.execute("UPDATE ticker.tickers SET last_tick_at = last_tick_at - interval '1 hour'")  # nobody has looked at it
    assert [task.name for task in ticker.list_tasks(db, state="late")] == ["b", "c"]


@pytest.mark.slow
def test_a_limit_that_keeps_tasks_waiting_for_over_an_interval_is_reported(full, db):
    assert health.look(settings.current()).held == {}
    ticker.register(db, "poll", name="d", every="1m", limits=["imap.x"])
    db.execute(f"UPDATE ticker.tasks SET next_run = {AGO.format('70 s')}")
    look = health.look(settings.current())
    assert look.held == {"imap.*": 2}
    assert sentence("health.limit_too_tight", count=2, key="imap.*") == look.warnings[0]
    assert steps.run(db, standing.limits())["ticker_limit_waiting_tasks"] == {("imap.*",): 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "cause",
    [
        'UPDATE ticker.tickers SET last_report = last_report || \'{"left": {"polling": 1}}\'',
        "UPDATE ticker.tasks SET alone_until = clock_timestamp() + interval '1 hour' WHERE name = 'b'",
        "UPDATE ticker.tasks SET waiting = ARRAY[next_run - interval '1 minute'] WHERE name = 'b'",
    ],
    ids=["its queue is full", "its turn", "its job waits"],
)
def test_a_task_that_something_else_keeps_waiting_is_late_and_not_limited(full, db, cause):
    db.execute(f"UPDATE ticker.tasks SET next_run = {AGO.format('70 s')} WHERE name = 'b'")
    db.execute(cause)
    assert [[task.name for task in ticker.list_tasks(db, state=state)] for state in ("late", "no_room")] == [["b"], []]
    assert health.look(settings.current()).held == {}


def test_the_longest_overdue_comes_first_wherever_it_waits(environ, db):
    for name, change in {
        "a": f"next_run = {AGO.format('2 m')}",
        "b": IN_QUEUE.format("3 m"),
        "c": IN_QUEUE.format("1 m"),
    }.items():
        ticker.register(db, "poll", name=name, every="1m")
        db.execute(f"UPDATE ticker.tasks SET {change} WHERE name = '{name}'")
    assert [task.name for task in overview.overview(db).late] == ["b", "a", "c"]


@pytest.mark.slow
def test_a_job_that_no_worker_takes_is_late_and_its_queue_is_the_cause(poll, db):
    command("tick")
    now = ticker.get(db, poll).waiting[0] + timedelta(minutes=2)
    db.execute(f"UPDATE ticker.tasks SET waiting = ARRAY[{AGO.format('2 m')}]")
    look = health.look(settings.current())
    [task] = overview.overview(db).late
    assert (
        sentence("cli.top_late_unattended", span="2 min", queue="polling") == f"for 2 min: {health.cause(task, look)}"
    )
    assert tasks.late_since(task, now) == task.waiting[0]
    assert sentence("health.late", tasks="1 task").within(command("health", code=1)[0])
