"""A task that goes on failing, on real servers: it runs less often, pauses itself, and is told of once."""

from datetime import timedelta

import pytest

import ticker
from tests.harness import events
from tests.sentences import sentence

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def due(play):
    return play.since_begin(play.task().next_run)


# --------------------------------------------------------------------------------------------------------- told once


@pytest.mark.slow
def test_a_failure_is_told_once_however_many_follow_and_a_recovery_once(play):
    ticker.register(play.db, "poll", every="1m")
    for minute, outcome in enumerate(["succeeded", "failed", "timed_out", "lost", "succeeded", "succeeded", "killed"]):
        play.run(60 * minute, outcome, reason="OSError: no route" if outcome == "failed" else "")
    assert play.events() == ["failed", "recovered", "failed"]
    lines = [str(line.words) for line in ticker.why(play.db, play.task()).lines if line.event]
    assert lines == [
        sentence("why.began_to_fail", error="OSError: no route"),
        "it succeeded again",
        sentence("why.began_to_fail", error="killed"),
    ]


@pytest.mark.slow
def test_whoever_failed_and_succeeded_between_two_ticks_is_well_and_nobody_is_told(play):
    ticker.register(play.db, "poll", every="1m", retries=1)
    play.fail_behind_the_next_push()
    [taken] = play.take()
    play.at(106)
    play.end(taken, "succeeded")
    play.tick()
    assert (play.task().failures, play.events()) == (0, [])


# --------------------------------------------------------------------------------------------------------- stretched


@pytest.mark.slow
def test_a_failing_task_runs_less_and_less_often_and_as_before_once_it_works(play):
    ticker.register(play.db, "poll", every="1m", stretch="5m")
    play.run(0)
    assert due(play) == 120
    play.run(120)
    assert due(play) == 360
    play.run(360)
    assert due(play) == 660
    play.run(660)
    assert (due(play), play.task().stretched_ms) == (960, 300_000)
    play.run(960, "succeeded")
    assert (due(play), play.task().stretched_ms) == (1020, None)
    assert play.events() == ["failed", "slowed", "slowed", "slowed", "restored", "recovered"]


@pytest.mark.slow
def test_with_retries_it_is_slowed_behind_the_last_of_them(play):
    ticker.register(play.db, "poll", every="1m", stretch="5m", retries=1, backoff="1s")
    play.run(0)
    assert (due(play), play.events()) == (60, [])
    play.run(3)
    assert (due(play), play.events()) == (120, ["failed", "slowed"])


@pytest.mark.slow
def test_a_clock_that_goes_well_leaves_a_longer_interval_as_it_is(play):
    ticker.register(play.db, "poll", every="1m", stretch="1h")
    for seconds in (0, 120, 360):
        play.run(seconds)
    before = play.task()
    for _ in range(121):  # among them a look at every row
        play.store.clamp(play.now, 100)
    assert play.task() == before


@pytest.mark.slow
def test_the_ledger_says_that_it_is_slowed(play):
    ticker.register(play.db, "poll", every="1m", stretch="5m")
    play.run(0)
    answer = ticker.why(play.db, play.task())
    assert sentence("why.slowed", longer="2m", every="1m", failures="1 failure").within(
        [line.words for line in answer.lines if line.event]
    )
    assert sentence("schedules.interval_while_it_fails", longer="2m", every="60 s").within(answer.next)


# ------------------------------------------------------------------------------------------------------------ paused


@pytest.mark.slow
def test_after_so_many_failures_a_task_pauses_itself_and_says_why(play):
    ticker.register(play.db, "poll", every="1m", pause_after=2, probe="10m")
    play.run(0)
    play.run(60, reason="OSError: no route")
    after = play.task()
    assert (after.paused_by, after.paused_until) == ("ticker", play.now + 10 * MINUTE)
    assert after.paused_reason == sentence("why.auto_paused", failures=2, error="OSError: no route")
    assert events(play.db, "what, told") == [("failed", False), ("auto_paused", False)]
    play.at(120)
    play.tick()
    assert play.take() == []


