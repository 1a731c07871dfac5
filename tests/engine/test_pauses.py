"""Pauses of many tasks, from the commit of one row to the push of what has waited: real tables, tick by tick."""

from datetime import timedelta

import pytest

import ticker

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def task(play):
    return ticker.register(play.db, "poll", every="1m")


def paused_at(play, seconds=0, **scope):
    """A tick withholds what is due under a pause of this scope."""
    with play.clock():
        play.at(seconds)
        pause = ticker.pause_all(play.db, **scope)
        play.tick()
    return pause


def resumed_at(play, seconds, **scope):
    with play.clock():
        play.at(seconds)
        return ticker.resume_all(play.db, **scope)


# ------------------------------------------------------------------------------------------ a pass that would be idle


def idle_passes(play, count=3):
    """So many passes in a row; the first one looks at everything."""
    return [play.tick().enqueued for _ in range(count)]


def test_a_pass_lets_a_task_go_though_its_pause_is_done(play, task):
    """Another ticker saw no task that waits, and committed that the pause is done, before this one withheld the task."""
    pause = paused_at(play)
    resumed_at(play, 5)
    play.db.execute("UPDATE ticker.pauses SET done_at = resumed_at")
    play.at(6)
    assert play.tick().enqueued == 1, pause


def test_a_pass_lets_a_task_go_though_the_row_of_its_pause_was_deleted(play, task):
    paused_at(play)
    play.db.execute("DELETE FROM ticker.pauses")
    play.at(6)
    assert play.tick().enqueued == 1
