"""`run.again` sets the next run of the task from within a run, once."""

import pytest

import ticker
from tests.harness import QUEUE
from tests.running import work
from tests.sentences import sentence
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.model import LARGEST_ID, RunKind
from ticker.schedules.duration import milliseconds, words
from wrappers.pipeline.context import HoldLost, Run
from wrappers.pipeline.database import Database

FUNCTIONS = """
from wrappers import task

@task("asks")
def asks(run, after):
    return str(run.again(after))
"""


@pytest.fixture
def play(play, environ):
    play.database = Database.from_environment()
    yield play
    play.database.close()


def begun(play, **given):
    ticker.register(play.db, "poll", **({"every": "1m..30m"} | given))
    play.tick()
    [taken] = play.take()
    return taken


def ask(play, taken, after, kind=RunKind.SCHEDULED):
    run = Run(taken.run_id, taken.task_id, "poll", "", "", None, None, None, taken.token, play.database, kind)
    with play.clock():
        return run.again(after)


def due(play):
    return play.since_begin(play.task().next_run)


@pytest.mark.slow
def test_the_task_is_due_then_whatever_the_run_finds_and_after_that_at_its_pace(play):
    taken = begun(play)
    play.at(1)
    assert play.since_begin(ask(play, taken, "10m")) == 601
    play.at(2)
    play.end(taken, "nothing_to_do")
    assert (due(play), play.task().pace_ms) == (601, 120_000)
    play.run(601, "nothing_to_do")
    assert (due(play), play.task().pace_ms) == (601 + 240, 240_000)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["failed", "succeeded", "nothing_to_do"])
def test_it_holds_whatever_becomes_of_the_run(outcome, play):
    taken = begun(play, stretch="1h")
    play.at(1)
    ask(play, taken, "20m")
    play.at(2)
    play.end(taken, outcome)
    play.tick()
    assert due(play) == 1201


@pytest.mark.slow
def test_a_failing_task_that_is_stretched_keeps_what_its_next_run_asks_for(play):
    ticker.register(play.db, "poll", every="1m", stretch="1h")
    play.run(0)
    stretched = due(play)
    play.at(stretched)
    play.tick()
    [taken] = play.take()
    ask(play, taken, "12h")
    play.at(stretched + 1)
    play.end(taken, "succeeded")
    play.tick()
    assert (due(play), play.task().stretched_ms) == (stretched + 12 * 3600, None)


@pytest.mark.slow
def test_the_last_call_counts_and_may_ask_for_less(play):
    taken = begun(play)
    play.at(1)
    ask(play, taken, "10m")
    assert play.since_begin(ask(play, taken, "5m")) == 301


@pytest.mark.slow
def test_it_is_not_due_before_it_may_start(play):
    taken = begun(play, tolerance="5s")
    play.at(2)
    assert play.since_begin(ask(play, taken, 1)) == 56


@pytest.mark.slow
@pytest.mark.parametrize("after", ["25h", 10**9])
@pytest.mark.parametrize(("every", "most"), [("1m..30m", "30m"), ("1m", "1d"), ("2h", "1d")])
def test_more_than_the_upper_bound_or_a_day_is_cut_to_it_with_a_warning(every, most, after, play, caplog):
    taken = begun(play, every=every)
    assert play.since_begin(ask(play, taken, after)) == due(play) == milliseconds("most", most) / 1000
    asked = words(milliseconds("asked", after, most=LARGEST_ID))
    assert (
        sentence("logs.again_cut", run=taken.run_id, task=taken.task_id, asked=asked, limit=most) == caplog.messages[-1]
    )


@pytest.mark.slow
def test_a_later_occurrence_in_the_queue_stays(play):
    ticker.register(play.db, "poll", every="1m..30m")
    play.tick()
    play.at(40)
    [taken] = play.take()
    play.at(60)
    play.tick()
    before = play.task()
    assert ask(play, taken, "10m") is None
    assert play.task() == before


