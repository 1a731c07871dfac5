"""What ended in each minute and hour: what is counted, when, by which ticker, and for how long it is kept."""

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.factories import a_drop, a_run
from tests.running import until
from tests.sentences import sentence
from ticker import clock
from ticker.daemon import minutes
from ticker.daemon.minutes import MinuteCounter, counted
from ticker.daemon.prune import _prune_minutes, lap
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.read import overview
from ticker.settings import Settings

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
OVER = MINUTE + 70 * SECOND  # after the beginning of a minute, it may be counted
OVER_AGAIN = OVER + 12 * MINUTE


def count(store: PostgresStore, now: datetime) -> int:
    """Counts what is over at `now`. Returns how many minutes were counted."""
    with clock.use(lambda: now):
        return len([*counted(store)])


def counts(db, table="minutes"):
    rows = db.execute(
        f"SELECT function, outcome, sum(count)::int FROM ticker.{table} WHERE outcome <> '' GROUP BY 1, 2"
    )
    return {(function, outcome): number for function, outcome, number in rows}


def counted_before(db, at: datetime) -> None:
    """All minutes before this one were counted twice."""
    db.execute("UPDATE ticker.installation SET counted_until = %s, counted_twice_until = %s", [at, at])


@pytest.fixture
def task(db):
    counted_before(db, NINE)
    return ticker.register(db, "poll", every="1m", queue="mail")


# ------------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.slow
def test_a_minute_has_counts_sums_and_buckets_of_what_ended_in_it(db, store, task):
    for late, took in ((0.5, 0.02), (3, 1.0), (3.5, 1.1)):
        due = NINE + took * MINUTE / 1000
        a_run(db, task, queue="mail", occurrence=due, started_at=due + late * SECOND, ended_at=due + (late + took) * SECOND,
              owner_type="" if late == 3 else "channels")  # fmt: skip
    a_drop(db, task, "too_early", checked_at=NINE + SECOND, occurrence=NINE + 3 * SECOND)
    count(store, NINE + OVER)
    rows = db.execute(
        "SELECT outcome, reason, function, queue, kind, count, started, late_ms, took_ms, late, took FROM ticker.minutes ORDER BY outcome"
    ).fetchall()
    assert rows == [
        ("dropped", "too_early", "poll", "", "scheduled", 1, 0, 0, 0, [], []),
        ("succeeded", "", "poll", "mail", "scheduled", 3, 3, 7000, 2120, [1, 0, 2], [1, 0, 0, 0, 0, 2]),
    ]


def test_a_lost_run_and_a_run_in_pieces_have_no_duration(db, store, task):
    a_run(db, task, outcome="lost")
    a_run(db, task, pieces=3)
    count(store, NINE + OVER)
    sums = db.execute("SELECT sum(started), sum(took_ms), sum(cardinality(took)) FROM ticker.minutes").fetchone()
    assert sums == (2, 0, 0)


def test_a_retry_is_late_after_its_own_due_time(db, store, task):
    started = NINE + SECOND
    a_run(db, task, kind="retry", occurrence=NINE - HOUR, due_at=NINE, started_at=started, ended_at=started + SECOND)
    count(store, NINE + OVER)
    assert db.execute("SELECT late_ms FROM ticker.minutes").fetchone() == (1000,)


@pytest.mark.slow
def test_functions_beyond_the_first_200_count_as_others(db, store, task):
    for number in range(203):
        a_run(db, task, function=f"f{number}")
    a_run(db, task, function="f7")
    count(store, NINE + OVER)
    found = counts(db)
    assert len(found) == 201 and found["f7", "succeeded"] == 2 and found["(other)", "succeeded"] == 3


@pytest.mark.slow
def test_an_hour_adds_up_its_minutes_when_the_last_one_is_counted_and_counted_again(db, store, task):
    for number in (0, 1, 59):
        a_run(db, task, ended_at=NINE + number * MINUTE + SECOND)
    db.execute("INSERT INTO ticker.minutes (at, queue, samples, listening, busy, waiting, needed)"
               " VALUES (%s, 'mail', 2, 8, 6, 4, 5), (%s, 'mail', 2, 8, 8, 0, 3)", [NINE, NINE + MINUTE])  # fmt: skip
    count(store, NINE + 58 * MINUTE + OVER)
    assert counts(db, "hours") == {}
    count(store, NINE + 59 * MINUTE + OVER)
    assert counts(db, "hours") == {("poll", "succeeded"): 3, ("(all)", "succeeded"): 3}
    assert db.execute("SELECT took_ms, took FROM ticker.hours WHERE outcome <> '' AND function <> '(all)'").fetchall() == db.execute(
        "SELECT sum(took_ms), ticker.sum_counts(took) FROM ticker.minutes WHERE outcome <> ''").fetchall()  # fmt: skip
    seen = db.execute(
        "SELECT at, queue, count, samples, listening, busy, waiting, needed FROM ticker.hours WHERE outcome = '' AND function = ''"
    )
    assert seen.fetchall() == [(NINE, "mail", 0, 4, 16, 14, 4, 5)]
    a_run(db, task, ended_at=NINE + 59 * MINUTE + SECOND)
    count(store, NINE + 59 * MINUTE + OVER_AGAIN)
    assert counts(db, "hours") == {("poll", "succeeded"): 4, ("(all)", "succeeded"): 4}


