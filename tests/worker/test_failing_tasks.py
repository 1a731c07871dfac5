"""A run that failed, on real servers: further attempts of its occurrence, what they may take, and what they lead to."""

from datetime import timedelta

import pytest

import ticker
from tests.factories import MINUTE
from tests.harness import events
from tests.sentences import sentence
from ticker.model import Reason

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)


@pytest.fixture
def task(play):
    """Of every minute: B = 15 s, T = 5 s, g = 1 s; a retry a second after its failure, at the latest."""
    return ticker.register(play.db, "poll", every="1m", retries=3, backoff="1s")


def ends(play):
    return [(run.kind, run.attempt, run.outcome, run.retried) for run in play.runs()]


def retry(play, seconds):
    """What a tick there pushes, started there."""
    play.at(seconds)
    play.tick()
    [taken] = play.take()
    return taken


# ------------------------------------------------------------------------------------------------- attempted again


def test_a_run_that_failed_is_attempted_again_and_a_success_ends_it_before_anybody_is_told(play, task):
    first = play.run(0, reason="OSError: no route")
    assert play.take() == []  # not yet
    second = retry(play, 2)
    assert (second.kind, second.attempt, second.refusal) == ("retry", 2, None)
    play.end(second, "succeeded")
    play.tick()
    assert ends(play) == [("scheduled", 1, "failed", True), ("retry", 2, "succeeded", False)]
    assert play.runs()[1].parent_id == first.run_id
    assert play.runs()[1].occurrence == play.runs()[0].occurrence
    after = play.task()
    assert (after.failures, after.last_outcome, play.events()) == (0, "succeeded", [])
    assert (after.last_run, after.next_run) == (play.begin, play.begin + 60 * SECOND)  # which no retry touches


def test_the_ledger_says_which_attempt_of_how_many_and_why_there_is_no_other(play, task):
    play.run(0, reason="OSError: no route")
    for seconds in (3, 6, 9):
        play.end(retry(play, seconds), "failed", "OSError: still none")
        play.tick()
    words = [line.words for line in ticker.why(play.db, task).lines if line.run]
    assert sentence("why.attempt_in_time", attempt="1 of 4").begins(words[0])
    assert sentence("why.attempt_again", attempt="2 of 4").begins(words[1])
    assert words[3].startswith("attempt 4 of 4; started ")
    assert sentence("why.no_retry_is_left", error="OSError: still none", attempt="4 of 4").ends(words[3])
    assert (play.task().failures, play.events()) == (1, ["failed"])
    play.at(40)
    play.tick()
    assert play.take() == []


@pytest.mark.parametrize(("seconds", "box"), [(2, 15), (39, 15), (45.5, 8.5), (53, 1)])
def test_a_retry_has_the_box_of_the_task_or_what_is_left_before_the_next_start(play, task, seconds, box):
    play.run(0)
    assert retry(play, seconds).box == box * SECOND


def test_a_retry_is_dead_when_the_next_start_may_come(play, task):
    play.run(0)
    retry(play, 45.5)
    [_, run] = play.runs()
    assert run.until == play.begin + 55 * SECOND


@pytest.mark.parametrize(("seconds", "refusal"), [(53, None), (53.001, Reason.NO_TIME)])
def test_under_a_second_it_is_not_made_and_counts_as_the_failure_of_its_occurrence(play, task, seconds, refusal):
    play.run(0)
    assert retry(play, seconds).refusal == refusal
    play.tick()
    if refusal:
        assert ends(play)[1] == ("retry", 2, "dropped", False)
        assert (play.task().failures, play.events()) == (1, ["failed"])
        [line] = [line for line in ticker.why(play.db, task).lines if line.what == "dropped"]
        assert sentence("why.were_left_until", left="0.999 s").within(line.words) and sentence(
            "why.under_the_limit_of", limit="1 s"
        ).within(line.words)


def test_a_run_whose_worker_is_gone_is_attempted_again_once_its_hold_is_over(play, task):
    play.tick()
    [taken] = play.take()
    play.at(16.5)  # B + g, and a half
    assert play.tick().swept.overdue == 0
    play.at(17.5)
    assert (play.tick().swept.overdue, play.task().failures) == (1, 0)
    assert (retry(play, 20).attempt, play.runs()[0].outcome) == (2, "lost")
    assert play.end(taken, "succeeded") is False  # whoever was taken for dead changes nothing any more


# ----------------------------------------------------------------------------------------- dropped, and passed by


def test_a_retry_of_a_disabled_task_is_dropped_and_counts(play, task):
    play.run(0)
    ticker.edit(play.db, task, enabled=False)
    assert retry(play, 3).refusal == Reason.PAUSED
    play.tick()
    assert (play.task().failures, play.events()) == (1, ["disabled", "failed"])


def test_a_retry_of_a_paused_task_waits_for_the_end_of_the_pause(play, task):
    play.run(0)
    ticker.pause(play.db, task, by="me")
    play.at(3)
    play.tick()
    assert play.take() == []
    ticker.resume(play.db, task)
    assert retry(play, 4).refusal is None


def test_a_retry_whose_job_waited_behind_the_next_start_is_dropped(play, task):
    play.run(0)
    play.at(3)
    play.tick()
    waits = play.redis.lpop("rq:queue:polling")
    started = play.run(60, "succeeded")
    play.redis.rpush("rq:queue:polling", waits)
    [late] = play.take()
    assert (started.kind, late.refusal, play.task().failures) == ("scheduled", Reason.NO_TIME, 0)
    play.tick()
    assert (play.task().failures, play.events()) == (1, ["failed"])


