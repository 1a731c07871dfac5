"""What is kept of the record and what goes: each rule on real rows, by one lap, by the command and by a ticker."""

import json
import threading
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from click.testing import CliRunner

from tests.daemon.retention import DAY, HOUR, event, lap, left, newer, of, put
from tests.harness import command
from tests.running import until
from tests.sentences import sentence
from ticker.cli import main
from ticker.daemon import prune
from ticker.daemon.prune import Pruned, Pruner
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.settings import Settings, from_environment

pytestmark = pytest.mark.slow

FAILURES = ("failed", "timed_out", "killed", "lost")
SUCCESSES = ("succeeded", "partial", "nothing_to_do")
PROBLEMS = ("unknown_function", "expired", "missed", "no_time")


@pytest.fixture(autouse=True)
def all_minutes_are_counted(db):
    """Otherwise, the first lap would count those of the last hour."""
    db.execute("UPDATE ticker.installation SET counted_until = date_trunc('minute', clock_timestamp()),"
               " counted_twice_until = date_trunc('minute', clock_timestamp() - interval '10 minutes')")  # fmt: skip


# ------------------------------------------------------------------------------------------------------- how long


@pytest.mark.parametrize(
    ("outcome", "days"), [*((o, 30) for o in SUCCESSES), ("dropped", 30), *((o, 90) for o in FAILURES)]
)
def test_a_record_goes_when_it_is_older_than_its_outcome_is_kept(db, store, outcome, days):
    task = of(db)
    put(db, task, outcome, days * DAY + HOUR)
    young = put(db, task, outcome, days * DAY - HOUR)
    rest = newer(db, task)
    lap(store)
    assert left(db) == [young, *rest]


def test_the_ages_are_settings(db, store):
    task = of(db)
    put(db, task, "succeeded", 5 * HOUR)
    failure = put(db, task, "failed", 5 * HOUR)
    rest = newer(db, task)
    lap(store, Settings(keep_successes_ms=4 * 3_600_000, keep_failures_ms=6 * 3_600_000))
    assert left(db) == [failure, *rest]


def test_the_last_20_of_each_task_stay_however_old_they_are(db, store):
    one, two = of(db), of(db, name="other")
    put(db, one, "succeeded", 400 * DAY)
    ids = sorted(newer(db, one, age=300 * DAY) + newer(db, two, "failed", age=300 * DAY))
    assert lap(store).successes == 1
    assert left(db) == ids


def test_of_a_task_that_keeps_problems_the_rest_goes_soon_and_the_last_20_problems_stay(db, store):
    task = of(db, "problems")
    old = put(db, task, "failed", 91 * DAY)
    problems = newer(db, task, "failed", 19, age=91 * DAY)
    routine = [put(db, task, outcome, 3 * HOUR) for outcome in (*SUCCESSES, "dropped")]
    assert lap(store) == Pruned(successes=3, drops=1, seconds=pytest.approx(0, abs=60))
    assert left(db) == [old, *problems]
    problems.append(put(db, task, "lost", 3 * HOUR))
    lap(store)
    assert left(db) == problems and not set(routine) & set(left(db))


@pytest.mark.parametrize("reason", PROBLEMS)
def test_a_drop_without_which_something_would_have_run_is_a_problem(db, store, reason):
    task = of(db, "problems")
    kept = put(db, task, "dropped", 29 * DAY, reason=reason)
    put(db, task, "dropped", 29 * DAY, reason="paused")
    lap(store)
    assert left(db) == [kept]


def test_of_a_task_that_keeps_none_everything_goes_after_two_hours_and_its_totals_stay_true(db, store):
    task = of(db, "none")
    db.execute("UPDATE ticker.tasks SET succeeded = 5, failed = 4, dropped = 3")
    for outcome in (*SUCCESSES, *FAILURES, "dropped"):
        put(db, task, outcome, 2 * HOUR + timedelta(minutes=1))
    young = put(db, task, "failed", 2 * HOUR - timedelta(minutes=1))
    assert lap(store) == Pruned(successes=3, failures=4, drops=1, seconds=pytest.approx(0, abs=60))
    assert left(db) == [young]
    assert db.execute("SELECT succeeded, failed, dropped FROM ticker.tasks").fetchall() == [(5, 4, 3)]


def test_records_of_a_task_that_is_gone_go_by_their_age_to_the_last(db, store):
    put(db, 99, "succeeded", 31 * DAY)
    put(db, 99, "failed", 91 * DAY)
    kept = [put(db, 99, "succeeded", 29 * DAY), put(db, 99, "failed", 89 * DAY)]
    assert lap(store) == Pruned(successes=1, failures=1, seconds=pytest.approx(0, abs=60))
    assert left(db) == kept


# ----------------------------------------------------------------------------------------------- what never goes


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "planned", "due_at": "2030-01-01Z"},
        {"state": "pushed"},
        {"state": "processing"},
        {"state": "running", "started_at": "2020-01-01Z", "until": "2020-01-01Z", "token": "6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60"},
    ],
    ids=["planned", "pushed", "processing", "running"],
)  # fmt: skip
def test_what_has_not_ended_stays(db, store, columns):
    kept = put(db, of(db, "none"), None, 400 * DAY, **columns)
    lap(store)
    assert left(db) == [kept]


