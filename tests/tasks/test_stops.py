"""Requests to stop a run: what is recorded, what a tick makes of them, and what an end makes of its reason."""

from datetime import timedelta

import pytest

import ticker
from tests.factories import a_run
from tests.harness import finish, handed_out, start_planned
from tests.sentences import sentence
from ticker.db import sql
from ticker.engine.ports import RunAtWork
from ticker.errors import BadInput, UnknownRun
from ticker.queue.rq import RedisQueue
from ticker.read.explain import time_of_day

pytestmark = pytest.mark.slow


class Heard(RedisQueue):
    """The queue; notes which runs workers are asked to stop."""

    def __init__(self, redis):
        super().__init__(redis)
        self.stopped = []

    def stop(self, runs):
        self.stopped += runs


@pytest.fixture
def heard(play, redis):
    play.queue = Heard(redis)
    return play.queue.stopped


@pytest.fixture
def task(play):
    return ticker.register(play.db, "poll", every="1m", box="30s", retries=2)


def begun(play):
    play.tick()
    [taken] = play.take()
    return taken


def test_a_request_is_recorded_with_its_author_and_its_time_and_the_first_one_stays(play, task):
    taken = begun(play)
    asked_at = play.at(3)
    ticker.stop(play.db, taken.run_id, by="ann")
    play.at(4)
    ticker.stop(play.db, taken.run_id, by="bob")
    [run] = play.runs()
    assert (run.stop_requested_by, run.stop_requested_at, run.state) == ("ann", asked_at, "running")


def test_the_author_is_that_of_the_transaction_or_the_user_of_the_database(play, task):
    run = begun(play).run_id
    ticker.stop(play.db, run)
    assert play.runs()[0].stop_requested_by == play.db.info.user


def test_each_tick_asks_the_worker_until_the_run_has_ended(play, task, heard):
    taken = begun(play)
    play.tick()
    assert heard == []
    ticker.stop(play.db, taken.run_id, by="ann")
    play.tick()
    play.tick()
    assert heard == [("w", taken.token)] * 2
    play.end(taken, "interrupted", "stopped")
    play.tick()
    assert len(heard) == 2


def test_a_stopped_run_says_by_whom_counts_for_nothing_and_is_not_attempted_again(play, task, db):
    db.execute("INSERT INTO ticker.functions (name, repeatable, announced_at) VALUES ('poll', true, clock_timestamp())")
    taken = begun(play)
    ticker.stop(play.db, taken.run_id, by="ann")
    play.at(2)
    play.end(taken, "interrupted", "stopped")
    play.tick()
    [run] = play.runs()
    assert (run.outcome, run.reason, run.retried) == ("interrupted", "stopped by ann", False)
    assert (play.task().failures, play.task().failed, play.events()) == (0, 0, [])


def test_a_run_that_fails_before_the_stop_arrives_has_failed_and_is_not_attempted_again(play, task):
    taken = begun(play)
    ticker.stop(play.db, taken.run_id, by="ann")
    play.at(2)
    play.end(taken, "failed", "no route")
    play.tick()
    [run] = play.runs()
    assert (run.outcome, run.reason, play.task().failures) == ("failed", "no route", 1)


def test_no_other_reason_is_changed(play, task):
    taken = begun(play)
    ticker.stop(play.db, taken.run_id, by="ann")
    play.end(taken, "interrupted", "of task 7")
    assert play.runs()[0].reason == "of task 7"


@pytest.mark.parametrize("state", ["planned", "pushed"])
def test_a_run_that_has_not_started_is_dropped_by_the_next_tick(state, play, task, heard):
    [run_id] = ticker.run_now(play.db, task)
    if state == "pushed":
        play.tick()
    ticker.stop(play.db, run_id, by="ann")
    play.at(1)
    play.tick()
    [run] = [run for run in play.runs() if run.id == run_id]
    assert (run.state, run.outcome, run.reason, heard) == ("ended", "dropped", "stopped", [])
    assert play.task().dropped == 1
    assert [one.refusal for one in play.take()].count("redelivered") == (state == "pushed")
    [line] = [line for line in ticker.journal(play.db) if line.run and line.run.id == run_id]
    assert line.words == sentence("why.stopped_before_its_start", by="ann")


def test_a_dropped_retry_means_that_its_occurrence_has_failed(play, task):
    taken = begun(play)
    play.at(1)
    play.end(taken, "failed", "no route")
    play.tick()
    [retry] = [run for run in play.runs() if run.kind == "retry"]
    ticker.stop(play.db, retry.id, by="ann")
    play.tick()
    assert [(run.kind, run.outcome) for run in play.runs()] == [("scheduled", "failed"), ("retry", "dropped")]
    assert (play.task().failures, play.events()) == (1, ["failed"])


