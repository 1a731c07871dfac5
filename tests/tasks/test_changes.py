"""What people do to a task is an event with who did it; and a deletion ends what waits, in its own transaction."""

from datetime import timedelta

import pytest
from click.testing import CliRunner

import ticker
from tests.factories import ticked
from tests.harness import events
from tests.running import stock_worker, work
from tests.sentences import sentence
from ticker import owners
from ticker.cli import main
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.read import formatting
from ticker.read.journal import list_runs
from ticker.tasks import sync

HOUR = timedelta(hours=1)


@pytest.fixture
def channels(environ, db):
    """Owners 1 and 2 with two tasks each, all of which have been pushed."""
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("mail_channels")))
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")
    return [
        ticker.register(db, "poll", name=name, every="1m", owner=("mail_channels", owner))
        for owner in ("1", "2")
        for name in ("a", "b")
    ]


def user(db):
    return db.info.user


def changes(db):
    """What happened, by whom, in which words."""
    return events(db, "what, by, words")


def drops(db):
    return sorted((run.task_id, str(run.kind), str(run.outcome), run.reason) for run in list_runs(db) if run.outcome)


# --------------------------------------------------------------------------------------------------------- deleted


def by_unregister(db, task):
    ticker.unregister(db, task)


def by_reconcile(db, task):
    ticker.reconcile(db, "mail_channels:5", [])


def by_raw_sql(db, task):
    db.execute("DELETE FROM ticker.tasks")


@pytest.mark.slow
@pytest.mark.parametrize("delete", [by_unregister, by_reconcile, by_raw_sql])
def test_a_deletion_ends_each_occurrence_that_waits_and_says_who_did_it(task, db, store, queue, delete):
    first = store.now()
    for minute in (0, 1):
        tick(store, queue, first + timedelta(minutes=minute))
    waiting = ticker.get(db, task).waiting
    delete(db, task)
    found = ticker.list_runs(db)[::-1]
    assert [(run.occurrence, run.outcome, run.reason, run.state) for run in found] == [
        (occurrence, "dropped", "gone", "ended") for occurrence in waiting
    ]
    assert {(run.task_id, run.task_name, run.function, run.owner_type, run.owner_id, str(run.kind)) for run in found} == {
        (task.id, "poll", "poll", "mail_channels", "5", "scheduled")
    }  # fmt: skip
    assert len(waiting) == 2 and all(run.ended_at == run.created_at for run in found)
    assert changes(db) == [("deleted", user(db), "")]


@pytest.mark.slow
def test_an_owner_that_goes_takes_what_waits_along_and_leaves_the_others(channels, db, store, queue):
    tick(store, queue)
    db.execute("DELETE FROM mail_channels WHERE id = 1")
    assert drops(db) == [(task.id, "scheduled", "dropped", "gone") for task in channels[:2]]
    assert changes(db) == [("deleted", user(db), "")] * 2
    assert [task.waiting != () for task in ticker.list_tasks(db)] == [True, True]


@pytest.mark.slow
def test_what_was_planned_or_pushed_for_a_task_ends_with_it(task, db, store, queue):
    db.execute("UPDATE ticker.tasks SET next_run = NULL")
    [pushed] = ticker.run_now(db, task)
    tick(store, queue)
    [planned] = ticker.run_now(db, task)
    other = ticker.register(db, "poll", every="1m")
    [kept] = ticker.run_now(db, other)
    ticker.unregister(db, task)
    states = {run.id: (run.state, run.outcome, run.reason) for run in ticker.list_runs(db)}
    gone = ("ended", "dropped", "gone")
    assert states == {pushed: gone, planned: gone, kept: ("planned", None, "")}


def test_a_deletion_that_is_rolled_back_ends_nothing(task, db, store, queue):
    tick(store, queue)
    with db.transaction(force_rollback=True):
        ticker.unregister(db, task)
    assert (ticker.list_runs(db), changes(db)) == ([], [])