def test_a_retry_of_a_task_by_times_ends_before_the_next_time(play):
    task = ticker.register(play.db, "poll", cron="* * * * *", retries=2, backoff="1s")
    begin = play.since_begin(task.next_run)
    play.run(begin)
    assert retry(play, begin + 50).box == 9 * SECOND  # g, and no tolerance


def test_a_retry_of_a_task_by_times_does_not_stand_in_the_way_of_one_that_waits(play):
    task = ticker.register(play.db, "poll", cron="* * * * *", retries=2, backoff="5s")
    begin = play.since_begin(task.next_run)
    play.run(begin, lasts=50)
    [_, planned] = play.runs()
    assert planned.state == "planned"
    play.at(begin + 60)
    play.tick()
    assert [(taken.kind, taken.refusal) for taken in play.take()] == [("retry", Reason.NO_TIME), ("scheduled", None)]


def test_a_failure_of_a_task_by_times_is_not_attempted_again_while_the_next_time_waits(play):
    task = ticker.register(play.db, "poll", cron="* * * * *", retries=2, backoff="5s", box="58s")
    begin = play.since_begin(task.next_run)
    play.at(begin)
    play.tick()
    play.at(begin + 40)
    [taken] = play.take()
    play.at(begin + 60)
    play.tick()
    play.at(begin + 62)
    play.end(taken, "failed")
    play.tick()
    assert play.runs()[0].reason == sentence("why.no_retry_newer")


def test_with_a_task_its_retries_go(play, task):
    play.run(0)
    ticker.unregister(play.db, task)
    play.at(3)
    play.tick()
    assert play.take() == []
    assert [(run.outcome, run.reason) for run in play.runs()] == [("failed", ""), ("dropped", "gone")]


def test_an_end_of_a_task_that_is_gone_leads_to_nothing(play, task):
    play.tick()
    [taken] = play.take()
    ticker.unregister(play.db, task)
    play.end(taken, "failed")
    assert play.tick().followed.ended == 0
    assert play.db.execute("SELECT FROM ticker.runs WHERE follow_up").fetchall() == []


def test_a_retry_whose_job_died_before_it_started_counts(play, task):
    play.run(0)
    play.at(3)
    play.tick()
    with play.store.batch() as rows:
        rows.lose_planned([play.runs()[1].id], "its job died", play.now)
    play.tick()
    after = play.task()
    assert (after.failures, after.failed, play.events()) == (1, 2, ["failed"])


# ------------------------------------------------------------------------------------------------------- registered


def test_with_retries_a_task_takes_a_quarter_of_its_interval_unless_its_box_was_said(play):
    def box(name, **said):
        return ticker.register(play.db, "poll", name=name, **said).box_ms

    assert box("a", every="1m") == 30_000
    assert box("a", every="1m", retries=2) == 15_000
    assert box("a", every="2m") == 30_000
    assert box("a", retries=0) == 60_000
    assert box("b", every="1m", retries=2, box="20s") == 20_000
    assert box("b", retries=0) == 20_000
    assert box("c", cron="*/10 * * * *", retries=1) == 150_000


def test_an_operators_edit_of_the_retries_moves_the_box_and_his_box_stays(play):
    task = ticker.register(play.db, "poll", every="1m")
    assert ticker.edit(play.db, task, retries=1).box_ms == 15_000
    assert ticker.edit(play.db, task, box="20s").box_ms == 20_000
    assert ticker.edit(play.db, task, retries=0).box_ms == 20_000


# ---------------------------------------------------------------------------------------------------------- overlap


def test_with_overlap_skip_nothing_is_pushed_while_a_job_waits_or_runs(play):
    ticker.register(play.db, "poll", every="1m", overlap="skip", box="54s")
    play.tick()
    for seconds in (60, 90, 120):
        play.at(seconds)
        play.tick()
    play.at(130)
    [taken] = play.take()
    play.at(180)
    play.tick()
    assert play.take() == []
    assert events(play.db, "what, count, at, until") == [
        ("enough_jobs", 3, play.begin + MINUTE, play.begin + 3 * MINUTE)
    ]
    play.end(taken, "succeeded")
    play.run(240, "succeeded")
    assert [run.outcome for run in play.runs()] == ["succeeded"] * 2


@pytest.mark.parametrize("state", ["pushed", "processing"])
def test_with_overlap_skip_a_run_by_hand_that_waits_and_pieces_at_work_count_too(state, play):
    task = ticker.register(play.db, "poll", every="1m", overlap="skip", first=play.at(60))
    play.at(0)
    ticker.run_now(play.db, task)
    play.tick()
    play.db.execute("UPDATE ticker.runs SET state = %s, token = gen_random_uuid(), pieces = 1", [state])
    play.db.execute(
        """INSERT INTO ticker.runs (task_id, kind, parent_id, item, state, due_at)
        SELECT task_id, 'piece', id, '1', 'planned', %s FROM ticker.runs""",
        [play.begin + timedelta(hours=1)],
    )
    play.at(60)
    assert (play.tick().due.enough_jobs, [run.reason for run in play.runs() if run.occurrence]) == (1, [])
