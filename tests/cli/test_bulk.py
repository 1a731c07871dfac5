"""Commands that change many tasks: a plan, and the change with --apply."""

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.harness import command
from tests.sentences import sentence
from ticker.cli import connection

pytestmark = pytest.mark.usefixtures("environ")


@pytest.fixture
def tasks(db):
    """Three tasks for mailboxes, one of which cleans, and one that fetches for a feed, with a long box."""
    items = [
        {"function": "fetch", "every": "5m", "owner": "boxes:1", "group": "news"},
        {"function": "fetch", "every": "5m", "owner": "boxes:2"},
        {"function": "clean", "every": "1h", "owner": "boxes:2"},
        {"function": "fetch", "every": "5m", "owner": "feeds:1", "box": "3m"},
    ]
    return ticker.register_many(db, items).ids


def every(db, ids):
    return [ticker.get(db, id_).every_ms // 60_000 for id_ in ids]


def test_one_task_and_apply_are_refused_in_a_sentence(db, tasks):
    said = refused("edit", str(tasks[0]), "--every", "2m", "--apply")
    assert said == sentence("cli.task_and_filters", remedy="ticker edit --help")


def test_an_edit_of_many_prints_its_plan_and_changes_nothing_without_apply(db, tasks):
    out, err = command("edit", "--function", "fetch", "--every", "2m")
    said = sentence(
        "cli.bulk", action="edit", tasks="3 tasks match", changed="2 would change", unchanged="0", refused="1"
    )
    assert said.within(out) and sentence("cli.bulk_plan").within(out)
    assert f"{tasks[3]} fetch of feeds:1" in out and f"{tasks[0]} fetch of boxes:1, {tasks[1]}" in out
    assert (err, every(db, tasks)) == ("", [5, 5, 60, 5])


def test_apply_prints_the_plan_and_changes_what_the_filters_choose(db, tasks):
    out, _ = command("edit", "--function", "fetch", "--owner-type", "boxes", "--every", "2m", "--apply")
    done = sentence("cli.bulk", action="edit", tasks="2 tasks match", changed="2 changed", unchanged="0", refused="0")
    assert "would change" in out and done.within(out) and not sentence("cli.bulk_plan").within(out)
    assert every(db, tasks) == [2, 2, 60, 5]
    events = db.execute("SELECT task_id, what, by FROM ticker.events ORDER BY id").fetchall()
    assert events == [(id_, "edited", connection.user()) for id_ in tasks[:2]]


def test_set_changes_the_fields_whose_options_choose(db, tasks):
    done = answer(
        "edit", "--queue", "polling", "--group", "news", "--set", "queue=slow", "--set", "group=old", "--apply"
    )
    assert (done["applied"], done["matched"], done["changed"]) == (True, 1, 1)
    assert (ticker.get(db, tasks[0]).queue, ticker.get(db, tasks[0]).group_name) == ("slow", "old")
    assert answer("edit", "--owner", "boxes:2", "--disable", "--apply")["changed"] == 2


def test_apply_fails_if_every_task_was_refused(db, tasks):
    out, err = command("edit", "--owner-type", "feeds", "--every", "2m", "--apply", code=1)
    done = sentence("cli.bulk", action="edit", tasks="1 task matches", changed="0 changed", unchanged="0", refused="1")
    assert done.within(out) and sentence("cli.bulk_refused").within(err)
    command("edit", "--function", "fetch", "--every", "2m", "--apply")
    assert every(db, tasks) == [2, 2, 60, 5]
    done = answer("run-now", "--function", "fetch", "--failed", "--apply")
    assert done["refused"] == 3  # nothing has failed: all is well


def test_tasks_are_run_and_deleted_by_the_same_filters(db, tasks):
    db.execute("UPDATE ticker.tasks SET failures = 2 WHERE id = %s", [tasks[1]])
    plan = answer("run-now", "--owner-type", "boxes", "--failed")
    assert (plan["action"], plan["changed"], plan["refused"], plan["applied"]) == ("retry", 1, 2, False)
    assert answer("run-now", "--state", "failing", "--apply", "--once-within", "1m")["changed"] == 1
    assert db.execute("SELECT task_id FROM ticker.runs").fetchall() == [(tasks[1],)]
    assert answer("remove", "--search", "CLEAN")["applied"] is False
    assert answer("remove", "--search", "CLEAN", "--apply")["changed"] == 1
    assert [task.id for task in ticker.list_tasks(db)] == [*tasks[:2], tasks[3]]


def test_tasks_are_paused_and_resumed_one_by_one(db, tasks):
    assert (
        answer("pause", "--each", "--function", "fetch", "--by", "ann", "--reason", "x", "--until", "2h")["changed"]
        == 3
    )
    assert answer("pause", "--each", "--function", "fetch", "--by", "ann", "--apply")["changed"] == 3
    assert [task.paused_by for task in ticker.list_tasks(db, state="paused")] == ["ann"] * 3
    assert answer("pause", "--list") == []
    done = answer("resume", "--each", "--state", "paused", "--owner-type", "boxes", "--apply")
    assert (done["changed"], done["changes"][0]["tasks"]) == (2, 2)
    assert answer("resume", "--each", "--all", "--apply")["unchanged"] == 3
    assert ticker.list_tasks(db, state="paused") == []


@pytest.mark.parametrize(
    "words",
    [
        ("edit", "--every", "2m"),
        ("edit", "--every", "2m", "--apply"),
        ("edit", "--function", "fetch"),
        ("edit", "1", "--state", "late", "--every", "2m"),
        ("edit", "1", "--set", "queue=slow"),
        ("edit", "--function", "fetch", "--set", "every=2m"),
        ("edit", "--owner", "boxes:1", "--owner-type", "boxes", "--every", "2m"),
        ("run-now", "1", "--state", "late"),
        ("run-now", "--failed", "--once-within", "1d"),
        ("remove", "1", "--apply"),
        ("pause", "--state", "late"),
        ("pause", "--each"),
        ("pause", "--each", "1", "--state", "late"),
        ("pause", "--each", "--all", "--list"),
        ("resume", "--each", "--limit", "imap"),
    ],
)
def test_what_does_not_go_together_is_refused_and_writes_nothing(words, db, tasks):
    refused(*words)
    assert db.execute("SELECT count(*) FROM ticker.events").fetchone() == (0,)
    assert (every(db, tasks), ticker.list_pauses(db)) == ([5, 5, 60, 5], [])