@pytest.mark.slow
def test_an_hour_has_the_sums_of_all_functions_and_queues(db, store, task):
    for number in range(4):
        a_run(db, task, function=f"f{number}", queue=f"q{number % 2}", ended_at=NINE + number * MINUTE + SECOND)
    a_run(db, task, outcome="failed", ended_at=NINE + SECOND)
    a_drop(db, task, "too_early", checked_at=NINE + SECOND)
    db.execute("INSERT INTO ticker.minutes (at, queue, samples, listening, busy) VALUES (%s, 'q0', 2, 8, 6), (%s, 'q1', 2, 8, 8)", [NINE, NINE])  # fmt: skip
    count(store, NINE + 59 * MINUTE + OVER)
    columns = "outcome, reason, sum(count), ticker.sum_counts(late), sum(listening), sum(busy)"
    of_all = db.execute(f"SELECT {columns} FROM ticker.hours WHERE function = '(all)' GROUP BY 1, 2 ORDER BY 1, 2")
    assert (sums := of_all.fetchall()) == db.execute(
        f"SELECT {columns} FROM ticker.hours WHERE function <> '(all)' GROUP BY 1, 2 ORDER BY 1, 2").fetchall()  # fmt: skip
    assert [row[:3] for row in sums] == [
        ("", "", 0),
        ("dropped", "too_early", 1),
        ("failed", "", 1),
        ("succeeded", "", 4),
    ]
    assert db.execute("SELECT sum(started), count(*) FROM ticker.hours WHERE function = '(all)'").fetchone() == (0, 4)


# ------------------------------------------------------------------------------------------------------- when


def test_a_minute_is_counted_when_it_has_been_over_for_70_seconds(db, store, task):
    a_run(db, task)
    count(store, NINE + OVER - SECOND)
    assert counts(db) == {}
    count(store, NINE + OVER)
    assert counts(db) == {("poll", "succeeded"): 1}


@pytest.mark.slow
def test_what_is_written_or_corrected_within_twelve_minutes_counts(db, store, task):
    lost = a_run(db, task, outcome="lost")
    count(store, NINE + OVER)
    assert counts(db) == {("poll", "lost"): 1}
    a_run(db, task)
    db.execute("UPDATE ticker.runs SET outcome = 'succeeded' WHERE id = %s", [lost])
    count(store, NINE + OVER_AGAIN - SECOND)
    assert counts(db) == {("poll", "lost"): 1}
    count(store, NINE + OVER_AGAIN)
    assert counts(db) == {("poll", "succeeded"): 2}
    a_run(db, task)
    count(store, NINE + 2 * OVER_AGAIN)
    assert counts(db) == {("poll", "succeeded"): 2}


@pytest.mark.slow
def test_the_first_ticker_begins_with_the_last_hour(db, store, task):
    db.execute("UPDATE ticker.installation SET counted_until = NULL, counted_twice_until = NULL")
    for age in (61, 60, 0):
        a_run(db, task, function=f"{age} minutes", ended_at=NINE - age * MINUTE + SECOND)
    assert count(store, NINE + OVER) == 61 - 12 + 12 + 12
    assert ("0 minutes", "succeeded") in counts(db)


@pytest.mark.slow
def test_after_an_outage_each_minute_is_counted_once_if_that_is_its_second_time(db, store, task):
    a_run(db, task, ended_at=NINE + 30 * MINUTE)
    count(store, NINE + OVER_AGAIN)
    assert count(store, NINE + 2 * HOUR + OVER) == 120 - 12 - 12 + 24
    assert sum(counts(db).values()) == 1


def test_no_more_than_30_days_are_counted_after_an_outage(db, store, task):
    counted_before(db, NINE - 40 * 24 * HOUR)
    with clock.use(lambda: NINE + OVER):
        next(counted(store))
    [(until_,)] = db.execute("SELECT counted_twice_until FROM ticker.installation").fetchall()
    assert until_ == NINE - 30 * 24 * HOUR + MINUTE


@pytest.mark.slow
def test_after_the_clock_was_set_back_minutes_are_counted_again_when_they_are_over_again(db, store, task):
    a_run(db, task, ended_at=NINE + 5 * MINUTE + SECOND)
    count(store, NINE + 9 * MINUTE + OVER_AGAIN)
    a_run(db, task, function="again", ended_at=NINE + 5 * MINUTE + 30 * SECOND)
    count(store, NINE + 2 * MINUTE + OVER)
    assert ("again", "succeeded") not in counts(db)
    count(store, NINE + 9 * MINUTE + OVER)
    assert counts(db) == {("poll", "succeeded"): 1, ("again", "succeeded"): 1}


