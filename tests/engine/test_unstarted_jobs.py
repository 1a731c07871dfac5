"""Jobs that ended before their start: a newer occurrence replaces them, which is no failure; events count them."""

import pytest
from rq.job import Job

import ticker
from tests.harness import QUEUE, events
from ticker.db import sql


def die(play):
    """The jobs that wait end in RQ's hands, before they could ask for their starts."""
    while id_ := play.redis.lpop(QUEUE):
        job = Job.fetch(id_.decode(), connection=play.redis)
        job.set_status("failed")


@pytest.mark.slow
def test_a_job_that_died_before_its_start_is_expired_if_a_newer_occurrence_waits(play):
    tasks = [ticker.register(play.db, "poll", name=str(n), every="1m") for n in range(3)]
    for minute in range(5):
        play.at(60 * minute)
        play.tick()
        die(play)
    assert {(run.outcome, run.reason) for run in play.runs()} == {("dropped", "expired")}
    assert [ticker.get(play.db, task).failures for task in tasks] == [0, 0, 0]
    counted = events(play.db, "what, function, count, told")
    assert counted == [("expired", "poll", 3, told) for told in (True, True, False, True)][: len(counted)]
    assert len(counted) >= 3


@pytest.mark.slow
def test_a_start_of_the_function_between_them_ends_the_row(play):
    ticker.register(play.db, "poll", every="1m")
    for minute in range(3):
        play.at(60 * minute)
        play.tick()
        die(play)
    play.db.execute(
        "INSERT INTO ticker.minutes SELECT date_trunc('minute', %s::timestamptz), 'poll', 'polling', 'succeeded', '', 'scheduled',"
        " 1, 1, 0, 0, '{}', '{}'", [play.now],
    )  # fmt: skip
    play.at(180)
    play.tick()
    assert all(told for (told,) in events(play.db, "told"))


def test_a_function_of_many_tasks_is_counted_once_a_minute(play):
    tasks = [ticker.register(play.db, "poll", name=str(n), every="1m") for n in range(2)]
    for seconds in (0, 1, 70):
        sql.on(play.db, "ticker")("note_expired", ids=[task.id for task in tasks], words="why", now=play.at(seconds))
    assert sum(count for (count,) in events(play.db, "count")) == 6
    assert len(events(play.db, "id")) in (2, 3)
