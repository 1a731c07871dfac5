"""An elastic interval grows while runs find nothing to do, and returns to its lower bound with work, on real servers."""

from datetime import timedelta

import pytest

import ticker
from tests.harness import QUEUE
from tests.sentences import sentence
from ticker.db.store import PostgresStore
from ticker.errors import BadInput
from ticker.read.formatting import details, schedule_now
from ticker.tasks.preview import of_task

SECOND = timedelta(seconds=1)
MINUTE = 60_000


def due(play):
    return play.since_begin(play.task().next_run)


def pace(play):
    return (play.task().pace_ms or play.task().every_ms) // MINUTE


@pytest.mark.slow
def test_it_doubles_while_runs_find_nothing_up_to_its_upper_bound_and_work_ends_that(play):
    ticker.register(play.db, "poll", every="1m..5m")
    found = []
    for _ in range(5):
        play.run(due(play) if found else 0, "nothing_to_do")
        found.append((pace(play), due(play)))
    assert found == [(2, 120), (4, 360), (5, 660), (5, 960), (5, 1260)]
    play.run(1260, "succeeded")
    assert (pace(play), due(play)) == (1, 1320)


@pytest.mark.slow
def test_a_task_with_a_phase_is_due_at_the_next_one_if_its_lower_bound_has_passed(play):
    ticker.register(play.db, "poll", every="1m..30m", spread=True)
    play.put(pace_ms=30 * MINUTE, last_run=play.begin, next_run=play.task().next_run + 30 * MINUTE * SECOND / 1000)
    place = due(play) % 60
    play.at(600)
    ticker.run_now(play.db, play.task(), once_within="30s")
    play.tick()
    [taken] = play.take()
    play.at(601)
    play.end(taken, "succeeded")
    assert play.task().pace_ms is None
    assert 600 <= due(play) < 661 and due(play) % 60 == pytest.approx(place, abs=1e-3)


@pytest.mark.slow
def test_the_polls_that_it_saves_are_those_of_its_lower_bound(play):
    """Every minute until 1260 s are 22 polls. Of these, 6 are made."""
    ticker.register(play.db, "poll", every="1m..5m")
    made = saved = 0
    for seconds in (0, 120, 360, 660, 960, 1260):
        play.at(seconds)
        pushed = play.tick().due
        made, saved = made + pushed.enqueued, saved + pushed.saved
        [taken] = play.take()
        play.at(seconds + 1)
        play.end(taken, "nothing_to_do")
    assert (made, saved) == (6, 22 - 6)
    play.run(due(play), "succeeded")
    play.at(due(play))
    assert play.tick().due.saved == 0


@pytest.mark.slow
def test_a_quiet_task_that_fails_is_slowed_down_from_its_interval_in_force(play):
    ticker.register(play.db, "poll", every="1m..30m", stretch="1h")
    for seconds in (0, 120):
        play.run(seconds, "nothing_to_do")
    play.run(360, "failed")
    assert (pace(play), play.task().stretched_ms, due(play)) == (4, 8 * MINUTE, 840)
    slowed = sentence("schedules.interval_while_it_fails", longer="8m", every="4m")
    assert slowed.within(ticker.why(play.db, play.task()).next)
    assert slowed.ends(f"its interval is {details(play.task())['interval now']}")
    play.run(840, "nothing_to_do")
    assert (pace(play), play.task().stretched_ms, due(play)) == (8, None, 840 + 480)


@pytest.mark.slow
def test_an_interval_in_force_beyond_the_stretch_stays(play):
    ticker.register(play.db, "poll", every="1m..30m", stretch="2m")
    for seconds in (0, 120):
        play.run(seconds, "nothing_to_do")
    play.run(360, "failed")
    assert (pace(play), play.task().stretched_ms, due(play)) == (4, None, 600)
    assert "slowed" not in play.events()


@pytest.mark.slow
@pytest.mark.parametrize(("outcome", "after"), [("nothing_to_do", 240), ("succeeded", 60)])
def test_an_earlier_job_in_the_hands_of_a_dead_worker_holds_nothing_up(outcome, after, play):
    ticker.register(play.db, "poll", every="1m..30m")
    play.at(0)
    play.tick()
    play.redis.lpop(QUEUE)  # the worker dies before it asks for the start
    play.run(60, "nothing_to_do")
    assert (len(play.task().waiting), due(play)) == (1, 180)
    play.put(next_run=play.begin + 120 * SECOND)
    play.run(120, outcome)
    assert (len(play.task().waiting), due(play)) == (1, 120 + after)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["failed", "timed_out", "killed", "interrupted", "slowed_down"])
def test_a_run_that_neither_finds_work_nor_finds_none_leaves_it(outcome, play):
    ticker.register(play.db, "poll", every="1m..5m")
    play.run(0, "nothing_to_do")
    play.run(120, outcome)
    assert (pace(play), due(play)) == (2, 240)


@pytest.mark.slow
def test_a_lost_run_is_followed_after_the_interval_in_force(play):
    ticker.register(play.db, "poll", every="1m..30m")
    play.run(0, "nothing_to_do")
    play.at(120)
    play.tick()
    play.take()
    play.at(200)
    play.tick()
    assert (play.task().last_outcome, due(play)) == ("lost", 240)


@pytest.mark.slow
def test_a_start_that_waited_long_keeps_its_distance(play):
    ticker.register(play.db, "poll", every="1m..5m", tolerance="5s")
    play.run(0, "nothing_to_do")
    play.run(120, "nothing_to_do")
    play.at(360)
    play.tick()
    [taken] = (play.at(390), play.take())[1]
    play.at(395)
    play.end(taken, "succeeded")
    assert due(play) == 390 + 55 + 1