@pytest.mark.slow
def test_a_deletion_leaves_planned_pieces_to_ticks_however_many_there_are(task, db, store, queue):
    """To end a million of them takes over 5 s, after which PostgreSQL ends a statement."""
    db.execute("UPDATE ticker.tasks SET next_run = NULL")
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, parent_id, state, due_at)"
        " SELECT %s, 'piece', 1, 'planned', now() FROM generate_series(1, 10000)", [task.id],
    )  # fmt: skip
    ticker.unregister(db, task)
    states = "SELECT state, reason, count(*) FROM ticker.runs GROUP BY state, reason"
    assert db.execute(states).fetchall() == [("planned", "", 10_000)]
    tick(store, queue)
    assert db.execute(states).fetchall() == [("ended", "gone", 10_000)]


def test_pieces_that_are_made_behind_the_deletion_end_with_the_next_tick(task, db, store, queue):
    ticker.unregister(db, task)
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, parent_id, state, due_at) VALUES (%s, 'piece', 1, 'planned', now())",
        [task.id],
    )
    tick(store, queue)
    assert drops(db) == [(task.id, "piece", "dropped", "gone")]


@pytest.mark.slow
def test_a_role_that_may_only_delete_tasks_leaves_the_records_too(task, db, store, queue, database_url):
    tick(store, queue)
    db.execute("CREATE ROLE deleter; GRANT USAGE ON SCHEMA ticker TO deleter")
    db.execute("GRANT SELECT, DELETE ON ticker.tasks TO deleter")
    try:
        with connect(database_url) as other:
            other.execute("SET ROLE deleter")
            other.execute("DELETE FROM ticker.tasks")
        assert len(drops(db)) == 1 and changes(db) == [("deleted", user(db), "")]
    finally:
        db.execute("DROP OWNED BY deleter; DROP ROLE deleter")


# ---------------------------------------------------------------------------------------------------------- edited


@pytest.mark.slow
def test_an_edit_says_which_field_went_from_what_to_what(task, db):
    ticker.edit(db, task, every="5m", queue="slow", by="anna")
    assert changes(db) == [
        ("edited", "anna", "every: 1m -> 5m, tolerance: 5s -> 15s, box: 30s -> 2m30s, queue: polling -> slow")
    ]


@pytest.mark.slow
def test_a_registration_that_changes_something_is_an_edit_and_one_that_does_not_is_none(task, db):
    ticker.register(db, "poll", every="1m", owner="mail_channels:5", by="deploy")
    ticker.register(db, "poll", every="1m", queue="slow", owner="mail_channels:5", by="deploy")
    ticker.register(db, "poll", every="1m", queue="slow", owner="mail_channels:5", by="deploy")
    assert changes(db) == [("edited", "deploy", "queue: polling -> slow")]


@pytest.mark.slow
def test_arguments_and_metadata_are_never_told(task, db):
    ticker.edit(db, task, kwargs={"password": "s3cr3t"}, metadata={"token": "s3cr3t"})
    ticker.edit(db, task, kwargs={}, metadata={})
    assert changes(db) == [("edited", user(db), "kwargs changed, metadata changed")] * 2


@pytest.mark.slow
def test_another_schedule_and_long_texts_are_told_in_short(task, db):
    ticker.edit(db, task, cron="0 9 * * *", zone="Europe/Berlin", description="x" * 100, max_runs=7)
    [(_, _, words)] = changes(db)
    assert words.startswith(
        "kind: interval -> cron, expression: none -> 0 9 * * *, zone: UTC -> Europe/Berlin, every: 1m -> none"
    )
    assert words.endswith(f"max_runs: none -> 7, description: none -> {'x' * 60}…")


