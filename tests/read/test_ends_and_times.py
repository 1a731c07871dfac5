"""What a task's last run left stands with the task; records are listed between two times, relative or absolute, at every door."""

import json
from datetime import timedelta

import pytest

import ticker
from tests.factories import a_drop, a_run
from tests.harness import command
from tests.sentences import sentence
from ticker.errors import BadInput


@pytest.fixture
def failed(environ, db):
    """A task whose last run failed on a node, ten minutes ago."""
    task = ticker.register(db, "poll", cron="0 9 * * 1-5", owner="channels:5")
    run = a_run(
        db, task, outcome="failed", reason="ValueError: no route", worker="node-7.w1", result='{"seen": 3}',
        ended_at=ticker.get(db, task).created_at - timedelta(minutes=10),
    )  # fmt: skip
    db.execute(
        "UPDATE ticker.tasks t SET failures = 1, last_outcome = 'failed', last_run_id = r.id, last_ended_at = r.ended_at FROM ticker.runs r"
    )
    return run


@pytest.mark.slow
def test_a_task_carries_its_last_end_and_its_schedule_in_words(failed, db):
    [listed] = json.loads(command("list", "--json")[0])
    again = json.loads(command("add", "poll", "--cron", "0 9 * * 1-5", "--owner", "channels:5", "--json")[0])
    for one in listed, again:
        assert one["in_words"] == "At 09:00, Monday through Friday"
        end = one["last_end"]
        assert (end["run_id"], end["outcome"], end["reason"]) == (failed, "failed", "ValueError: no route")
        assert (end["worker"], end["result"]) == ("node-7.w1", {"seen": 3}) and end["ended_at"].endswith("Z")


@pytest.mark.slow
def test_show_says_why_the_last_run_failed(failed, db):
    said = command("list", "poll", "--owner", "channels:5")[0]
    assert sentence("cli.last_failure", worker="node-7.w1", reason="ValueError: no route", run=failed).within(said)


def test_a_task_that_never_ended_has_no_last_end(environ, db):
    assert json.loads(command("add", "poll", "--every", "1m", "--json")[0])["last_end"] is None


# ------------------------------------------------------------------------------------------------ between two times


@pytest.fixture
def hours(environ, db):
    """A drop one, two and three hours ago. Returns their ids, the newest first."""
    task = ticker.register(db, "poll", every="1m", owner="channels:5")
    [(now,)] = db.execute("SELECT clock_timestamp()").fetchall()
    return [
        a_drop(db, task, "too_early", checked_at=now - timedelta(hours=ago), occurrence=now - timedelta(hours=ago))
        for ago in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("since", "until", "wanted"),
    [
        (None, "90m", (1, 2)),
        ("150m", None, (0, 1)),
        ("150m", "90m", (1,)),
        (timedelta(minutes=150), timedelta(minutes=90), (1,)),
    ],
)
def test_records_are_listed_between_two_times(hours, db, since, until, wanted):
    ids = [hours[index] for index in wanted]
    assert [run.id for run in ticker.list_runs(db, since=since, until=until)] == ids
    assert [line.run.id for line in ticker.journal(db, since=since, until=until) if line.run] == ids[::-1]
    assert sum(group.count for group in ticker.drops(db, since=since, until=until)) == len(ids)
    if not isinstance(until, timedelta):
        words = [word for name, value in (("--since", since), ("--until", until)) if value for word in (name, value)]
        assert [run["id"] for run in json.loads(command("runs", "--json", *words)[0])] == ids
        assert sum(
            group["count"] for group in json.loads(command("runs", "--drops-by", "reason", "--json", *words)[0])
        ) == len(ids)
        assert [
            json.loads(line)["run"]["id"]
            for line in command("runs", "--journal", "--json", *words)[0].splitlines()
            if '"run": {' in line
        ] == ids[::-1]


@pytest.mark.slow
def test_runs_are_listed_by_owner_owner_type_and_reason(hours, db):
    for words in (["--owner", "channels:5"], ["--owner-type", "channels"], ["--reason", "too_early"]):
        assert [run["id"] for run in json.loads(command("runs", "--json", *words)[0])] == hours
    assert json.loads(command("runs", "--json", "--reason", "paused")[0]) == []
    assert json.loads(command("runs", "--json", "--owner-type", "phones")[0]) == []


def test_an_end_that_is_not_after_the_beginning_is_refused(environ, db):
    with pytest.raises(BadInput, check=sentence("errors.until_not_after_since").within):
        ticker.journal(db, since="1h", until="2h")
    with pytest.raises(BadInput, check=sentence("errors.before_with_until").within):
        ticker.list_runs(db, until="1h", before=5)
    assert sentence("cli.follow_and_until").within(command("runs", "--follow", "--until", "1h", code=2)[1])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--name", "a"], ["a"]),
        (["--queue", "fast"], ["b"]),
        (["--state", "failing"], ["a"]),
        (["--search", "FEED"], ["b"]),
        (["--state", "late"], []),
    ],
)
def test_tasks_are_listed_by_the_filters_of_the_api(environ, db, words, names):
    ticker.register(db, "poll", name="a", every="1m")
    ticker.register(db, "feed", name="b", every="1m", queue="fast")
    db.execute("UPDATE ticker.tasks SET failures = 1 WHERE name = 'a'")
    assert [task["name"] for task in json.loads(command("list", "--json", *words)[0])] == names
