"""Retention of runs that led to others, and a walk past what takes too long: one family, one fate; no row stops the others."""

import threading

import psycopg
import pytest

from tests.daemon.retention import DAY, HOUR, event, lap, left, newer, of, put
from tests.plans import indexes, nodes, plan, read_whole
from tests.sentences import sentence
from ticker.daemon import prune
from ticker.daemon.prune import Pruned, Pruner
from ticker.db import sql
from ticker.errors import ConfigurationError
from ticker.settings import Settings

ANY = pytest.approx(0, abs=60)


def family(db, task, outcome, age, pieces=25, **columns):
    """The ids of a run, and of its pieces, which succeeded."""
    parent = put(db, task, outcome, age, pieces=pieces, **columns)
    return [parent, *(put(db, task, "succeeded", age, kind="piece", parent_id=parent) for _ in range(pieces))]


def old_problems(db, task, count=10):
    return [put(db, task, "failed", 91 * DAY) for _ in range(count)]


def many_successes(db, task, count):
    """Of the last hours, one each 10 s."""
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, outcome, created_at, ended_at)"
        " SELECT %s, 'manual', 'ended', 'succeeded', i.at, i.at FROM generate_series(%s, 1, -1) n,"
        " LATERAL (SELECT clock_timestamp() - n * interval '10 s' AS at) i",
        [task, count],
    )


# --------------------------------------------------------------------------------------------------- one fate


@pytest.mark.slow
def test_the_last_20_are_runs_however_many_pieces_each_of_them_made(db, store):
    task = of(db)
    oldest = family(db, task, "succeeded", 101 * DAY)
    kept = [id_ for _ in range(20) for id_ in family(db, task, "succeeded", 100 * DAY)]
    assert lap(store, dry=True).successes == len(oldest)
    assert lap(store).successes == len(oldest)
    assert left(db) == kept


@pytest.mark.slow
def test_drops_count_among_the_last_20_and_retries_do_not(db, store):
    task = of(db)
    put(db, task, "dropped", 101 * DAY)
    kept = newer(db, task, "dropped", 10, 100 * DAY)
    for _ in range(10):
        first = put(db, task, "failed", 100 * DAY, retried=True)
        kept += [first, put(db, task, "succeeded", 100 * DAY, kind="retry", parent_id=first, attempt=2)]
    lap(store)
    assert left(db) == kept


@pytest.mark.slow
def test_pieces_and_retries_of_a_problem_stay_as_long_as_it_does(db, store):
    task = of(db, "problems")
    kept = family(db, task, "failed", 80 * DAY)
    first = put(db, task, "failed", 80 * DAY, retried=True)
    again = put(db, task, "succeeded", 80 * DAY, kind="retry", parent_id=first, attempt=2, pieces=1)
    kept += [first, again, put(db, task, "succeeded", 80 * DAY, kind="piece", parent_id=again)]
    family(db, task, "succeeded", 3 * HOUR)
    assert lap(store).successes == 26
    assert left(db) == kept


@pytest.mark.slow
def test_a_family_goes_at_once_also_where_a_batch_ends_within_it(db, store, monkeypatch):
    monkeypatch.setattr(prune, "MOST", 4)
    first = put(db, 99, "failed", 91 * DAY, retried=True)
    again = put(db, 99, "failed", 91 * DAY, kind="retry", parent_id=first, attempt=2, pieces=9)
    for _ in range(9):
        put(db, 99, "succeeded", 91 * DAY, kind="piece", parent_id=again)
    expected = Pruned(successes=9, failures=2, seconds=ANY)
    assert lap(store, dry=True) == expected
    assert lap(store) == expected


@pytest.mark.slow
def test_a_run_waits_for_the_last_of_its_retries_to_be_old_enough(db, store):
    task = of(db, "none")
    first = put(db, task, "failed", 3 * HOUR, retried=True)
    again = put(db, task, "succeeded", HOUR, kind="retry", parent_id=first, attempt=2)
    lap(store)
    assert left(db) == [first, again]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["piece", "retry"])
def test_a_piece_or_a_retry_whose_run_is_gone_goes_after_two_hours(db, store, kind):
    task = of(db)
    gone = put(db, task, "succeeded", 3 * HOUR)
    put(db, task, "succeeded", 3 * HOUR, kind=kind, parent_id=gone)
    young = put(db, task, "succeeded", HOUR, kind=kind, parent_id=gone)
    db.execute("DELETE FROM ticker.runs WHERE id = %s", [gone])
    lap(store)
    assert left(db) == [young]


# ------------------------------------------------------------------------------------------- never at a stand


def test_the_last_problems_of_a_task_are_looked_for_once_for_a_batch(db):
    """Each of ten old problems looked through all newer successes by itself: with 864,000 that stopped the laps."""
    task = of(db, "problems")
    old_problems(db, task, 10)
    many_successes(db, task, 700)  # of less than two hours
    db.execute("ANALYZE ticker.runs")
    assert rows_read(db, limit=10) < 2 * 700


def rows_read(db, **parameters):
    """How many records of runs a batch visits."""
    values = {"now": None, "after": 0, "dry": True, "successes_ms": 7_200_000, "failures_ms": 7_200_000} | parameters
    [[[found]]] = db.execute(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.statements('ticker')['prune_runs']}", values
    ).fetchall()
    return sum(n["Actual Rows"] * n["Actual Loops"] for n in nodes(found["Plan"]) if n.get("Relation Name") == "runs")


def slow_at(monkeypatch, store, bad):
    """A batch with this row is interrupted as one that took too long."""
    page = prune._page

    def interrupted(given, statement, *rest, after, limit, dry):
        with store.transaction() as execute:
            ids = [row["id"] for row in execute("list_runs", task_id=None, outcome=None, before=None, limit=10_000)]
            if statement == "prune_runs" and bad in sorted(id_ for id_ in ids if id_ > after)[:limit]:
                raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return page(given, statement, *rest, after=after, limit=limit, dry=dry)

    monkeypatch.setattr(prune, "_page", interrupted)


@pytest.mark.slow
def test_a_row_that_takes_too_long_by_itself_is_passed_by_and_said(db, store, monkeypatch, caplog):
    ids = [put(db, 99, "failed", 91 * DAY) for _ in range(30)]
    event(db, 99, 91 * DAY)
    slow_at(monkeypatch, store, ids[7])
    assert lap(store) == Pruned(failures=29, events=1, seconds=ANY)
    assert left(db) == [ids[7]]
    assert caplog.messages == [sentence("logs.records_stay_row", run=ids[7])]


def test_behind_an_interrupted_batch_the_ticker_rests_and_may_stop(db, store, monkeypatch, caplog):
    slow_at(monkeypatch, store, put(db, 99, "failed", 91 * DAY))
    stopping = threading.Event()
    stopping.set()
    Pruner(store, Settings(), stopping).attempt()
    assert caplog.messages == []  # stopped after the first of the six batches that it would have taken to pass by


def test_where_runs_cannot_be_pruned_events_are(db, store):
    event(db, 99, 91 * DAY)
    db.execute("ALTER TABLE ticker.runs RENAME TO away")
    with pytest.raises(ConfigurationError, check=sentence("errors.tables_do_not_fit").within):
        lap(store)
    assert left(db, "events") == []


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "index"), [("next_run", "runs_pkey"), ("next_event", "events_pkey")])
def test_the_row_to_pass_by_is_found_by_its_key(db, statement, index):
    db.execute("SET enable_seqscan = off")
    found = plan(db, statement, after=7)
    assert indexes(found) == {index} and not read_whole(found)
