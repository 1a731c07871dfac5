"""Suspects and guilty tasks of a function with groups take turns, and none of them waits for ever."""

from datetime import timedelta
from uuid import uuid4

import pytest

import ticker
from tests.harness import finish, start
from ticker.engine import timing
from ticker.engine.tick import TickOptions, tick

EVERY_SECOND = TickOptions(period=1_000)


@pytest.fixture
def tasks(environ, play):
    """Registers tasks of a function with groups, which are due in the order of their names."""

    def register(names, **columns):
        play.db.execute(
            "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('poll', 10, 10, clock_timestamp())"
        )
        made = [ticker.register(play.db, "poll", name=name, every="1m", **columns) for name in names]
        play.db.execute("UPDATE ticker.tasks SET next_run = next_run - interval '9 s' + id * interval '1 ms'")
        return made

    return register


def mark(play, tasks, until=timing.LATEST, share=2):
    play.db.execute(
        "UPDATE ticker.tasks SET alone_until = %s, share = %s WHERE id = ANY (%s)",
        [until, share, [task.id for task in tasks]],
    )


def pushed(play, seconds):
    """Returns the names of the tasks that the tick there pushes."""
    play.at(seconds)
    before = dict(play.db.execute("SELECT name, waiting FROM ticker.tasks").fetchall())
    tick(play.store, play.queue, play.now, EVERY_SECOND)
    return {
        name for name, waiting in play.db.execute("SELECT name, waiting FROM ticker.tasks") if waiting != before[name]
    }


def test_a_job_that_has_waited_for_ten_minutes_keeps_no_suspect_waiting(play, tasks):
    one, other, _ = tasks("abc")
    mark(play, [one, other], share=1)
    assert pushed(play, 0) == {"a", "c"}
    for task in (one, other):
        ticker.edit(play.db, task, queue="elsewhere")
    assert "b" not in pushed(play, 500)
    assert "b" in pushed(play, 700)


def test_a_manual_run_of_a_suspect_does_not_wait_for_its_turn(play, tasks):
    one, other, _ = tasks("abc")
    mark(play, [one, other], share=1)
    assert pushed(play, 0) == {"a", "c"}
    ticker.run_now(play.db, other)
    assert tick(play.store, play.queue, play.at(1), EVERY_SECOND).planned.enqueued == 1


@pytest.mark.slow
def test_after_the_clock_was_set_back_guilty_tasks_go_on_taking_turns(play, tasks):
    one, other, _ = tasks("abc")
    play.db.execute("UPDATE ticker.tasks SET next_run = next_run + interval '1 day'")
    assert pushed(play, 86_400) == {"a", "b", "c"}
    for task in (one, other):
        token = str(uuid4())
        assert start(play.db, task, ticker.get(play.db, task).waiting[0], play.now, token=token)["refusal"] is None
        assert finish(play.db, task, token, "killed", play.now + timedelta(seconds=1))
    play.redis.flushdb()
    play.db.execute("UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL")
    play.store.heartbeat("00000000-0000-0000-0000-000000000001", "host", 1, play.now, {})
    pushed(play, 0)
    assert {"a", "b"} & (pushed(play, 70) | pushed(play, 80))


def test_after_the_clock_was_set_back_groups_are_halved_for_an_hour_at_most(play, tasks):
    tasks("abc")
    play.db.execute("UPDATE ticker.functions SET halved_to = 1, halved_until = clock_timestamp() + interval '2 hours'")
    pushed(play, 0)
    assert play.redis.llen("rq:queue:polling") == 1


def test_a_suspect_that_waits_for_its_turn_takes_no_room_of_its_key(play, tasks):
    one, other, *_ = tasks("abcd")
    mark(play, [one, other], play.now + timedelta(hours=1), share=1)
    ticker.limit(play.db, "api", concurrency=1)
    play.db.execute("UPDATE ticker.tasks SET limits = CASE WHEN name <> 'a' THEN '{api}'::text[] END")
    play.db.execute("SELECT ticker.limit_keys(ARRAY['api'])")
    assert pushed(play, 0) == {"a", "c"}


def test_suspects_of_a_function_that_has_no_groups_any_more_do_not_wait(play, tasks):
    mark(play, tasks("abc"), play.now + timedelta(hours=1), share=1)
    assert pushed(play, 0) == {"a"}
    play.db.execute("UPDATE ticker.functions SET concurrency = 1")
    assert pushed(play, 1) == {"b", "c"}