@pytest.mark.slow
def test_an_edit_by_raw_sql_is_by_the_databases_user_or_whom_the_transaction_names(task, db):
    db.execute("UPDATE ticker.tasks SET priority = 3")
    with db.transaction():
        db.execute("SET LOCAL ticker.by = 'anna'")
        db.execute("UPDATE ticker.tasks SET priority = 4")
        ticker.edit(db, task, priority=5)
        ticker.edit(db, task, priority=6, by="ben")
        db.execute("UPDATE ticker.tasks SET priority = 7, enabled = false")
    db.execute("UPDATE ticker.tasks SET priority = 8")
    assert changes(db) == [
        ("edited", user(db), "priority: 0 -> 3"), ("edited", "anna", "priority: 3 -> 4"), ("edited", "anna", "priority: 4 -> 5"),
        ("edited", "ben", "priority: 5 -> 6"), ("disabled", "anna", ""), ("edited", "anna", "priority: 6 -> 7"),
        ("edited", user(db), "priority: 7 -> 8"),
    ]  # fmt: skip


@pytest.mark.slow
def test_no_life_of_a_task_is_an_edit_of_it(play):
    """Pushed, started, ended, failed, retried, slowed, paused by itself, resumed: nothing of it calls the trigger."""
    ticker.register(play.db, "poll", every="1m", stretch="1h", pause_after=3, retries=1, dead_man=2)
    for minute in range(12):
        play.at(60 * minute)
        play.tick()
        for taken in play.take():
            if taken.refusal is None:
                play.end(taken, "failed")
    assert {"slowed", "failed"} <= set(play.events()) and "edited" not in play.events()


# -------------------------------------------------------------------------------------------------------------- who


@pytest.mark.slow
def test_each_operation_says_who_did_it_and_leaves_no_name_behind(task, db):
    with db.transaction():
        ticker.pause(db, task)
        ticker.resume(db, task, by="anna")
        ticker.edit(db, task, enabled=False, by="ben")
        ticker.edit(db, task, enabled=True)
        ticker.unregister(db, task, by="carl")
        assert db.execute("SELECT current_setting('ticker.by', true)").fetchone()[0] in (None, "")
    assert events(db, "what, by") == [
        ("paused", user(db)), ("resumed", "anna"), ("disabled", "ben"), ("enabled", user(db)), ("deleted", "carl"),
    ]  # fmt: skip


@pytest.mark.slow
def test_the_commands_act_for_the_user_of_their_process(task, db, monkeypatch):
    monkeypatch.setenv("LOGNAME", "anna")
    for command in ("pause", "resume", "edit --disable", "edit --enable --every 2m", "remove"):
        name, *options = command.split()
        assert CliRunner().invoke(main, [name, str(task.id), *options]).exit_code == 0
    assert events(db, "what, by") == [
        (what, "anna") for what in ("paused", "resumed", "disabled", "enabled", "edited", "deleted")
    ]


def test_sync_acts_in_its_own_name(environ, db):
    for said in ({"every": "1m"}, {"every": "2m"}):
        sync.sync(db, [sync.Declared("poll", "app", said)], {}, ["app"])
    sync.sync(db, [], {}, ["app"])
    assert events(db, "what, by") == [("edited", "ticker sync"), ("deleted", "ticker sync")]


@pytest.mark.slow
def test_what_the_ticker_does_by_itself_is_the_tickers(play):
    ticker.register(play.db, "poll", name="once", at=play.now + timedelta(seconds=1), remove=True)
    ticker.pause(play.db, "once", until=play.now + timedelta(seconds=0.5), by="anna")
    play.run(2, "succeeded")
    assert ticker.list_tasks(play.db) == []
    assert events(play.db, "what, by") == [
        ("paused", "anna"),
        ("resumed", "ticker"),
        ("deleted", "ticker"),
    ]


