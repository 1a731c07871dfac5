"""What the end of a run makes of its task: a retry, a longer interval, a pause, something to tell. Pure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sentences import sentence
from ticker.engine import timing
from ticker.engine.follow_up import Verdict, judge, judge_task, judge_tasks, paused, recovered, stretched
from ticker.model import GOOD, Ended, EventKind, Health, Kind, Outcome, RunKind
from ticker.schedules.duration import DAY, HOUR, LONGEST, MINUTE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
INSTANTS = st.none() | st.integers(0, 2_932_895).map(
    lambda days: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days)
)

RUN = Ended(
    run_id=7, task_id=1, kind=RunKind.SCHEDULED, occurrence=NOW - 10 * SECOND, attempt=1, outcome=Outcome.FAILED,
    reason="OSError: no route", started=True, ended_at=NOW, has_pieces=False, schedule=Kind.INTERVAL, every_ms=MINUTE, pace_ms=None, is_asked=False,
    tolerance_ms=5_000, grace_ms=1_000, last_run=NOW - 10 * SECOND, next_run=NOW + 50 * SECOND, is_past=False,
    made_good=False, failed_before=False, retries=3, backoff="2s", failures=0, told="", stretch_ms=None, stretched_ms=None, pause_after=None,
    probe_ms=None, paused=False, pauses=0, dead_man=None, alarm_at=None,
)  # fmt: skip
ONCE_ONLY = replace(RUN, retries=0, failures=1)  # its end has counted it


def health(run: Ended) -> tuple[Health, list[str]]:
    """Its task, and what is noted of it."""
    state, notes = judge_task([judge(run, NOW)], NOW)
    return state, [note.what for note in notes]


# ------------------------------------------------------------------------------------------------ further attempts


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.KILLED, Outcome.LOST])
def test_whatever_failed_is_attempted_again_after_its_backoff(outcome):
    due = judge(replace(RUN, outcome=outcome), NOW).due
    assert NOW + SECOND <= due <= NOW + 2 * SECOND


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"outcome": Outcome.SUCCEEDED}, ""),
        ({"outcome": Outcome.NOTHING_TO_DO}, ""),
        ({"retries": 0}, ""),
        ({"stopped": True}, ""),
        ({"stopped": True, "outcome": Outcome.INTERRUPTED}, ""),
        ({"kind": RunKind.MANUAL}, ""),
        ({"started": False, "outcome": Outcome.LOST}, ""),
        ({"kind": RunKind.RETRY, "started": False, "outcome": Outcome.DROPPED}, ""),
        ({"has_pieces": True}, ""),
        ({"attempt": 4, "kind": RunKind.RETRY}, sentence("why.no_retry_left", attempt="4 of 4")),
        ({"is_past": True}, sentence("why.newer_occurrence")),
        ({"ended_at": NOW - 2 * SECOND, "last_run": NOW - 53.6 * SECOND},
         sentence("why.no_time_for_a_retry", left="0.4 s", limit="1 s")),
        ({"last_run": NOW - timedelta(hours=1)},
         sentence("why.no_time_for_a_retry", left="0 s", limit="1 s")),
    ],
)  # fmt: skip
def test_what_is_not_attempted_again_says_why(changes, note):
    assert judge(replace(RUN, **changes), NOW) == Verdict(replace(RUN, **changes), None, note)


def test_a_second_that_is_just_left_is_enough():
    run = replace(RUN, ended_at=NOW - 2 * SECOND, last_run=NOW - 53 * SECOND)
    assert judge(run, NOW).due == NOW


def test_a_retry_of_a_task_by_times_is_bounded_by_the_next_one_and_of_the_last_by_nothing():
    run = replace(RUN, schedule=Kind.CRON, tolerance_ms=0, last_run=NOW - timedelta(days=1))
    assert judge(run, NOW).due
    assert judge(replace(run, next_run=NOW + 2 * SECOND), NOW).due is None
    assert judge(replace(run, next_run=None), NOW).due


def test_a_piece_of_a_run_by_hand_is_bounded_by_the_next_occurrence():
    run = replace(RUN, kind=RunKind.PIECE, occurrence=None, last_run=NOW - timedelta(days=1))
    assert judge(run, NOW).due
    assert judge(replace(run, next_run=NOW + 7 * SECOND), NOW).due is None


def test_a_good_end_beside_failures_of_others_pauses_nothing_and_tells_nobody():
    run = replace(ONCE_ONLY, outcome=Outcome.SUCCEEDED, failures=3, pause_after=3)
    state, notes = judge_task([Verdict(run)], NOW)
    assert (state.failures, state.pause_until, notes) == (3, None, [])


@pytest.mark.slow
@given(
    every=st.integers(1000, 10 * MINUTE), fraction=st.floats(0, 0.9), ago=st.floats(0, 700), backoff=st.integers(1, 400),
    attempt=st.integers(1, 5), run_id=st.integers(1, 10**6), kind=st.sampled_from([RunKind.SCHEDULED, RunKind.RETRY]),
)  # fmt: skip
def test_no_retry_is_planned_that_could_not_end_before_the_next_start(
    every, fraction, ago, backoff, attempt, run_id, kind
):
    tolerance, grace = int(fraction * every), timing.grace(every)
    run = replace(RUN, every_ms=every, tolerance_ms=tolerance, grace_ms=grace, last_run=NOW - ago * SECOND, attempt=attempt,
                  backoff=f"{backoff}s", run_id=run_id, kind=kind)  # fmt: skip
    verdict = judge(run, NOW)
    assert (verdict.due is None) == (verdict.note != "")
    if verdict.due is not None:
        assert verdict.due >= NOW and attempt <= run.retries
        assert verdict.due + SECOND + timing.span(grace) <= timing.earliest_start(run.last_run, every, tolerance)


# -------------------------------------------------------------------------------------------------- counted and told


def test_a_failure_that_is_attempted_again_is_none_yet():
    assert health(RUN) == (Health(1, 0, "", None, RUN.next_run, None), [])


def test_a_task_that_was_told_of_has_not_recovered_while_an_attempt_is_to_come():
    run = replace(RUN, told="failed", stretched_ms=2 * MINUTE, dead_man=3)
    state, notes = health(run)
    assert notes == [] and (state.told, state.stretched_ms, state.alarm_at) == ("failed", 2 * MINUTE, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.DROPPED, "started": False},
        {"outcome": Outcome.INTERRUPTED, "attempt": 4},
        {"outcome": Outcome.INTERRUPTED, "attempt": 3, "failed_before": True},
    ],
    ids=[
        "a dropped retry of an interrupted run",
        "an interrupted last attempt",
        "an interrupted attempt before the last",
    ],
)
def test_a_retry_without_a_failure_counts_for_nothing(changes):
    verdict = judge(replace(RUN, kind=RunKind.RETRY, failures=2, **changes), NOW)
    states, notes = judge_tasks([verdict], NOW)
    assert [state.failures for state in states] in ([], [2]) and notes == []


@pytest.mark.parametrize(
    ("changes", "failures"),
    [
        ({"attempt": 4, "kind": RunKind.RETRY, "failures": 2}, 3),
        ({"outcome": Outcome.DROPPED, "kind": RunKind.RETRY, "started": False, "failed_before": True}, 1),
        ({"outcome": Outcome.INTERRUPTED, "kind": RunKind.RETRY, "attempt": 4, "failed_before": True}, 1),
        ({"outcome": Outcome.LOST, "kind": RunKind.RETRY, "started": False}, 1),
        ({"is_past": True}, 1),
        ({"retries": 0, "failures": 3}, 3),
        ({"kind": RunKind.MANUAL, "failures": 3}, 3),
        ({"outcome": Outcome.LOST, "started": False, "failures": 3}, 3),
    ],
    ids=[
        "the last attempt",
        "a dropped retry",
        "an interrupted last attempt",
        "a lost retry",
        "a newer one",
        "no retries",
        "by hand",
        "given up",
    ],
)
def test_a_failed_occurrence_counts_once(changes, failures):
    state, notes = health(replace(RUN, **changes))
    assert (state.failures, state.told, notes) == (failures, "failed", [EventKind.FAILED])


def test_a_failure_behind_which_a_run_succeeded_counts_for_nothing_and_the_task_is_well():
    run = replace(RUN, is_past=True, made_good=True, told="failed")
    state, notes = health(run)
    assert (state.failures, state.told, notes) == (0, "", [EventKind.RECOVERED])


def test_two_failed_occurrences_that_a_tick_finds_together_count_as_two():
    first, second = replace(RUN, is_past=True), replace(RUN, run_id=9, attempt=4, kind=RunKind.RETRY)
    state, notes = judge_task([judge(first, NOW), judge(second, NOW)], NOW)
    assert (state.failures, [note.run_id for note in notes]) == (2, [9])


@pytest.mark.slow
@given(st.lists(st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT]), min_size=1, max_size=30))
def test_however_often_it_fails_it_is_told_once_until_it_works(outcomes):
    run, told = ONCE_ONLY, []
    for outcome in outcomes:
        failures = 0 if outcome in GOOD else run.failures + 1
        state, notes = health(replace(run, outcome=outcome, failures=failures))
        run = replace(run, failures=state.failures, told=state.told)
        told += notes
    before = [Outcome.SUCCEEDED, *outcomes]
    changes = [b not in GOOD for a, b in zip(before, outcomes, strict=False) if (a in GOOD) != (b in GOOD)]
    assert told == [EventKind.FAILED if failed else EventKind.RECOVERED for failed in changes]


def test_a_notice_says_why_in_the_words_of_the_run():
    _, [note] = judge_task([Verdict(ONCE_ONLY)], NOW)
    assert note.words == "failed: OSError: no route"
    dropped = replace(
        RUN, outcome=Outcome.DROPPED, kind=RunKind.RETRY, started=False, reason="no_time", failed_before=True
    )
    _, [note] = judge_task([judge(dropped, NOW)], NOW)
    assert note.words == sentence("why.last_attempt_dropped", reason="no_time")


# -------------------------------------------------------------------------------------------------------- stretched


STRETCHING = replace(ONCE_ONLY, stretch_ms=10 * MINUTE)


@pytest.mark.parametrize(
    ("failures", "minutes"), [(1, 2), (2, 4), (3, 8), (4, 10), (5, 10), (1_000_000, 10)]
)  # fmt: skip
def test_the_interval_doubles_with_each_failure_up_to_its_limit(failures, minutes):
    state, notes = health(replace(STRETCHING, failures=failures, told="failed"))
    assert state.stretched_ms == minutes * MINUTE
    assert state.next_run == STRETCHING.last_run + timedelta(minutes=minutes)
    assert notes == [EventKind.SLOWED]


def test_an_interval_that_is_as_long_as_it_may_be_is_no_news():
    state, notes = health(replace(STRETCHING, failures=6, told="failed", stretched_ms=10 * MINUTE))
    assert (state.next_run, notes) == (STRETCHING.last_run + timedelta(minutes=10), [])


def test_no_step_says_anything_but_numbers():
    _, [note] = stretched(STRETCHING, Health(1, 2, "failed", None, STRETCHING.next_run, None))
    assert note.words == sentence("why.slowed_in_a_row", longer="4m", every="1m", failures=2)
    _, [note] = stretched(STRETCHING, Health(1, 1, "failed", None, STRETCHING.next_run, None))
    assert note.words == sentence("why.slowed", longer="2m", every="1m", failures="1 failure")


@pytest.mark.parametrize("stretch", [None, 1000, MINUTE])
def test_a_limit_that_is_no_longer_than_the_interval_leaves_it_as_it_is(stretch):
    state, notes = health(replace(ONCE_ONLY, stretch_ms=stretch, told="failed"))
    assert (state.stretched_ms, state.next_run, notes) == (None, RUN.next_run, [])


def test_a_success_restores_the_interval_counted_from_the_last_start():
    run = replace(STRETCHING, outcome=Outcome.SUCCEEDED, failures=0, stretched_ms=8 * MINUTE, told="failed",
                  next_run=NOW + timedelta(minutes=7))  # fmt: skip
    state, notes = health(run)
    assert (state.stretched_ms, state.next_run) == (None, run.last_run + timedelta(minutes=1))
    assert notes == [EventKind.RESTORED, EventKind.RECOVERED]


def test_a_task_that_is_done_stays_so_whatever_becomes_of_its_interval():
    for outcome, failures in [(Outcome.FAILED, 2), (Outcome.SUCCEEDED, 0)]:
        run = replace(STRETCHING, outcome=outcome, failures=failures, stretched_ms=2 * MINUTE, next_run=None)
        assert health(run)[0].next_run is None


@given(
    every=st.integers(1000, LONGEST), stretch=st.integers(1000, LONGEST), failures=st.integers(1, 1_000_000),
    last_run=INSTANTS, next_run=INSTANTS,
)  # fmt: skip
def test_whatever_stands_in_the_row_the_next_run_is_never_brought_nearer_by_a_failure(
    every, stretch, failures, last_run, next_run
):
    run = replace(
        ONCE_ONLY, every_ms=every, stretch_ms=stretch, failures=failures, last_run=last_run, next_run=next_run
    )
    state, _ = health(run)
    if next_run is None:
        assert state.next_run is None
    else:
        assert next_run <= state.next_run <= timing.LATEST


# ----------------------------------------------------------------------------------------------------------- paused


PAUSING = replace(ONCE_ONLY, pause_after=3, failures=3)


def pause_of(run: Ended) -> timedelta | None:
    until = health(run)[0].pause_until
    return until and until - NOW


def test_after_so_many_failures_it_pauses_with_a_reason():
    assert pause_of(replace(PAUSING, failures=2)) is None
    state, _ = health(PAUSING)
    assert state.pause_until == NOW + timedelta(hours=1)
    assert state.pause_reason == sentence("why.auto_paused", failures=3, error="OSError: no route")


@pytest.mark.parametrize(
    ("pauses", "probe", "length"),
    [(0, None, HOUR), (1, None, 2 * HOUR), (4, None, 16 * HOUR), (5, None, DAY), (1000, None, DAY),
     (0, MINUTE, MINUTE), (3, MINUTE, 8 * MINUTE), (99, MINUTE, DAY), (0, 2 * DAY, 2 * DAY), (3, 2 * DAY, 2 * DAY)],
)  # fmt: skip
def test_each_pause_is_twice_as_long_up_to_a_day_or_what_was_asked_for(pauses, probe, length):
    assert pause_of(replace(PAUSING, pauses=pauses, probe_ms=probe)) == timing.span(length)


def test_how_many_failures_there_were_before_it_was_asked_for_does_not_make_the_first_pause_longer():
    assert pause_of(replace(PAUSING, failures=500)) == timedelta(hours=1)


def test_who_is_paused_is_not_paused_again():
    assert pause_of(replace(PAUSING, paused=True)) is None


def test_no_pause_is_longer_than_the_tables_take():
    state = paused(replace(PAUSING, probe_ms=LONGEST, pauses=10**9), Health(1, 3, "failed", None, None, None), "", NOW)
    assert state.pause_until == NOW + timing.span(LONGEST)


def test_a_success_arms_the_alarm_that_went_off_and_no_other():
    run = replace(ONCE_ONLY, outcome=Outcome.SUCCEEDED, failures=0, told="failed")
    before = Health(1, 0, "failed", None, None, None)
    assert recovered(run, before, NOW)[0].alarm_at is None
    assert recovered(replace(run, dead_man=3), before, NOW)[0].alarm_at == NOW
    later = NOW + SECOND
    assert recovered(replace(run, dead_man=3, alarm_at=later), before, NOW)[0].alarm_at == later