def test_what_a_tick_has_to_see_to_stays(db, store):
    kept = put(db, of(db, "none"), "failed", 400 * DAY, follow_up=True)
    lap(store)
    assert left(db) == [kept]


@pytest.mark.parametrize("kind", ["piece", "retry"])
def test_a_run_stays_while_its_pieces_or_retries_are_at_work(db, store, kind):
    task = of(db, "none")
    parent = put(db, task, "failed", 5 * HOUR)
    open_ = put(db, task, None, 5 * HOUR, state="pushed", kind=kind, parent_id=parent)
    done = put(db, task, "succeeded", 5 * HOUR, kind=kind, parent_id=parent)
    lap(store)
    assert left(db) == [parent, open_, done]
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'failed', ended_at = created_at WHERE id = %s", [open_]
    )
    lap(store)
    assert left(db) == []


def test_pieces_stay_until_their_run_has_been_summed_up(db, store):
    task = of(db, "none")
    parent = put(db, task, None, 5 * HOUR, state="processing")
    piece = put(db, task, "succeeded", 5 * HOUR, kind="piece", parent_id=parent)
    lap(store)
    assert left(db) == [parent, piece]
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'failed', ended_at = created_at WHERE id = %s", [parent]
    )
    lap(store)
    assert left(db) == []


# --------------------------------------------------------------------------------------------------------- events


def test_events_go_like_failures_unless_a_notice_of_theirs_waits(db, store):
    event(db, 99, 91 * DAY)
    kept = [event(db, 99, 89 * DAY), event(db, 99, 91 * DAY)]
    db.execute("INSERT INTO ticker.notices (event_id, channel) VALUES (%s, 'mail')", [kept[-1]])
    assert lap(store).events == 1
    assert left(db, "events") == kept


def test_events_of_which_no_ticker_tells_go_like_the_others(db, store):
    event(db, 99, 91 * DAY, told=False)
    kept = event(db, 99, 89 * DAY, told=False)
    lap(store)
    assert left(db, "events") == [kept]


def test_however_short_events_are_kept_they_stay_while_somebody_may_still_be_told(db, store):
    event(db, 99, 73 * HOUR, told=False)
    event(db, 99, 71 * HOUR)
    kept = event(db, 99, 71 * HOUR, told=False)
    lap(store, Settings(keep_failures_ms=2 * 3_600_000))
    assert left(db, "events") == [kept]


def test_the_last_20_events_of_a_task_stay(db, store):
    task = of(db)
    event(db, task, 400 * DAY)
    kept = [event(db, task, 300 * DAY) for _ in range(20)]
    lap(store)
    assert left(db, "events") == kept


# ----------------------------------------------------------------------------------------------------- the walk


def test_a_lap_goes_through_many_batches_and_ends_where_the_records_are_young(db, store, monkeypatch):
    monkeypatch.setattr(prune, "MOST", 10)
    monkeypatch.setattr(prune, "SLOW", 60)
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, outcome, ended_at, created_at) SELECT 99, 'manual', 'ended',"
        " 'succeeded', i.at, i.at FROM generate_series(1, 45) n,"
        " LATERAL (SELECT clock_timestamp() - CASE WHEN n % 2 = 0 THEN 31 ELSE 29 END * interval '1 day' AS at) i"
    )
    for _ in range(25):
        put(db, 99, "succeeded", HOUR)
    assert [batch.successes for batch in prune.lap(store, Settings()) if batch] == [5, 5, 5, 5, 2]
    assert len(left(db)) == 45 - 22 + 25


def test_a_record_from_before_the_clock_was_set_back_does_not_end_a_lap(db, store, monkeypatch):
    monkeypatch.setattr(prune, "MOST", 1)
    put(db, 99, "succeeded", -400 * DAY)
    put(db, 99, "succeeded", 40 * DAY)
    assert lap(store).successes == 1


def test_a_dry_lap_counts_and_deletes_nothing(db, store):
    put(db, 99, "succeeded", 31 * DAY)
    put(db, 99, "dropped", 31 * DAY)
    event(db, 99, 91 * DAY)
    counts = Pruned(successes=1, drops=1, events=1, seconds=pytest.approx(0, abs=60))
    assert lap(store, dry=True) == counts
    assert len(left(db)) == 2
    assert lap(store) == counts
    assert lap(store) == Pruned(seconds=pytest.approx(0, abs=60))


def test_two_laps_at_once_delete_each_record_once_and_a_locked_one_is_left_for_later(db, store, database_url):
    first, second = put(db, 99, "succeeded", 31 * DAY), put(db, 99, "succeeded", 31 * DAY)
    other = PostgresStore(database_url)
    with connect(database_url) as hand, hand.transaction():
        hand.execute("SELECT FROM ticker.runs WHERE id = %s FOR UPDATE", [first])
        assert lap(store).successes == 1
        assert lap(other).successes == 0
    assert left(db) == [first] and second not in left(db)
    assert lap(other).successes == 1
    other.close()