def test_a_stop_of_a_run_with_pieces_drops_those_that_have_not_started_and_stops_the_others(play, task, heard):
    run_id = handed_out(play.db, task, "1", "2", "3", occurrence=play.now, now=play.now)
    pieces = [piece.id for piece in ticker.get_run(play.db, run_id).pieces]
    token = "00000000-0000-0000-0000-000000000007"
    play.db.execute("UPDATE ticker.runs SET state = 'pushed' WHERE id = ANY (%s)", [pieces[:2]])
    assert start_planned(play.db, task, pieces[0], play.now, token=token)["refusal"] is None
    ticker.stop(play.db, run_id, by="ann")
    play.at(1)
    play.tick()
    assert heard == [("w", token)]
    assert finish(play.db, task, token, "interrupted", play.at(2), reason="stopped")
    play.tick()
    full = ticker.get_run(play.db, run_id)
    assert [(piece.outcome, piece.reason) for piece in full.pieces] == [
        ("interrupted", "stopped by ann"), ("dropped", "stopped"), ("dropped", "stopped"),
    ]  # fmt: skip
    assert (full.run.outcome, full.run.reason) == ("interrupted", "stopped by ann, 2 of 3 pieces dropped")
    assert (play.task().failures, play.task().failed, play.task().last_success_at) == (0, 0, None)


def test_a_late_end_says_by_whom_it_was_stopped(play, task, store):
    taken = begun(play)
    ticker.stop(play.db, taken.run_id, by="ann")
    play.at(40)
    play.tick()
    assert play.runs()[0].outcome == "lost"
    [row] = sql.on(play.db, "ticker")(
        "finish_late", task_id=task.id, run_id=taken.run_id, token=taken.token, outcome="interrupted", reason="stopped",
        result=None, traceback="", output="", error_output="", pid=None, age=30.0, now=play.now,
    )  # fmt: skip
    assert row["run_id"] == taken.run_id and play.runs()[0].reason == "stopped by ann"


def test_a_run_that_has_ended_is_not_stopped(play, task):
    taken = begun(play)
    play.end(taken, "succeeded")
    with pytest.raises(BadInput) as refused:
        ticker.stop(play.db, taken.run_id, by="ann")
    assert sentence("errors.run_has_ended", run=taken.run_id, outcome="succeeded") == str(refused.value)
    assert play.runs()[0].stop_requested_by is None


def test_a_run_that_is_not_there_is_unknown(play):
    with pytest.raises(UnknownRun):
        ticker.stop(play.db, 99, by="ann")


@pytest.mark.parametrize("wrong", [{"by": ""}, {"by": "a\nb"}, {"run": "poll"}, {"run": 0}, {"run": None}], ids=str)
def test_what_is_no_author_and_no_run_is_refused(wrong, play, task):
    taken = begun(play)
    with pytest.raises(BadInput):
        ticker.stop(play.db, **{"run": taken.run_id, "by": "ann", **wrong})
    assert play.runs()[0].stop_requested_by is None


def test_why_says_who_has_asked_to_stop_a_run_that_has_not_ended(play, task):
    taken = begun(play)
    ticker.stop(play.db, taken.run_id, by="ann")
    at = time_of_day(play.now, play.now)
    play.at(1)
    said = ticker.why(play.db, task)
    asked = sentence("why.asked_to_stop", by="ann", at=at)
    assert asked.within("\n".join(line.words for line in said.lines)) and asked.within("\n".join(said.next))


def test_the_command_reaches_the_channel_of_the_worker(queue, redis):
    with redis.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("rq:pubsub:w1")
        channel.get_message(timeout=5)
        queue.stop([RunAtWork("w1", "token")])
        message = next(filter(None, (channel.get_message(timeout=5) for _ in range(3))))
    assert message["data"] == b'{"command": "ticker-stop", "token": "token"}'


def test_a_request_makes_work_for_a_tick_that_would_be_idle(play, store):
    assert store.look(None, 0).idle_at is None  # the first one looks at all rows
    store.clamp(None, 100)
    assert store.look(None, 0).idle_at is not None
    task = ticker.register(play.db, "poll", every="1m", first=play.now + timedelta(hours=1))
    a_run(play.db, task, state="running", outcome=None, ended_at=None, started_at=play.now, until=play.at(60),
          token="00000000-0000-0000-0000-000000000007")  # fmt: skip
    assert store.look(None, 0).idle_at is not None
    play.db.execute("UPDATE ticker.runs SET stop_requested_by = 'ann'")
    assert store.look(None, 0).idle_at is None
