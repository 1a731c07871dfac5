"""Failing tasks, grouped by cause: how many, since when, which, and what is left out."""

import pytest

import ticker
from tests.factories import MINUTE, NINE, a_run, an_event
from tests.harness import command
from tests.plans import plan
from ticker.read import overview
from ticker.read import tasks as read_tasks
from ticker.tasks.filters import ANY

REFUSED, SLOW = "ConnectionRefusedError: *", "TimeoutError: timed out"


def fail(db, name, cause, at=NINE, **columns):
    """A task that fails, as a tick writes it."""
    made = ticker.register(db, name, every="1m", subject=f"{name}@example.org")
    assignments = "".join(f", {column} = %s" for column in columns)
    db.execute(f"UPDATE ticker.tasks SET failures = 2, told = 'failed', cause = %s{assignments} WHERE id = %s", [cause, *columns.values(), made.id])  # fmt: skip
    an_event(db, made, "failed", at, words=f"failed: {cause}")
    return made


@pytest.fixture
def failing(environ, db):
    """Five that are refused, two that are slow; one that is paused by ann, one that is disabled, one without a cause."""
    for number in range(5):
        fail(db, f"refused{number}", REFUSED, at=NINE - number * MINUTE)
    for number in range(2):
        fail(db, f"slow{number}", SLOW)
    fail(db, "paused", SLOW, paused_by="ann")
    fail(db, "disabled", SLOW, enabled=False)
    fail(db, "unknown", "")
    fail(db, "given.up", SLOW, paused_by="ticker")
    db.execute("UPDATE ticker.tasks SET cause = 'no success in time', failures = 0 WHERE name = 'unknown'")


def test_the_largest_group_comes_first_with_its_begin_and_three_examples(failing, db):
    first, second = overview.causes(db)
    assert (first.cause, first.tasks, first.since) == (REFUSED, 5, NINE - 4 * MINUTE)
    assert [task.subject for task in first.examples] == [f"refused{number}@example.org" for number in range(3)]
    assert (second.cause, second.tasks, len(second.ids)) == (SLOW, 3, 3)
    assert [one.cause for one in overview.causes(db, limit=1)] == [REFUSED]
    db.execute("DELETE FROM ticker.events")
    assert overview.causes(db)[0].since is None


def test_a_list_has_the_tasks_that_a_group_counts(failing, db):
    for one in overview.causes(db):
        assert [task.id for task in ticker.list_tasks(db, cause=one.cause)] == list(one.ids)
        assert [task.id for task in ticker.list_tasks(db, cause=one.cause, state="failing")] == list(one.ids)
    assert ticker.list_tasks(db, cause="OSError") == []


@pytest.fixture
def hosts(failing, db):
    """Three are refused by one host, and one by another; one that is well has failed before. The fifth names none."""
    acme, other = (
        "ConnectionRefusedError: imap.acme.example:993",
        "ConnectionRefusedError: imaps://imap.other.example/in",
    )
    for name, error in (
        *((f"refused{number}", acme) for number in range(3)),
        ("refused3", other),
        ("well", acme),
    ):
        task = ticker.register(db, name, every="1m")
        run = a_run(db, task, outcome="failed", reason=error)
        db.execute("UPDATE ticker.tasks SET last_run_id = %s WHERE id = %s", [run, task.id])


def test_a_group_names_the_hosts_in_its_last_errors(hosts, db):
    refused, slow = overview.causes(db)
    assert [*refused.hosts.items()] == [("imap.acme.example", 3), ("imap.other.example", 1)] and slow.hosts == {}


def test_all_that_failed_because_of_one_host_run_again_in_one_step(hosts, db):
    names = [task.name for task in ticker.list_tasks(db, error="IMAP.Acme.example")]
    assert names == ["refused0", "refused1", "refused2"]
    assert [task.name for task in ticker.list_tasks(db, cause=REFUSED, error="other", state="failing")] == ["refused3"]
    assert [task.name for task in read_tasks.page_of_tasks(db, error="other", sort="failures").tasks] == ["refused3"]
    assert "3 tasks match: 3 would run" in command("run-now", "--failed", "--error", "imap.acme.example")[0]
    command("run-now", "--failed", "--error", "imap.acme.example", "--apply")
    planned = db.execute("SELECT task_name FROM ticker.runs WHERE kind = 'manual' ORDER BY task_name").fetchall()
    assert [name for (name,) in planned] == names


@pytest.mark.slow
def test_a_search_in_a_hundred_thousand_errors_reads_one_run_of_each(environ, db):
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, failures, cause, last_run_id)"
        " SELECT 'n' || n, 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling', 1, 'OSError: *', n FROM generate_series(1, 100000) n"
    )
    db.execute("ANALYZE ticker.tasks")
    names = {"error": "imap.acme.example", "after": 0, "before": None, "limit": 50, "most": 1, "late_ms": 1}
    plans = plan(db, "list_tasks", **ANY | names | dict.fromkeys(("state", "first", "durings", "zones", "now")))
    assert {node.get("Index Name") for node in plans if node.get("Relation Name") == "runs"} == {"runs_pkey"}


def test_the_pace_is_that_of_the_minutes_counted_last(environ, db):
    assert overview.overview(db).per_minute is None
    db.execute(
        "UPDATE ticker.installation SET counted_until = date_trunc('minute', clock_timestamp()), created_at = now() - interval '1 h'"
    )
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, outcome, count) SELECT counted_until - n * interval '1 minute', 'q', o, 8"
        " FROM ticker.installation, generate_series(1, 12) n, unnest(ARRAY['succeeded', 'dropped']) o"
    )
    assert overview.overview(db).per_minute == 8
