"""Late tasks: due and not started, wherever they wait. Every screen gives the same number."""

from datetime import timedelta

import pytest

import ticker
from tests.harness import command
from tests.sentences import sentence
from ticker import settings
from ticker.db import steps
from ticker.metrics import standing
from ticker.read import health, lateness, overview

AGO = "clock_timestamp() - interval '{}'"
NOT_DUE = "next_run = clock_timestamp() + interval '1 m'"
WAITS = "waiting = ARRAY[clock_timestamp() - interval '{}']"
IN_QUEUE = f"{NOT_DUE}, {WAITS}"


@pytest.fixture
def poll(environ, db):
    return ticker.register(db, "poll", every="1m", tolerance="6s", owner="channels:5")


def numbers(db):
    """What each screen says, in the order of the document."""
    page = overview.overview(db)
    [owner] = ticker.list_owners(db)
    return [
        page.counts.late, len(page.late), owner.late, len(ticker.list_owners(db, late=True)), len(ticker.list_tasks(db, state="late")),
        health.look(settings.current()).late, int(steps.run(db, standing.tasks())["ticker_tasks_late"][()]),
        sum(lateness.late_since(task, page.now) is not None for task in ticker.list_tasks(db)),
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
    assert sentence("cli.top_late_unattended", span="2m", queue="polling") == f"for 2m: {health.cause(task, look)}"
    assert lateness.late_since(task, now) == task.waiting[0]
    assert sentence("health.late", tasks="1 task").within(command("health", code=1)[0])