@pytest.mark.slow
def test_one_ticker_counts_a_minute_and_another_one_does_not_wait_for_it(db, database_url, store, task):
    a_run(db, task)
    with connect(database_url) as other, closing(PostgresStore(database_url)) as rival, rival.transaction() as execute:
        [minute] = execute("next_minute", now=NINE + OVER)
        assert count(store, NINE + OVER) == 0
        assert other.execute("SELECT count(*) FROM ticker.minutes").fetchone() == (0,)
        execute("count_minute", at=minute["at"], outcomes=["succeeded"], reasons=[])
    assert counts(db) == {("poll", "succeeded"): 1}
    assert count(store, NINE + OVER) == 0


# --------------------------------------------------------------------------------------------------------- keeping


@pytest.mark.slow
def test_no_record_is_pruned_before_its_minute_was_counted_twice(db, store):
    task = ticker.register(db, "poll", every="1m", keep="none")
    counted_before(db, NINE)
    db.execute("UPDATE ticker.installation SET counted_until = %s", [NINE + HOUR])
    a_run(db, task)
    with clock.use(lambda: NINE + 5 * HOUR):
        page = {"after": 0, "limit": 10, "dry": False, "successes_ms": 1, "failures_ms": 1}
        assert store.execute("prune_runs", now=clock.now(), **page)[0]["successes"] == 0
        assert sum(pruned.successes for pruned in lap(store, Settings())) == 1  # a lap counts minutes first
    assert counts(db) == {("poll", "succeeded"): 1}


@pytest.mark.slow
def test_minutes_are_kept_for_30_days_and_hours_for_400(db, store):
    for days in (29, 31, 399, 401):
        for table in ("minutes", "hours"):
            db.execute(f"INSERT INTO ticker.{table} (at, queue) VALUES (%s, 'q')", [NINE - days * 24 * HOUR])
    with clock.use(lambda: NINE):
        assert [*_prune_minutes(store)]
    for table, kept in (("minutes", 1), ("hours", 3)):
        assert db.execute(f"SELECT count(*) FROM ticker.{table}").fetchone() == (kept,), table


@pytest.mark.parametrize(
    ("age", "pace"), [(-5 * MINUTE, None), (59 * SECOND, None), (MINUTE, 4), (2.5 * MINUTE, 4), (HOUR, 0.8)]
)
def test_runs_a_minute_are_those_of_the_whole_minutes_since_the_installation_was_made(age, pace, db):
    counted_before(db, NINE)
    db.execute("UPDATE ticker.installation SET created_at = %s", [NINE - age])
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, outcome, count) SELECT %s - n * interval '1 minute', 'polling', 'succeeded', 4"
        " FROM generate_series(1, 2) n",
        [NINE],
    )
    with clock.use(lambda: NINE + MINUTE):
        assert overview.overview(db).per_minute == pace


# ------------------------------------------------------------------------------------------------------- the thread


@pytest.mark.slow
def test_the_thread_survives_errors_and_stops(db, store, caplog, monkeypatch):
    stopping = threading.Event()
    counter = MinuteCounter(store, Settings(), stopping)
    monkeypatch.setattr(minutes, "EVERY", 0.01)
    [(now,)] = db.execute("SELECT date_trunc('minute', clock_timestamp())").fetchall()
    counted_before(db, now - 13 * MINUTE)
    db.execute("UPDATE ticker.installation SET counted_until = %s", [now - 4 * MINUTE])
    db.execute("ALTER TABLE ticker.minutes RENAME TO hidden")
    counter.start()
    until(lambda: sentence("logs.minutes_later").within(caplog.text), "an error is logged")
    db.execute("ALTER TABLE ticker.hidden RENAME TO minutes")
    all_ = "SELECT counted_until >= date_trunc('minute', clock_timestamp() - interval '130 s') FROM ticker.installation"
    until(lambda: db.execute(all_).fetchone() == (True,), "all is counted")
    stopping.set()
    counter.join(10)
    assert not counter.is_alive()


@pytest.mark.slow
def test_the_duration_of_an_announced_function_is_measured_with_each_minute(db, store, task):
    """It is the mean of the last ten minutes in which runs have ended. A lost run has no duration, and a drop no start."""
    db.execute("INSERT INTO ticker.functions (name) VALUES ('poll'), ('idle')")
    for number, (took, outcome) in enumerate(((1.0, "succeeded"), (3.0, "failed"), (50.0, "lost"))):
        begun = NINE + number * SECOND
        a_run(db, task, occurrence=begun, started_at=begun, ended_at=begun + took * SECOND, outcome=outcome)
    a_drop(db, task, "too_early", checked_at=NINE + SECOND, occurrence=NINE + 30 * SECOND)
    for later in (0, 5):
        count(store, NINE + OVER + later * MINUTE)
        assert db.execute("SELECT name, mean_ms FROM ticker.functions ORDER BY name").fetchall() == [
            ("idle", None), ("poll", 2000),
        ]  # fmt: skip