# -------------------------------------------------------------------------------------------------------------- late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "on"),
    [("enabled = false", "enabled = true"), ("paused_by = 'me'", "paused_by = NULL"),
     ("owner_active = false", "owner_active = true")],
)  # fmt: skip
def test_the_time_in_which_a_task_could_not_be_pushed_makes_it_not_late(task, db, store, off, on):
    from ticker.db import steps
    from ticker.metrics import standing
    from ticker.read import overview

    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '3 days'")
    assert overview.counts(db).late == 1
    db.execute(f"UPDATE ticker.tasks SET {off}")
    db.execute(f"UPDATE ticker.tasks SET {on}")
    assert overview.counts(db).late == 0
    assert (
        list(overview.overview(db).late)
        == ticker.list_tasks(db, state="late")
        == ticker.list_owners(db, late=True)
        == []
    )
    assert ticker.list_owners(db)[0].late == 0
    assert steps.run(db, standing.tasks())["ticker_oldest_due_age_seconds"][()] < 60
    ticked(db)
    [due] = [line for line in ticker.why(db, task).next if line.startswith("due since")]
    assert sentence("why.next_tick_pushes").ends(due)


# --------------------------------------------------------------------------------------------------- what `why` knows


@pytest.mark.slow
def test_why_claims_no_job_in_an_empty_queue(task, db, store, queue, redis):
    tick(store, queue)
    redis.flushdb()
    answer = ticker.why(db, task)
    assert not any("in the queue" in line for line in answer.next)
    assert any(sentence("why.job_waits", number=1, queue="polling").begins(line) for line in answer.next)


@pytest.mark.slow
def test_of_a_deleted_task_why_says_who_deleted_it(task, db, store, queue):
    tick(store, queue)
    ticker.unregister(db, task, by="anna")
    answer = ticker.why(db, task.id)
    assert sentence("why.gone_by", by="anna").begins(answer.next[0])
    assert [line.what for line in answer.lines] == ["dropped", "deleted"]
    shown = CliRunner().invoke(main, ["runs", str(task.id)])
    assert shown.exit_code == 0 and "gone" in shown.output


# ---------------------------------------------------------------------------------------------------- which process


def traced_pids(db):
    return [pid for (pid,) in db.execute("SELECT pid FROM trace ORDER BY id")]


def pids(db):
    """Of each run its process, and of the running one what is known of it so far."""
    return [run.pid for run in reversed(ticker.list_runs(db))]


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker])
def test_the_process_of_a_run_is_the_one_that_ran_it(traced, db, store, queue, worker):
    ticker.register(db, "plain", every="1m")
    tick(store, queue)
    worker()
    assert pids(db) == traced_pids(db) != []


@pytest.mark.slow
def test_the_process_of_a_run_that_died_is_known_too(traced, db, store, queue):
    ticker.register(db, "long.c.call", every="3s", box="1s")
    tick(store, queue)
    work()
    assert pids(db) == traced_pids(db) != []


@pytest.mark.slow
def test_a_run_that_deletes_its_own_owner_ends_as_it_ends_behind_a_checkpoint(traced, db, store, queue):
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("mail_channels")))
    db.execute("INSERT INTO mail_channels VALUES (1)")
    ticker.register(db, "deletes.owner.and.goes.on", every="1m", owner=("mail_channels", "1"))
    tick(store, queue)
    work()
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason, run.traceback, run.result) == ("succeeded", "", "", 3)
    assert ticker.list_tasks(db) == []


def test_a_change_forgets_why_a_push_before_it_failed(db):
    task = ticker.register(db, "report", cron="0 9 * * *", zone="Europe/Berlin")
    db.execute(
        "UPDATE ticker.tasks SET zone = 'Europe/Berlim', push_errors = 2, push_error = 'zone: unknown', push_after = now()"
    )
    changed = ticker.edit(db, task, zone="Europe/Berlin")
    assert (changed.push_errors, changed.push_error, formatting.state(changed)) == (0, "", "ok")


def test_another_interval_replaces_both_bounds_that_an_edit_had_set(db):
    task = ticker.register(db, "poll", every="10s")
    ticker.edit(db, task, every="10s..10m")
    kept = ticker.register(db, "poll", every="10s")
    assert (kept.every_ms, kept.every_most_ms) == (10_000, 600_000)
    changed = ticker.register(db, "poll", every="100m")
    assert (changed.every_ms, changed.every_most_ms) == (6_000_000, None)
