"""Each end counts once in its minute: whatever is written late, changed, held open or pruned, and however many tickers close it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import ticker
from tests.factories import a_drop, a_run
from tests.harness import command, finish, start
from tests.running import until
from tests.sentences import sentence
from ticker import clock
from ticker.daemon import minutes
from ticker.daemon.minutes import Roller, closed
from ticker.daemon.prune import lap
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.settings import Settings

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
OVER = MINUTE + 70 * SECOND  # after the beginning of a minute, it may be closed


def roll(store: PostgresStore, now: datetime | None = None, settings: Settings | None = None) -> int:
    """Closes what is over at `now`, or now. Returns the number of steps."""
    with clock.use(lambda: now) if now else clock.use(lambda: None):  # type: ignore[arg-type,return-value]
        return len([*closed(store, settings or Settings())])


def counts(db, table="minutes"):
    rows = db.execute(f"SELECT function, outcome, sum(count)::int FROM ticker.{table} WHERE count <> 0 GROUP BY 1, 2")
    return {(function, outcome): count for function, outcome, count in rows}


def begin_at(db, at: datetime) -> None:
    """The minute before this one is the newest closed one."""
    db.execute("INSERT INTO ticker.closed_minutes (at) VALUES (%s)", [at - MINUTE])


@pytest.fixture
def task(db):
    return ticker.register(db, "poll", every="1m", queue="mail")


@contextmanager
def another(database_url: str) -> Iterator[psycopg.Connection]:
    """Another session, whose transaction the test ends."""
    with connect(database_url) as db:
        db.execute("BEGIN")
        yield db


# ------------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.slow
def test_a_minute_has_counts_sums_and_buckets_of_what_ended_in_it(db, store, task):
    begin_at(db, NINE)
    for late, took in ((0.5, 0.02), (3, 1.0), (3.5, 1.1)):
        due = NINE + late * SECOND
        a_run(db, task, queue="mail", occurrence=NINE + took * MINUTE / 1000, started_at=NINE + took * MINUTE / 1000 + late * SECOND,
              ended_at=NINE + took * MINUTE / 1000 + (late + took) * SECOND, created_at=due)  # fmt: skip
    a_drop(db, task, "too_early", checked_at=NINE + SECOND, occurrence=NINE + 3 * SECOND)
    roll(store, NINE + OVER)
    rows = db.execute(
        "SELECT outcome, reason, function, queue, kind, count, started, late_ms, took_ms, late, took FROM ticker.minutes ORDER BY outcome"
    ).fetchall()
    assert rows == [
        ("dropped", "too_early", "poll", "", "scheduled", 1, 0, 0, 0, [], []),
        ("succeeded", "", "poll", "mail", "scheduled", 3, 3, 7000, 2120, [1, 0, 2], [1, 0, 0, 0, 0, 2]),
    ]


def test_a_lost_run_and_a_run_in_pieces_have_no_duration(db, store, task):
    begin_at(db, NINE)
    a_run(db, task, outcome="lost")
    a_run(db, task, pieces=3)
    roll(store, NINE + OVER)
    assert db.execute("SELECT sum(started), sum(took_ms), sum(cardinality(took)) FROM ticker.minutes").fetchone() == (
        2,
        0,
        0,
    )


def test_a_retry_is_late_after_its_own_due_time(db, store, task):
    begin_at(db, NINE)
    a_run(
        db,
        task,
        kind="retry",
        occurrence=NINE - HOUR,
        due_at=NINE,
        started_at=NINE + SECOND,
        ended_at=NINE + 2 * SECOND,
    )
    roll(store, NINE + OVER)
    assert db.execute("SELECT late_ms FROM ticker.minutes").fetchone() == (1000,)


@pytest.mark.slow
def test_functions_beyond_the_first_200_count_as_others(db, store, task):
    begin_at(db, NINE)
    for number in range(203):
        a_run(db, task, function=f"f{number}")
    a_run(db, task, function="f7")
    roll(store, NINE + OVER)
    found = counts(db)
    assert len(found) == 201 and found["f7", "succeeded"] == 2 and found["(other)", "succeeded"] == 3
    a_run(db, task, function="f99")
    roll(store, NINE + OVER)
    assert counts(db)["(other)", "succeeded"] == 4


@pytest.mark.slow
def test_an_hour_adds_up_its_minutes_and_does_so_again_after_a_change(db, store, task):
    begin_at(db, NINE)
    for number in (0, 1, 59):
        a_run(db, task, ended_at=NINE + number * MINUTE + SECOND)
    db.execute("INSERT INTO ticker.queue_minutes (at, queue, samples, listening, busy, waiting, needed)"
               " VALUES (%s, 'mail', 2, 8, 6, 4, 5), (%s, 'mail', 2, 8, 8, 0, 3)", [NINE, NINE + MINUTE])  # fmt: skip
    roll(store, NINE + 58 * MINUTE + OVER)
    assert counts(db, "hours") == {}
    roll(store, NINE + 59 * MINUTE + OVER)
    assert counts(db, "hours") == {("poll", "succeeded"): 3}
    assert db.execute("SELECT took_ms, took FROM ticker.hours").fetchall() == db.execute(
        "SELECT sum(took_ms), ticker.sum_counts(took) FROM ticker.minutes").fetchall()  # fmt: skip
    assert db.execute("SELECT * FROM ticker.queue_hours").fetchall() == [(NINE, "mail", 4, 16, 14, 4, 5)]
    a_run(db, task, ended_at=NINE + SECOND)
    roll(store, NINE + 59 * MINUTE + OVER)
    assert counts(db, "hours") == {("poll", "succeeded"): 4}


# ------------------------------------------------------------------------------------------------------------- when


def test_a_minute_is_closed_when_it_has_been_over_for_70_seconds(db, store, task):
    begin_at(db, NINE)
    a_run(db, task)
    roll(store, NINE + OVER - SECOND)
    assert counts(db) == {}
    roll(store, NINE + OVER)
    assert counts(db) == {("poll", "succeeded"): 1}


def test_the_first_ticker_begins_with_the_last_hour(db, store, task):
    a_run(db, task, ended_at=NINE - HOUR + SECOND)
    a_run(db, task, ended_at=NINE - HOUR - SECOND)
    db.execute("DELETE FROM ticker.minute_changes")
    roll(store, NINE + OVER)
    assert db.execute("SELECT min(at), max(at), count(*) FROM ticker.closed_minutes").fetchone() == (
        NINE - HOUR,
        NINE,
        61,
    )
    assert sum(counts(db).values()) == 1


@pytest.mark.slow
def test_after_an_outage_each_minute_is_closed_oldest_first_up_to_those_that_are_kept(db, store, monkeypatch):
    begin_at(db, NINE - 40 * 24 * HOUR)
    monkeypatch.setattr(minutes, "KEPT_MS", 3 * 3_600_000)
    roll(store, NINE + OVER)
    assert db.execute("SELECT min(at), count(*) FROM ticker.closed_minutes WHERE at > %s", [NINE - 10 * HOUR]).fetchone() == (
        NINE - 3 * HOUR, 181)  # fmt: skip


def test_after_the_clock_was_set_back_minutes_are_closed_again_when_they_are_over_again(db, store, task):
    begin_at(db, NINE)
    for number in range(10):
        a_run(db, task, ended_at=NINE + number * MINUTE + SECOND)
    roll(store, NINE + 9 * MINUTE + OVER)
    a_run(db, task, function="again", ended_at=NINE + 5 * MINUTE + 30 * SECOND)
    db.execute("DELETE FROM ticker.minute_changes")  # as if it had ended just now
    roll(store, NINE + 2 * MINUTE + OVER)
    assert counts(db) == {("poll", "succeeded"): 3}
    roll(store, NINE + 9 * MINUTE + OVER)
    assert counts(db) == {("poll", "succeeded"): 10, ("again", "succeeded"): 1}


# -------------------------------------------------------------------------------------------------------- exactly once


def test_an_end_of_now_leaves_no_change_and_a_late_one_does(db, task):
    started = store_now(db)
    for age, changes in ((0, 0), (15, 1)):
        begun = start(db, task, started + age * SECOND, started - 20 * SECOND)
        finish(db, task, begun["token"], now=None, age=age)
        db.execute("UPDATE ticker.tasks SET last_run = NULL, last_occurrence = NULL")
        assert db.execute("SELECT count(*) FROM ticker.minute_changes").fetchone() == (changes,)


@pytest.mark.slow
def test_what_a_deletion_ends_counts_however_long_its_transaction_takes(db, database_url, store, task):
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[next_run]")
    with another(database_url) as other:
        other.execute("DELETE FROM ticker.tasks")
        roll(store, store_now(db) + 5 * MINUTE)
        assert counts(db) == {}
        db.execute("UPDATE ticker.closed_minutes SET horizon = NULL")  # as if it had been too old to be counted again
        other.execute("COMMIT")
    roll(store, store_now(db) + 5 * MINUTE)
    assert db.execute("SELECT outcome, reason, queue, count FROM ticker.minutes").fetchall() == [
        ("dropped", "gone", "mail", 1)
    ]


@pytest.mark.slow
def test_what_an_edit_ends_counts_however_long_its_transaction_takes(db, database_url, store, task):
    db.execute("UPDATE ticker.tasks SET returned = next_run")
    with another(database_url) as other:
        other.execute("UPDATE ticker.tasks SET next_run = next_run + interval '1 hour'")
        roll(store, store_now(db) + 5 * MINUTE)
        db.execute("UPDATE ticker.closed_minutes SET horizon = NULL")  # as if it had been too old to be counted again
        other.execute("COMMIT")
    roll(store, store_now(db) + 5 * MINUTE)
    assert db.execute("SELECT outcome, reason, queue, count FROM ticker.minutes").fetchall() == [
        ("dropped", "superseded", "mail", 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_an_end_whose_transaction_is_open_while_its_minute_is_closed_counts_once_it_is_committed(
    ends, db, database_url, store, task
):
    """Its end was not late, so it leaves no change: the minute is counted again."""
    now = store_now(db)
    roll(store, now - MINUTE)
    begun = start(db, task, now, now - SECOND)
    with another(database_url) as other:
        assert finish(other, task, begun["token"], now=None)
        roll(store, now + 5 * MINUTE)
        assert counts(db) == {}
        assert other.execute("SELECT count(*) FROM ticker.minute_changes").fetchone() == (0,)
        other.execute(ends)
    roll(store, now + 5 * MINUTE)
    assert sum(counts(db).values()) == (ends == "COMMIT")
    assert roll(store, now + 5 * MINUTE) == 0


def test_a_late_end_whose_transaction_is_open_while_its_minute_is_closed_counts_once(db, database_url, store, task):
    begin_at(db, NINE)
    with another(database_url) as other:
        a_run(other, task)
        roll(store, NINE + OVER)
        assert counts(db) == {}
        other.execute("COMMIT")
    roll(store, NINE + OVER)
    assert counts(db) == {("poll", "succeeded"): 1}
    roll(store, NINE + 2 * OVER)
    assert counts(db) == {("poll", "succeeded"): 1}
    assert db.execute("SELECT count(*) FROM ticker.minute_changes").fetchone() == (0,)


def test_a_late_end_that_is_in_the_snapshot_of_its_minute_counts_once(db, store, task):
    begin_at(db, NINE)
    a_run(db, task)
    assert db.execute("SELECT count(*) FROM ticker.minute_changes").fetchone() == (1,)
    roll(store, NINE + OVER)
    assert counts(db) == {("poll", "succeeded"): 1}


def test_a_corrected_end_moves_to_its_minute(db, store, task):
    begin_at(db, NINE)
    id_ = a_run(db, task, outcome="lost", ended_at=NINE + MINUTE)
    roll(store, NINE + MINUTE + OVER)
    db.execute("UPDATE ticker.runs SET outcome = 'succeeded', ended_at = %s WHERE id = %s", [NINE + SECOND, id_])
    db.execute("DELETE FROM ticker.runs")
    roll(store, NINE + MINUTE + OVER)
    assert db.execute("SELECT at, outcome, count, took_ms FROM ticker.minutes WHERE count <> 0").fetchall() == [
        (NINE, "succeeded", 1, 1000)]  # fmt: skip


def test_on_another_server_ids_of_transactions_mean_nothing(db, store, task, environ):
    """After a restore, they begin anew. What the dump holds is applied; what comes later is in no snapshot."""
    begin_at(db, NINE)
    a_run(db, task)
    roll(store, NINE + OVER)
    db.execute("UPDATE ticker.closed_minutes SET xact = 10::bigint ^ 12, snapshot = '1000000000000:1000000000000:'")
    db.execute("UPDATE ticker.installation SET marker_oid = 1")
    a_run(db, task, function="before")
    db.execute("UPDATE ticker.minute_changes SET xact = 10::bigint ^ 12 + 1")
    command("db", "adopt", "--resume")
    a_run(db, task, function="after")
    roll(store, NINE + OVER + MINUTE)
    assert counts(db) == {("poll", "succeeded"): 1, ("before", "succeeded"): 1, ("after", "succeeded"): 1}
    assert db.execute("SELECT count(*) FROM ticker.closed_minutes WHERE horizon > 1").fetchone() == (0,)


def test_two_tickers_do_not_close_the_same_minute(db, database_url, store, task):
    begin_at(db, NINE)
    a_run(db, task)
    rival = PostgresStore(database_url)
    with clock.use(lambda: NINE + OVER), rival.transaction() as execute:
        [minute] = execute("next_minute", now=clock.now(), keep_ms=10**12)
        assert roll(store, NINE + OVER) == 0
        execute("close_minute", at=minute["at"], outcomes=["succeeded"], reasons=[])
    rival.close()
    assert counts(db) == {("poll", "succeeded"): 1}


def test_a_change_waits_while_its_minute_is_counted_again(db, database_url, store, task):
    begin_at(db, NINE)
    a_run(db, task)
    roll(store, NINE + OVER)
    a_run(db, task)
    db.execute("UPDATE ticker.closed_minutes SET horizon = '1' WHERE at = %s", [NINE])
    rival = PostgresStore(database_url)
    with rival.transaction() as execute:
        [minute] = execute("next_minute", now=NINE + OVER, keep_ms=10**12)
        assert minute["at"] == NINE
        assert roll(store, NINE + OVER) == 0
        execute("close_minute", at=NINE, outcomes=["succeeded"], reasons=[])
    rival.close()
    roll(store, NINE + OVER)
    assert counts(db) == {("poll", "succeeded"): 2}


# --------------------------------------------------------------------------------------------------------- keeping


@pytest.mark.slow
def test_no_record_is_pruned_before_its_minute_is_closed(db, store):
    task = ticker.register(db, "poll", every="1m", keep="none")
    begin_at(db, NINE)
    a_run(db, task, ended_at=NINE + MINUTE)
    with clock.use(lambda: NINE + 5 * HOUR):
        for statement in ("prune_runs",):
            page = store.execute(
                statement, now=clock.now(), after=0, limit=10, dry=False, successes_ms=1, failures_ms=1
            )[0]
            assert page["successes"] == 0
        assert sum(pruned.successes for pruned in lap(store, Settings())) == 1  # a lap closes minutes first
    assert counts(db) == {("poll", "succeeded"): 1}


@pytest.mark.slow
def test_minutes_are_kept_for_30_days_and_hours_for_400(db, store):
    now = store_now(db)
    for days in (29, 31, 399, 401):
        for table in ("minutes", "hours"):
            db.execute(f"INSERT INTO ticker.{table} VALUES (%s, 'f', 'q', 'succeeded', '', 'scheduled', 1, 1, 0, 0, '{{}}', '{{}}')",
                       [now - days * 24 * HOUR])  # fmt: skip
        for table in ("queue_minutes", "queue_hours", "closed_minutes"):
            columns, values = ("at", "%s") if table == "closed_minutes" else ("at, queue", "%s, 'q'")
            db.execute(f"INSERT INTO ticker.{table} ({columns}) VALUES ({values})", [now - days * 24 * HOUR])
    store.execute("prune_minutes", now=now, keep_ms=minutes.KEPT_MS, limit=100)
    for table, kept in (("minutes", 1), ("hours", 3), ("queue_minutes", 1), ("queue_hours", 3)):
        assert db.execute(f"SELECT count(*) FROM ticker.{table}").fetchone() == (kept,), table
    assert db.execute(
        "SELECT count(*) FROM ticker.closed_minutes WHERE at < %s", [now - 30 * 24 * HOUR]
    ).fetchone() == (0,)


def store_now(db) -> datetime:
    return db.execute("SELECT clock_timestamp()").fetchone()[0]


# ------------------------------------------------------------------------------------------------------- the thread


@pytest.mark.slow
def test_the_thread_survives_errors_and_stops(db, store, caplog, monkeypatch):
    stopping = threading.Event()
    roller = Roller(store, Settings(), stopping)
    monkeypatch.setattr(minutes, "EVERY", 0.01)
    db.execute("ALTER TABLE ticker.closed_minutes RENAME TO hidden")
    roller.start()
    until(lambda: sentence("logs.minutes_later").within(caplog.text), "an error is logged")
    db.execute("ALTER TABLE ticker.hidden RENAME TO closed_minutes")
    until(lambda: db.execute("SELECT count(*) FROM ticker.closed_minutes").fetchone() == (61,), "all is closed")
    stopping.set()
    roller.join(10)
    assert not roller.is_alive()


@pytest.mark.slow
def test_the_duration_of_an_announced_function_is_measured_with_each_minute(db, store, task):
    """It is the mean of the last ten minutes in which runs have ended. A lost run has no duration, and a drop no start."""
    db.execute("INSERT INTO ticker.functions (name) VALUES ('poll'), ('idle')")
    begin_at(db, NINE)
    for number, (took, outcome) in enumerate(((1.0, "succeeded"), (3.0, "failed"), (50.0, "lost"))):
        begun = NINE + number * SECOND
        a_run(db, task, occurrence=begun, started_at=begun, ended_at=begun + took * SECOND, outcome=outcome)
    a_drop(db, task, "too_early", checked_at=NINE + SECOND, occurrence=NINE + 30 * SECOND)
    for later in (0, 5):
        roll(store, NINE + OVER + later * MINUTE)
        assert db.execute("SELECT name, mean_ms FROM ticker.functions ORDER BY name").fetchall() == [
            ("idle", None), ("poll", 2000),
        ]  # fmt: skip