@pytest.mark.slow
def test_a_probe_that_fails_pauses_it_for_twice_as_long_and_is_no_news(play):
    ticker.register(play.db, "poll", every="1m", pause_after=1, probe="10m")
    play.run(0)
    for seconds, minutes in [(601, 20), (1802, 40)]:
        play.run(seconds)
        assert play.task().paused_until == play.now + minutes * MINUTE
    paused = [
        ("auto_paused", False),
        ("resumed", False),
        ("auto_paused", True),
        ("resumed", False),
        ("auto_paused", True),
    ]
    assert [event for event in events(play.db, "what, told") if event[0] != "failed"] == paused


@pytest.mark.slow
def test_a_probe_that_succeeds_ends_it_and_a_later_pause_is_news_again(play):
    ticker.register(play.db, "poll", every="1m", pause_after=1, probe="10m")
    play.run(0)
    play.run(601, "succeeded")
    after = play.task()
    assert (after.paused_by, after.failures, due(play)) == (None, 0, 661)
    play.run(661)
    assert play.task().paused_until == play.now + 10 * MINUTE
    assert [what for what, is_told in events(play.db, "what, told") if not is_told] == [
        "auto_paused", "failed", "resumed", "recovered", "auto_paused", "failed",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_pause_is_told_of_also_where_several_failures_are_found_together(play):
    ticker.register(play.db, "poll", every="1m", pause_after=2)
    play.put(failures=1)
    play.run(0)
    play.db.execute("DELETE FROM ticker.events")
    ticker.resume(play.db, play.task())
    play.put(failures=40)
    play.run(60)
    assert ("auto_paused", False) in events(play.db, "what, told")
    assert play.task().paused_until == play.now + 60 * MINUTE


@pytest.mark.slow
def test_a_task_that_somebody_paused_is_left_to_him(play):
    task = ticker.register(play.db, "poll", every="1m", pause_after=1)
    play.tick()
    [taken] = play.take()
    ticker.pause(play.db, task, by="me", reason="moving")
    play.end(taken, "failed")
    play.tick()
    after = play.task()
    assert (after.paused_by, after.paused_reason, after.paused_until) == ("me", "moving", None)


# ----------------------------------------------------------------------------------------------- spoilt by a hand


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns",
    [
        {"backoff": "nonsense"},
        {"backoff": ""},
        {"stretch_ms": 1000},
        {"stretch_ms": 60_000, "stretched_ms": 1000},
        {"last_run": "9999-12-31T00:00:00Z", "stretch_ms": 31_622_400_000},
        {"last_run": "9999-12-31T00:00:00Z", "stretched_ms": 31_622_400_000},
        {"last_occurrence": "9999-12-31T00:00:00Z"},
        {"dead_man": 1_000_000, "alarm_at": "1970-01-01T00:00:00Z", "created_at": "9999-12-31T00:00:00Z"},
        {"alarm_at": "1970-01-01T00:00:00Z"},
        {"pause_after": 1, "probe_ms": 31_622_400_000},
        {"retries": 0},
    ],
    ids=str,
)
def test_a_row_that_a_hand_has_spoilt_costs_only_itself(play, columns):
    for name in ("spoilt", "good"):
        ticker.register(play.db, "poll", name=name, every="1m", retries=1, backoff="1s", stretch="1h")
    play.tick()
    for taken in play.take():
        play.end(taken, "failed")
    names = ", ".join(f"{name} = %s" for name in columns)
    play.db.execute(f"UPDATE ticker.tasks SET {names} WHERE name = 'spoilt'", [*columns.values()])
    for seconds in (0, 2, 4):
        play.at(seconds)
        play.tick()
        for taken in play.take():
            play.end(taken, "failed")
    play.at(6)
    play.tick()
    good = ticker.get(play.db, "good")
    assert (good.failures, good.stretched_ms) == (1, 120_000)