@pytest.mark.slow
def test_an_earlier_job_in_the_hands_of_a_dead_worker_does_not_count(play):
    ticker.register(play.db, "poll", every="1m..30m")
    play.tick()
    play.redis.lpop(QUEUE)
    play.at(60)
    play.tick()
    [taken] = play.take()
    assert play.since_begin(ask(play, taken, "10m")) == 660


@pytest.mark.slow
def test_nothing_is_due_after_the_end_of_the_schedule(play):
    taken = begun(play, ends="2099-01-01T00:00:00Z")
    play.put(ends_at=play.at(100))
    play.at(1)
    before = play.task()
    assert ask(play, taken, "10m") is None
    assert play.task() == before


@pytest.mark.slow
def test_a_run_without_its_hold_changes_nothing(play):
    taken = begun(play)
    play.put(run_token=None, running_until=None)
    with pytest.raises(HoldLost):
        ask(play, taken, "10m")
    assert due(play) == 60


@pytest.mark.slow
def test_only_an_interval_can_be_moved(play):
    ticker.register(play.db, "poll", cron="* * * * *", first=play.begin)
    play.tick()
    [taken] = play.take()
    before = play.task()
    with pytest.raises(BadInput, match="cron"):
        ask(play, taken, "10m")
    with pytest.raises(BadInput, match="piece"):
        ask(play, taken, "10m", RunKind.PIECE)
    assert play.task() == before


@pytest.mark.slow
@pytest.mark.parametrize(("every", "back"), [("1m", 4 * 3600), ("1m..30m", 600)])
def test_after_the_clock_was_set_back_the_task_does_not_wait_for_that_time(every, back, play, environ):
    taken = begun(play, every=every)
    play.at(1)
    ask(play, taken, "5m")
    play.end(taken, "succeeded")
    play.at(-back)
    PostgresStore(environ["DATABASE_URL"]).clamp(play.now, 1000)
    assert due(play) <= 301 - back


@pytest.mark.slow
@pytest.mark.parametrize("ends", [True, False])
def test_after_the_clock_was_set_back_it_does_not_wait_for_the_time_that_a_manual_run_asked_for(ends, play, environ):
    play.end(begun(play, every="1m"), "succeeded")
    play.at(5 * 3600)
    with play.clock():
        ticker.run_now(play.db, play.task())
    play.tick()
    taken = play.take()[0]
    ask(play, taken, "5m", RunKind.MANUAL)
    if ends:
        play.end(taken, "succeeded")
    play.at(3600)
    PostgresStore(environ["DATABASE_URL"]).clamp(play.now, 1000)
    assert due(play) <= 3600 + 300


@pytest.mark.slow
def test_clocks_that_go_well_leave_it(play, environ):
    taken = begun(play, every="1m")
    play.at(1)
    ask(play, taken, "3h")
    play.at(2)
    play.end(taken, "succeeded")
    PostgresStore(environ["DATABASE_URL"]).clamp(play.now, 1000)  # a ticker that starts looks at every row
    play.tick()
    assert due(play) == 10_801


@pytest.mark.slow
def test_a_resumed_task_does_not_wait_for_it(play):
    taken = begun(play, every="1m")
    play.at(1)
    ask(play, taken, "3h")
    play.end(taken, "succeeded")
    ticker.pause(play.db, play.task())
    play.at(300)
    with play.clock():
        ticker.resume(play.db, play.task())
    assert due(play) == 300


@pytest.mark.slow
def test_people_read_who_asked(play):
    taken = begun(play)
    play.at(1)
    ask(play, taken, "10m")
    play.end(taken, "succeeded")
    play.at(70)
    with play.clock():
        said = ticker.why(play.db, play.task())
    assert sentence("why.asked_for").within(said.next)


@pytest.mark.slow
def test_a_forked_run_asks(play, store, queue, tmp_path, monkeypatch):
    (tmp_path / "asking.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ticker.register(play.db, "asks", every="5m", kwargs={"after": "40m"})
    tick(store, queue)
    work(patch="import asking")
    [run] = ticker.list_runs(play.db)
    assert run.result == str(play.task().next_run)
    assert 39 * 60 < (play.task().next_run - run.started_at).total_seconds() < 41 * 60
