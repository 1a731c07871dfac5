"""`run_now(once_within=)`: many calls are few runs, and none of the calls is without a run that starts after it."""

from datetime import timedelta
from threading import Barrier, Thread

import psycopg
import pytest

import ticker
from tests.harness import command
from ticker.db.store import PostgresStore
from ticker.errors import BadInput


def once(play, within="30s"):
    with play.clock():
        [run] = ticker.run_now(play.db, play.task(), once_within=within)
    return run


def manual(play):
    return [run for run in play.runs() if run.kind == "manual"]


@pytest.fixture
def quiet(play):
    """A task that found nothing twice, at 130 s: its interval is 4 min, and it is due at 360 s."""
    ticker.register(play.db, "poll", every="1m..30m")
    play.run(0, "nothing_to_do")
    play.run(120, "nothing_to_do")
    play.at(130)
    return play


def work_off(play, outcome="succeeded"):
    play.tick()
    for taken in play.take():
        assert play.end(taken, outcome)


@pytest.mark.slow
def test_a_burst_is_one_run(quiet):
    assert len({once(quiet) for _ in range(20)}) == 1
    quiet.tick()
    assert len({once(quiet) for _ in range(20)} | {run.id for run in manual(quiet)}) == 1


@pytest.mark.slow
def test_a_call_while_one_is_at_work_plans_another_which_keeps_away(quiet):
    first = once(quiet)
    quiet.tick()
    [taken] = quiet.take()
    quiet.at(133)
    second = once(quiet)
    assert second != first
    assert quiet.since_begin(manual(quiet)[1].due_at) == 160
    quiet.end(taken, "succeeded")
    quiet.at(150)
    quiet.tick()
    assert (once(quiet), quiet.take()) == (second, [])
    quiet.at(160)
    work_off(quiet)
    assert [run.outcome for run in manual(quiet)] == ["succeeded", "succeeded"]


@pytest.mark.slow
def test_a_long_distance_holds_through_ticks(quiet, environ):
    once(quiet, "10m")
    quiet.tick()
    [taken] = quiet.take()
    quiet.at(133)
    once(quiet, "10m")
    quiet.end(taken, "succeeded")
    for seconds in (135, 200, 729):
        quiet.at(seconds)
        PostgresStore(environ["DATABASE_URL"]).clamp(quiet.now, 1000)  # a ticker that starts looks at every row
        quiet.tick()
        assert (quiet.since_begin(manual(quiet)[1].due_at), manual(quiet)[1].state) == (730, "planned")
    quiet.at(730)
    quiet.tick()
    assert manual(quiet)[1].state == "pushed"


@pytest.mark.slow
def test_after_the_clock_was_set_back_it_keeps_its_distance_from_now(quiet):
    once(quiet)
    work_off(quiet)
    quiet.at(130 - 4 * 3600)
    once(quiet)
    assert quiet.since_begin(manual(quiet)[1].due_at) == 130 - 4 * 3600 + 30


@pytest.mark.slow
def test_a_call_long_after_the_last_is_due_at_once(quiet):
    once(quiet)
    work_off(quiet)
    quiet.at(161)
    once(quiet)
    assert quiet.since_begin(manual(quiet)[1].due_at) == 161


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["succeeded", "nothing_to_do"])
def test_the_interval_is_its_lower_bound_again_whatever_the_run_finds(outcome, quiet):
    assert quiet.since_begin(quiet.task().next_run) == 360
    once(quiet)
    assert (quiet.task().pace_ms, quiet.since_begin(quiet.task().next_run)) == (None, 180)
    work_off(quiet, outcome)
    assert quiet.task().pace_ms is None


@pytest.mark.slow
@pytest.mark.parametrize("says", ["call", "manual run"])
def test_a_quiet_task_whose_lower_bound_has_passed_is_due_now_and_not_late(says, quiet):
    ticker.edit(quiet.db, quiet.task(), catch_up="none")
    if says == "call":
        quiet.at(320)
        once(quiet)
    else:
        quiet.at(310)
        once(quiet)
        ticker.edit(quiet.db, quiet.task(), every="1m..20m")
        quiet.put(pace_ms=240_000, next_run=quiet.begin + timedelta(seconds=360))
        quiet.at(320)
        work_off(quiet)
    assert (quiet.task().pace_ms, quiet.since_begin(quiet.task().next_run)) == (None, 320)
    quiet.tick()
    assert [run.reason for run in quiet.runs() if run.reason == "missed"] == []
    assert len(quiet.task().waiting) == 1


@pytest.mark.slow
def test_a_plain_interval_stays_as_it_is(play):
    ticker.register(play.db, "poll", every="1m")
    play.run(0, "succeeded")
    before = play.task()
    play.at(10)
    once(play)
    assert play.task() == before


def test_all_tasks_of_an_owner_take_part(play):
    for name in ("a", "b", "c"):
        ticker.register(play.db, "poll", every="1h..2h", owner="box:1", name=name)
    first = ticker.run_now(play.db, owner="box:1", once_within=5)
    assert len(first) == 3
    play.db.execute("DELETE FROM ticker.runs WHERE id = %s", [first[1]])
    again = ticker.run_now(play.db, owner="box:1", once_within=5)
    assert (again[0], again[1], len(again)) == (first[0], first[2], 3)


@pytest.mark.slow
@pytest.mark.parametrize("within", ["0.5s", "61m", -1, "soon", float("nan")])
def test_what_is_no_distance_plans_nothing(within, quiet):
    with pytest.raises(BadInput, match="once_within"):
        once(quiet, within)
    assert manual(quiet) == []


@pytest.mark.slow
def test_calls_of_several_processes_are_one_run(quiet, database_url):
    start, task = Barrier(6), quiet.task().id

    def call():
        with psycopg.connect(database_url, autocommit=True) as db:
            start.wait()
            for _ in range(10):
                ticker.run_now(db, task, once_within="30s")

    threads = [Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(manual(quiet)) == 1


@pytest.mark.slow
def test_the_command_joins_runs_too(quiet, environ):
    for _ in range(3):
        command("run-now", "poll", "--once-within", "30s")
    command("run-now", "poll", "--once-within", "2h", code=2)
    assert len(manual(quiet)) == 1