def test_a_batch_that_takes_too_long_is_undone_and_tried_with_fewer_rows(db, store, monkeypatch):
    asked = []
    page = prune._page

    def slow(*given, limit, **named):
        asked.append(limit)
        if limit > 100:
            with store.transaction() as execute:
                execute("set_patience", timeout="1s")
                raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return page(*given, limit=limit, **named)

    monkeypatch.setattr(prune, "_page", slow)
    put(db, 99, "succeeded", 31 * DAY)
    assert lap(store).successes == 1
    assert asked[:3] == [1000, 250, 62]


def test_no_statement_of_a_batch_may_take_longer_than_a_second(store):
    answers = []

    class Watched:
        @contextmanager
        def transaction(self):
            with store.transaction() as execute:

                def executed(name, **values):
                    answers.append(execute(name, **values))
                    return answers[-1]

                yield executed

    prune._page(Watched(), "prune_runs", Settings(), after=0, limit=1, dry=False)
    assert answers[0] == [{"set_config": "1s"}]


@pytest.mark.parametrize(("hours", "rests"), [(0, 50), (1, 50), (2, 25), (10, 5), (50, 1), (5000, 1)])
def test_the_rest_follows_the_backlog(hours, rests):
    assert prune.rest(hours * 3_600_000) == rests


@pytest.mark.parametrize(
    ("keep", "outcome", "overdue"),
    [("problems", "succeeded", 48), ("none", "succeeded", 48), ("none", "failed", 48), ("all", "succeeded", 0)],
)
def test_a_record_that_its_task_does_not_keep_is_overdue_after_two_hours(db, store, keep, outcome, overdue):
    put(db, of(db, keep=keep), outcome, 50 * HOUR)
    assert lap(store).overdue_ms // 3_600_000 == overdue


def test_a_backlog_is_warned_about(db, store, caplog):
    put(db, 99, "succeeded", 30 * DAY + 2 * DAY)
    Pruner(store, Settings(), threading.Event()).attempt()
    assert "WARNING" not in {record.levelname for record in caplog.records}
    put(db, 99, "failed", 90 * DAY + 4 * DAY)
    Pruner(store, Settings(), threading.Event()).attempt()
    assert sentence("logs.records_overdue", span="4d").within(caplog.messages[0])


# ------------------------------------------------------------------------------------------- by hand, by a ticker


def test_the_command_prunes_all_and_says_how_much(db, environ):
    put(db, 99, "succeeded", 31 * DAY)
    put(db, 99, "failed", 91 * DAY)
    told = json.loads(command("prune", "--dry-run", "--json")[0])
    assert told.pop("took_ms") >= 0 and told.pop("overdue_ms") >= 86_400_000
    assert told == {"dry_run": True, "successes": 1, "failures": 1, "drops": 0, "events": 0}
    assert command("prune", "--dry-run")[0] == "would prune successes=1 failures=1 drops=0 events=0\n"
    assert command("prune")[0] == "pruned successes=1 failures=1 drops=0 events=0\n"
    assert left(db) == []


def test_the_command_heeds_the_settings_which_have_a_least_value(db, environ, monkeypatch):
    put(db, 99, "succeeded", 3 * HOUR)
    monkeypatch.setenv("TICKER_KEEP_SUCCESSES", "150m")
    assert from_environment().keep_successes_ms == 9_000_000
    assert command("prune")[0] == "pruned successes=1 failures=0 drops=0 events=0\n"
    monkeypatch.setenv("TICKER_KEEP_FAILURES", "1h")
    assert sentence("errors.under_the_limit", field="TICKER_KEEP_FAILURES", value="'1h'", limit="2h").within(
        CliRunner().invoke(main, ["prune"]).stderr
    )


def test_a_ticker_prunes_beside_its_ticks_and_stops_at_once(db, store, monkeypatch):
    monkeypatch.setattr(prune, "BEFORE_THE_FIRST", 0.0)
    put(db, 99, "succeeded", 31 * DAY)
    stopping = threading.Event()
    pruner = Pruner(store, Settings(), stopping)
    pruner.start()
    until(lambda: not left(db), "the ticker has pruned")
    stopping.set()
    pruner.join(10)
    assert not pruner.is_alive()


def test_a_ticker_without_the_right_or_the_server_says_so_and_goes_on(db, store, caplog):
    db.execute("ALTER TABLE ticker.runs RENAME TO away")
    Pruner(store, Settings(), threading.Event()).attempt()
    gone = PostgresStore("postgresql://postgres@/nowhere?host=/nowhere")
    Pruner(gone, Settings(), threading.Event()).attempt()
    first, second = (record.getMessage() for record in caplog.records)
    assert sentence("logs.records_stay_tables").begins(first)
    assert sentence("logs.records_stay_database", setting="DATABASE_URL").begins(second)
