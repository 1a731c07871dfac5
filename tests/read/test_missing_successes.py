"""A success that is missing for so many intervals is told of once: when that is, and what it is counted from."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.sentences import sentence
from ticker.engine import timing
from ticker.engine.follow_up import next_check, no_success, too_late_at
from ticker.engine.tick import TickOptions, tick
from ticker.model import Alarm, Kind
from ticker.schedules.duration import DAY, MINUTE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ALARM = Alarm(
    id=1, kind=Kind.INTERVAL, expression="", zone="UTC", every_ms=MINUTE, dead_man=3, since=NOW, last_success_at=NOW,
    longest_run=31_000, is_done=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "late"),
    [
        ({}, NOW + timedelta(minutes=3, seconds=31)),
        ({"every_ms": 366 * DAY, "dead_man": 1_000_000}, timing.LATEST),
        ({"kind": Kind.CRON, "expression": "0 9 * * *"}, datetime(2026, 3, 4, 9, 0, 31, tzinfo=UTC)),
        ({"kind": Kind.CALENDAR, "expression": "*-*-* 09:00:00", "zone": "Europe/Berlin", "dead_man": 1},
         datetime(2026, 3, 2, 8, 0, 31, tzinfo=UTC)),
        ({"kind": Kind.CRON, "expression": "* * * * *", "dead_man": 1000}, NOW + timedelta(minutes=1000, seconds=31)),
        ({"kind": Kind.CRON, "expression": "0 0 1 1 *", "dead_man": 1_000_000}, timing.LATEST),
        ({"kind": Kind.ONCE, "expression": "2026-03-01T13:00:00Z"}, datetime(2026, 3, 1, 13, 0, 31, tzinfo=UTC)),
        ({"kind": Kind.ONCE, "expression": "2026-03-01T11:00:00Z"}, NOW + 31 * SECOND),
        ({"kind": Kind.CRON, "expression": "nonsense"}, NOW + 31 * SECOND),
        ({"kind": Kind.CRON, "expression": "* * * * *", "since": timing.LATEST}, timing.LATEST),
    ],
)  # fmt: skip
def test_a_success_is_missed_after_so_many_intervals_or_times_and_the_longest_run(changes, late):
    assert too_late_at(replace(ALARM, **changes)) == late


def test_a_task_is_asked_of_again_when_its_success_would_be_missed_and_told_of_then():
    late = too_late_at(ALARM)
    assert next_check(ALARM, late - SECOND) == late
    assert next_check(ALARM, late) is None


def test_of_a_task_that_is_done_nothing_is_missed():
    assert next_check(replace(ALARM, is_done=True), NOW + timedelta(days=9)) == NOW + timedelta(days=10)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, sentence("why.no_success_for_intervals", number=3, every="1m", last="2026-03-01 12:00:00")),
        ({"dead_man": 1, "last_success_at": None}, sentence("why.no_success_for_an_interval", every="1m")),
        ({"kind": Kind.CRON, "expression": "0 9 * * *", "last_success_at": None},
         sentence("why.no_success_at_times", number=3, expression="0 9 * * *")),
        ({"kind": Kind.CRON, "expression": "0 9 * * *", "dead_man": 1, "last_success_at": None},
         sentence("why.no_success_at_a_time", expression="0 9 * * *")),
    ],
)  # fmt: skip
def test_what_is_said_of_a_missing_success(changes, words):
    assert no_success(replace(ALARM, **changes)) == words


# ------------------------------------------------------------------------------------------------------ in a real tick


@pytest.mark.slow
def test_a_success_that_is_missing_is_told_of_once_and_the_next_success_waits_for_the_one_after(play):
    ticker.register(play.db, "poll", every="1m", dead_man=3)
    play.run(0, "succeeded")
    for seconds in (60, 120, 180, 211):
        play.at(seconds)
        play.tick()
    assert play.events() == []
    for seconds in (213, 300, 900):  # 1 + 3 x 60 + B + g
        play.at(seconds)
        play.tick()
    assert play.events() == ["dead_man"]
    play.redis.flushdb()
    play.put(waiting=[])
    play.run(960, "succeeded")
    assert play.events() == ["dead_man", "recovered"]
    play.at(1200)
    play.tick()
    assert play.events() == ["dead_man", "recovered", "dead_man"]
    [line] = [line for line in ticker.why(play.db, play.task()).lines if line.what == "dead_man"][:1]
    assert sentence("why.no_success_for_some_intervals", number=3, every="1m").begins(line.words)


@pytest.mark.slow
def test_a_failing_task_that_is_attempted_again_has_not_recovered_from_a_missing_success(play):
    ticker.register(play.db, "poll", every="1m", dead_man=1, retries=2, backoff="1s")
    play.at(100)
    play.tick()
    play.tick()
    assert play.events() == ["dead_man"]
    [taken] = play.take()
    play.end(taken, "failed")
    play.tick()
    assert play.events() == ["dead_man"]


@pytest.mark.slow
def test_of_a_paused_task_nothing_is_missed_and_a_resumed_one_has_its_time_again(play):
    task = ticker.register(play.db, "poll", every="1m", dead_man=3)
    day = timedelta(days=1)
    play.put(created_at=play.begin - day, last_success_at=play.begin - day, alarm_at=play.begin - day)
    ticker.pause(play.db, task)
    play.tick()
    assert play.events() == ["paused"]
    ticker.resume(play.db, task)
    play.tick()
    for seconds, events in [(200, 0), (225, 1)]:
        play.at(seconds)
        play.tick()
        assert play.events()[2:] == ["dead_man"] * events


@pytest.mark.slow
def test_a_task_waits_for_its_first_time_before_a_success_is_missed(play):
    ticker.register(play.db, "poll", every="1m", dead_man=3, first=play.begin + timedelta(days=1))
    for seconds, events in [(86_400, []), (86_400 + 210, []), (86_400 + 211, ["dead_man"])]:
        play.at(seconds)
        play.tick()
        assert play.events() == events


@pytest.mark.slow
def test_a_task_whose_jobs_are_all_refused_is_late_as_well(play):
    ticker.register(play.db, "other", every="1m", dead_man=3)
    for seconds in (0, 60, 120, 180, 240):
        play.at(seconds)
        play.tick()
        assert {taken.refusal for taken in play.take()} <= {"unknown_here"}
    assert play.events() == ["unknown_function", "dead_man"]


@pytest.mark.slow
def test_a_success_of_a_task_by_times_is_missed_behind_the_time_and_its_longest_run(play):
    task = ticker.register(play.db, "poll", cron="*/10 * * * *", dead_man=1, box="1m")
    first = play.since_begin(task.next_run)
    for seconds, events in [(first, []), (first + 60, []), (first + 61, ["dead_man"])]:
        play.at(seconds)
        play.tick()
        assert play.events() == events


@pytest.mark.slow
def test_a_task_for_a_single_time_that_succeeded_is_never_late(play):
    play.at(100)
    once = play.now
    play.at(0)
    ticker.register(play.db, "poll", at=once, dead_man=1)
    play.run(100, "succeeded")
    for seconds in (1000, 100_000, 1_000_000):
        play.at(seconds)
        play.tick()
    assert play.events() == []


@pytest.mark.slow
def test_one_for_a_single_time_that_nobody_took_is_late(play):
    play.at(100)
    once = play.now
    play.at(0)
    ticker.register(play.db, "poll", at=once, dead_man=1, box="1m")
    for seconds in (100, 1000):
        play.at(seconds)
        play.tick()
    assert play.events() == ["dead_man"]


@pytest.mark.slow
def test_rare_times_are_extrapolated_from_a_few(play):
    """A hundred of the 29th of February are 400 years: looking for each would hold up the tick."""
    task = ticker.register(play.db, "poll", cron="0 0 29 2 *", dead_man=100)
    play.db.execute("UPDATE ticker.tasks SET alarm_at = %s", [play.at(100)])
    play.tick()
    [(alarm,)] = play.db.execute("SELECT alarm_at FROM ticker.tasks WHERE id = %s", [task.id])
    assert 300 < (alarm - play.begin).days / 365.25 < 405


@pytest.mark.slow
def test_more_tasks_than_a_batch_holds_are_asked_of_in_one_tick(play):
    for number in range(5):
        ticker.register(play.db, "poll", name=str(number), every="1m", dead_man=1)
    play.at(100)
    tick(play.store, play.queue, play.now, TickOptions(batch=2))
    assert play.events() == ["dead_man"] * 5