@pytest.mark.slow
def test_the_time_after_an_occurrence_in_the_queue_moves(play):
    ticker.register(play.db, "poll", every="1m..5m")
    play.tick()
    play.at(40)
    [taken] = play.take()
    play.at(60)
    play.tick()
    play.at(62)
    play.end(taken, "nothing_to_do")
    assert (pace(play), due(play), len(play.task().waiting)) == (2, 180, 1)


@pytest.mark.slow
def test_a_late_run_that_finds_work_shortens_the_time_after_the_occurrence_in_the_queue(play):
    """Its worker was late by the whole interval in force. The run of that occurrence would be too early."""
    ticker.register(play.db, "poll", every="1m..30m")
    play.put(pace_ms=5 * MINUTE)
    play.at(0)
    play.tick()
    play.at(300)
    play.tick()
    play.at(301)
    late = play.take()
    assert [taken.refusal for taken in late] == [None, "still_running"]
    play.at(302)
    play.end(late[0], "succeeded")
    assert (pace(play), due(play)) == (1, 360)


@pytest.mark.slow
@pytest.mark.parametrize(("outcome", "after"), [("nothing_to_do", (4, 360)), ("succeeded", (1, 180))])
def test_a_manual_run_shortens_it_with_work_and_leaves_it_without(outcome, after, play):
    ticker.register(play.db, "poll", every="1m..5m")
    play.run(0, "nothing_to_do")
    play.run(120, "nothing_to_do")
    play.at(125)
    ticker.run_now(play.db, play.task())
    play.tick()
    [taken] = play.take()
    play.at(126)
    play.end(taken, outcome)
    assert (pace(play), due(play)) == after


@pytest.mark.slow
def test_a_spread_task_keeps_to_the_phases_of_the_lower_bound(play):
    ticker.register(play.db, "poll", every="1m..20m", spread=True)
    phase = play.task().phase_ms / 1000
    offsets = set()
    for outcome in ("nothing_to_do",) * 6 + ("succeeded", "nothing_to_do"):
        play.run(max(due(play), 0), outcome)
        offsets.add((play.task().next_run.timestamp() - phase) % 60)
    assert offsets == {0}
    assert pace(play) == 2


@pytest.mark.slow
def test_a_clock_that_goes_well_leaves_it(play, environ):
    ticker.register(play.db, "poll", every="1m..30m")
    for _ in range(3):
        play.run(max(due(play), 0), "nothing_to_do")
    before = due(play)
    PostgresStore(environ["DATABASE_URL"]).clamp(play.now, 1000)  # a ticker that starts looks at every row
    play.tick()
    assert due(play) == before


def test_nothing_is_due_after_the_end_of_a_schedule(play):
    ticker.register(play.db, "poll", every="1m..5m", ends=play.begin + 100 * SECOND)
    play.run(0, "nothing_to_do")
    assert play.task().next_run is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "after"),
    [("1m..30m", (8, 840)), ("1m..4m", (4, 600)), ("10m..20m", (1, 840)), ("2m", (1, 480)), ("30s..40m", (8, 840))],
)
def test_new_bounds_keep_the_interval_in_force_if_it_fits(every, after, play):
    ticker.register(play.db, "poll", every="1m..30m")
    for _ in range(3):
        play.run(max(due(play), 0), "nothing_to_do")
    assert (pace(play), due(play)) == (8, 840)
    play.at(421)
    ticker.register(play.db, "poll", every=every)
    task = play.task()
    assert (task.pace_ms or MINUTE) // MINUTE == after[0]
    assert due(play) == after[1]


@pytest.mark.slow
def test_it_is_registered_again_without_a_change(play):
    ticker.register(play.db, "poll", every="1m..5m")
    play.run(0, "nothing_to_do")
    before = play.task()
    assert ticker.register(play.db, "poll", every="60s..300s") == before


@pytest.mark.slow
def test_a_success_is_missed_after_intervals_in_force(play):
    ticker.register(play.db, "poll", every="1m..30m", dead_man=2)
    for _ in range(3):
        play.run(max(due(play), 0), "nothing_to_do")
    play.put(enabled=False)
    asked = []
    for minute in (12, 22, 24):
        play.at(60 * minute)
        play.put(enabled=True, alarm_at=play.begin, next_run=play.begin + 30 * MINUTE * SECOND / 1000)
        play.tick()
        asked.append("dead_man" in play.events())
    assert asked == [False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "every", ["5m..1m", "1m..1m", "1m..", "..1m", "1m..2m..3m", "1m..400d", "100ms..1m", "1m...2m", "-1m..1m", "0..1m"]
)
def test_what_is_no_range_writes_nothing(every, play):
    with pytest.raises(BadInput, match="every"):
        ticker.register(play.db, "poll", every=every)
    assert ticker.list_tasks(play.db) == []


@pytest.mark.slow
def test_people_read_the_range_and_what_is_in_force(play):
    ticker.register(play.db, "poll", every="60s..30m")
    play.run(0, "nothing_to_do")
    play.run(120, "nothing_to_do")
    shown = details(play.task())
    assert (shown["schedule"], schedule_now(play.task())) == ("every 1m..30m", "every 1m..30m, now 4m")
    assert sentence("schedules.interval_doubled", now="4m", every="60 s").begins(shown["interval now"])
    preview = of_task(play.task(), play.begin + 121 * SECOND, 2)
    assert preview.words == "Every 1m to 30m"
    assert [play.since_begin(at) for at in preview.times] == [360, 600]
