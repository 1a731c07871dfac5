"""A function that no worker has announced: a state, a count, one notice, and a warning where the task is written."""

import pytest

import ticker
from tests.cli.answers import answer
from tests.harness import command
from tests.sentences import sentence
from ticker.db import sql
from ticker.read import overview

KNOWN = ["mail.fetch", "poll"]


def announce(db, names=KNOWN, queues=("polling",)):
    sql.on(db, "ticker")(
        "announce", names=list(names), batches=[1] * len(names), concurrencies=[1] * len(names),
        repeatables=[False] * len(names), queues=list(queues),
    )  # fmt: skip


def age(db, seconds=3600):
    db.execute("UPDATE ticker.tasks SET updated_at = updated_at - %s * interval '1 second'", [seconds])


@pytest.fixture
def typo(play):
    announce(play.db)
    return ticker.register(play.db, "mail.fech", every="1m")


def test_a_registration_warns_and_names_the_nearest_function(typo):
    assert typo.warnings == (
        sentence("warnings.unannounced_like", function="'mail.fech'", near="'mail.fetch'", known="mail.fetch, poll"),
    )


@pytest.mark.slow
def test_a_changed_function_is_warned_about_and_a_registration_that_changes_nothing_is_not(play, typo):
    assert ticker.register(play.db, "mail.fech", every="1m").warnings == ()
    changed = ticker.register(play.db, "mail.fetch", name="mail.fech", every="1m")
    assert (changed.warnings, changed.unknown_function) == ((), False)
    assert len(ticker.edit(play.db, changed, function="pol").warnings) == 1


@pytest.mark.slow
def test_a_queue_that_no_worker_has_announced_is_warned_about(play):
    announce(play.db, queues=["polling"])
    announce(play.db, ["poll"], queues=["slow"])
    assert overview.functions(play.db)[1].queues == ("polling", "slow")
    [warning] = ticker.register(play.db, "poll", every="1m", queue="pollin").warnings
    assert warning == sentence(
        "warnings.unannounced_queue", queue="'pollin'", near="'polling'", known="polling, slow"
    )  # fmt: skip
    assert ticker.register(play.db, "poll", name="other", every="1m", queue="slow").warnings == ()


@pytest.mark.slow
def test_nothing_is_said_before_any_worker_has_announced_its_functions(play):
    task = ticker.register(play.db, "mail.fech", every="1m", queue="nowhere")
    assert (task.warnings, task.unknown_function) == ((), False)
    age(play.db)
    play.at(0)
    play.tick()
    assert play.events() == []


@pytest.mark.slow
@pytest.mark.usefixtures("environ")
def test_it_is_a_state_of_the_task_in_lists_and_counts(play, typo):
    ticker.register(play.db, "poll", every="1m")
    assert [task.name for task in ticker.list_tasks(play.db, state="unknown_function")] == ["mail.fech"]
    assert [task.name for task in ticker.list_tasks(play.db, state="unknown_function", owner="a:1")] == []
    assert overview.counts(play.db).unknown_function == 1
    assert answer("list", str(typo.id))["state"] == "unknown_function"
    assert "unknown function" in command("list")[0]
    announce(play.db, ["mail.fech"])
    assert ticker.list_tasks(play.db, state="unknown_function") == []


@pytest.mark.slow
def test_one_notice_for_each_function_a_minute_after_the_last_change_of_its_task(play, typo):
    for number in range(3):
        ticker.register(play.db, "mail.fech", name=str(number), every="1m")
    play.at(0)
    play.tick()
    assert play.events() == []  # its workers may be deployed next
    age(play.db)
    for seconds in (60, 120):
        play.at(seconds)
        play.tick()
    assert play.db.execute("SELECT what, function, told FROM ticker.events WHERE what <> 'enough_jobs'").fetchall() == [
        ("unknown_function", "mail.fech", False)
    ]


@pytest.mark.slow
def test_refusals_of_an_unknown_function_do_not_touch_failures(play):
    announce(play.db, ["mail.fetch"])
    ticker.register(play.db, "mail.fech", every="1m", pause_after=1, stretch="1h")
    play.at(0)
    play.tick()
    [taken] = play.take()
    assert taken.refusal == "unknown_here"
    for seconds in (60, 660):
        play.at(seconds)
        play.tick()
    task = ticker.get(play.db, 1)
    assert (task.failures, task.stretched_ms, task.paused_by, task.dropped) == (0, None, None, 1)


def test_a_task_that_ran_since_its_last_edit_is_known_even_if_its_worker_announces_nothing(play):
    ticker.register(play.db, "poll", every="1m")
    age(play.db)
    announce(play.db, ["mail.fetch"])
    assert overview.counts(play.db).unknown_function == 1
    play.run(0, "succeeded")
    assert overview.counts(play.db).unknown_function == 0
    assert not ticker.get(play.db, 1).unknown_function
