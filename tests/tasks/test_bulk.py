"""`bulk` plans and makes a change of many tasks: each as its single operation does, in steps that are transactions."""

import asyncio
from datetime import timedelta

import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ticker
from tests.doubles import NOW
from tests.drivers.doors import of_driver
from tests.factories import engine_on
from tests.sentences import sentence
from ticker import BadInput, Bulk, BulkStopped, aio, clock
from ticker.tasks import bulk

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FETCH = {"function": "fetch"}


@pytest.fixture
def fetches(environ, db):
    """Five tasks that fetch, one of them with a box that fits no shorter interval, and one that reports."""
    with clock.use(lambda: NOW):
        tasks = [
            {"function": "fetch", "every": "5m", "owner": f"boxes:{n}", "first": NOW + n * MINUTE, "retries": n % 2}
            for n in range(1, 5)
        ]
        tasks.append({"function": "fetch", "every": "5m", "box": "3m", "owner": "feeds:5"})
        tasks.append({"function": "report", "cron": "0 9 * * *"})
        yield list(ticker.register_many(db, tasks).ids)


@pytest.fixture
def small(monkeypatch):
    """Steps of two tasks."""
    monkeypatch.setattr(bulk, "AT_ONCE", 2)


def events(db):
    return db.execute("SELECT task_id, what, by FROM ticker.events ORDER BY task_id, id").fetchall()


def rows(db):
    return db.execute("SELECT * FROM ticker.tasks ORDER BY id").fetchall()


# ----------------------------------------------------------------------------------------------------------- the plan


def test_a_plan_says_what_would_change_and_what_is_refused_and_writes_nothing(db, fetches):
    before = rows(db)
    plan = ticker.bulk(db, FETCH, "edit", every="2m")
    assert rows(db) == before and events(db) == []
    assert (plan.action, plan.applied, plan.matched, plan.changed, plan.refused) == ("edit", False, 5, 4, 1)
    [refused] = plan.refusals
    assert sentence("errors.over_the_limit", field="box", value="'3m'", limit="1m53s").within(refused.words)
    assert refused.examples == (f"{fetches[4]} fetch of feeds:5",)
    assert {group.words.partition(",")[0] for group in plan.changes} == {"every 5m -> every 2m"}
    assert [group.tasks for group in plan.changes] == [2, 2]
    assert plan.changes[0].examples[0] == f"{fetches[0]} fetch of boxes:1"


def test_a_plan_shows_each_changed_column_but_not_the_arguments(db, fetches):
    given = {"queue": "slow", "kwargs": {"password": "s3cret"}, "limits": ["imap"], "ends": NOW + HOUR, "stretch": "1h"}
    [group] = ticker.bulk(db, {"owner_type": "feeds"}, "edit", **given).changes
    for shown in ("queue: polling -> slow", "kwargs changed", "limits: none -> imap", "stretch: none -> 1h"):
        assert shown in group.words
    assert "ends_at: none -> 2" in group.words and "s3cret" not in group.words


def test_what_would_not_change_is_counted_apart(db, fetches):
    ticker.edit(db, fetches[0], queue="slow")
    plan = ticker.bulk(db, FETCH, "edit", queue="slow")
    assert (plan.changed, plan.unchanged, plan.refused) == (4, 1, 0)


def test_many_different_changes_are_grouped_to_the_end(db, environ):
    ticker.register_many(db, [{"function": "fetch", "name": f"f{n}", "every": n + 1} for n in range(30)])
    plan = ticker.bulk(db, {}, "edit", every="1h")
    assert (len(plan.changes), plan.changes[-1].words, plan.changes[-1].tasks) == (20, "other", 11)


# ------------------------------------------------------------------------------------------------------- the changes


def test_it_changes_what_matches_as_its_author_and_says_how_far_it_is(db, fetches, small):
    seen: list[Bulk] = []
    done = ticker.bulk(db, FETCH, "edit", every="2m", apply=True, by="ann", progress=seen.append)
    assert (done.applied, done.matched, done.changed, done.refused) == (True, 5, 4, 1)
    assert [one.matched for one in seen] == [2, 4, 5] and seen[-1] == done
    assert [ticker.get(db, id_).every_ms for id_ in fetches[:5]] == [120_000] * 4 + [300_000]
    assert events(db) == [(id_, "edited", "ann") for id_ in fetches[:4]]


def test_tasks_with_a_phase_keep_it_and_others_stay_apart(db, fetches):
    ticker.edit(db, fetches[0], spread=True)
    phase = ticker.get(db, fetches[0]).phase_ms
    ticker.bulk(db, {"owner_type": "boxes"}, "edit", every="2m", apply=True)
    due = [ticker.get(db, id_).next_run for id_ in fetches[1:4]]
    assert due == [NOW + 2 * MINUTE, NOW + MINUTE, NOW + 2 * MINUTE]
    spread = ticker.get(db, fetches[0])
    assert (spread.next_run.timestamp() * 1000 - spread.phase_ms) % spread.every_ms == 0
    assert spread.phase_ms == phase * 2 // 5


SINGLE = {
    "edit": (ticker.edit, {"every": "20m", "limits": ["imap"], "box": "2m"}),
    "enable": (lambda db, task, by: ticker.edit(db, task, by=by, enabled=True), {}),
    "disable": (lambda db, task, by: ticker.edit(db, task, by=by, enabled=False), {}),
    "pause": (ticker.pause, {"reason": "upgrade", "until": NOW + HOUR}),
    "resume": (ticker.resume, {}),
    "delete": (ticker.unregister, {}),
    "run": (lambda db, task, by, **given: ticker.run_now(db, task, **given), {"once_within": "1m"}),
    "retry": (lambda db, task, by, **given: ticker.run_now(db, task, **given), {}),
}
STATES = ["failures = 1", "enabled = false, failures = 1", "paused_by = 'bob', paused_reason = 'x', failures = 2"]


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", SINGLE)
def test_each_action_does_what_the_single_operation_does(action, state, db, environ):
    single, given = SINGLE[action]
    with clock.use(lambda: NOW):
        for n in (1, 2):
            ticker.register(db, "fetch", every="10m", owner=f"boxes:{n}", first=NOW + MINUTE)
        db.execute(f"UPDATE ticker.tasks SET {state}, last_run = %s", [NOW - 9 * MINUTE])
        db.execute("DELETE FROM ticker.events")
        one, _ = ticker.list_tasks(db)
        done = ticker.bulk(db, {"owner": "boxes:2"}, action, apply=True, by="ann", **given)
        try:
            single(db, one.id, by="ann", **given)
            assert done.refused == 0
        except BadInput:
            assert done.refused == 1
    for table in ("tasks", "events", "runs"):
        own = {"id", "guid", "owner_id", "task_id", "phase_ms", "at", "created_at", "updated_at", "resumed_at"}
        found = db.execute(f"SELECT to_jsonb(t) FROM ticker.{table} t ORDER BY owner_id, id").fetchall()
        facts = [{name: value for name, value in row.items() if name not in own} for (row,) in found]
        half = len(facts) // 2
        differing = {
            name
            for one, other in zip(facts[:half], facts[half:], strict=True)
            for name in one
            if one[name] != other[name]
        }
        assert differing == set(), table


def test_only_tasks_that_fail_are_retried(db, fetches):
    db.execute("UPDATE ticker.tasks SET failures = 3 WHERE id = ANY (%s)", [fetches[:2]])
    done = ticker.bulk(db, FETCH, "retry", apply=True)
    assert (done.changed, done.refused) == (2, 3)
    planned = db.execute("SELECT task_id, kind FROM ticker.runs ORDER BY task_id").fetchall()
    assert planned == [(id_, "manual") for id_ in fetches[:2]]


@pytest.mark.slow
def test_runs_of_many_are_due_in_groups_within_the_budget_of_a_resumed_pause(db, environ):
    ticker.register_many(db, [{"function": "fetch", "every": "1h", "owner": f"boxes:{n}"} for n in range(2500)])
    with clock.use(lambda: NOW):
        assert ticker.bulk(db, {}, "run", apply=True).changed == 2500
    due = db.execute("SELECT due_at, count(*) FROM ticker.runs GROUP BY 1 ORDER BY 1").fetchall()
    assert due == [(NOW, 1000), (NOW + MINUTE / 2, 1000), (NOW + MINUTE, 500)]


def test_tasks_that_were_paused_one_by_one_are_resumed_together(db, fetches, small):
    for id_ in fetches[:5]:
        ticker.pause(db, id_, by="ann")
    done = ticker.bulk(db, {"state": "paused"}, "resume", apply=True, by="bob")
    assert (done.matched, done.changed) == (5, 5)
    assert [task.paused_by for task in ticker.list_tasks(db)] == [None] * 6


def test_a_task_that_no_longer_matches_once_it_is_locked_is_left_out(db, fetches, database_url, monkeypatch):
    def meanwhile(name, /, **parameters):
        if name == "lock_tasks":
            with psycopg.connect(database_url, autocommit=True) as other:
                ticker.edit(other, fetches[0], queue="slow")
        return query(name, **parameters)

    query = bulk.query
    monkeypatch.setattr(bulk, "query", meanwhile)
    assert ticker.bulk(db, {"queue": "polling"}, "delete", apply=True).changed == 5
    assert [task.id for task in ticker.list_tasks(db)] == [fetches[0]]


# -------------------------------------------------------------------------------------------------------- a failure


@pytest.fixture
def poisoned(db, fetches):
    """The fifth task cannot be written."""
    db.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''no more''; END';
        CREATE TRIGGER refuse BEFORE UPDATE ON ticker.tasks FOR EACH ROW WHEN (NEW.id = {fetches[4]}) EXECUTE FUNCTION refuse()"""
    )
    return fetches


def test_a_failure_in_step_3_leaves_steps_1_and_2_done_and_says_so(db, poisoned, small):
    with pytest.raises(BulkStopped) as stopped:
        ticker.bulk(db, FETCH, "edit", queue="slow", apply=True)
    said = sentence("errors.bulk_stopped", step="3", action="edit", error="no more", changed="4", matched="4")
    assert said == str(stopped.value)
    assert stopped.value.done.changed == 4
    assert [ticker.get(db, id_).queue for id_ in poisoned[:5]] == ["slow"] * 4 + ["polling"]
    db.execute("DROP TRIGGER refuse ON ticker.tasks")
    again = ticker.bulk(db, FETCH, "edit", queue="slow", apply=True)
    assert (again.changed, again.unchanged) == (1, 4)


def test_a_connection_that_breaks_in_a_later_step_is_said_in_the_same_way(db, database_url, fetches, small):
    with psycopg.connect(database_url) as own:
        end = lambda _: db.execute("SELECT pg_terminate_backend(%s)", [own.info.backend_pid])  # noqa: E731 - one line
        with pytest.raises(BulkStopped) as stopped:
            ticker.bulk(own, FETCH, "edit", queue="slow", apply=True, progress=end)
    assert stopped.value.done.changed == 2
    assert [ticker.get(db, id_).queue for id_ in fetches[:3]] == ["slow", "slow", "polling"]


def test_tasks_that_match_meanwhile_push_no_locked_task_out_of_its_step(db, fetches, database_url, monkeypatch, small):
    def meanwhile(name, /, **parameters):
        if name == "lock_tasks" and parameters["ids"] == [fetches[0], fetches[2]]:
            with psycopg.connect(database_url, autocommit=True) as other:
                ticker.edit(other, fetches[1], queue="polling")
        return query(name, **parameters)

    query = bulk.query
    ticker.edit(db, fetches[1], queue="slow")
    monkeypatch.setattr(bulk, "query", meanwhile)
    done = ticker.bulk(db, {"function": "fetch", "queue": "polling"}, "edit", queue="fast", apply=True)
    assert {ticker.get(db, id_).queue for id_ in (fetches[0], *fetches[2:5])} == {"fast"} and done.changed >= 4


def test_an_error_in_the_first_step_is_raised_as_it_is(db, poisoned):
    with pytest.raises(psycopg.errors.RaiseException):
        ticker.bulk(db, FETCH, "edit", queue="slow", apply=True)
    assert {task.queue for task in ticker.list_tasks(db)} == {"polling"}


@pytest.mark.parametrize(
    ("wanted", "action", "given", "field"),
    [
        ({"functoin": "fetch"}, "run", {}, "functoin"),
        ({"function": ""}, "run", {}, "function"),
        ({"state": "ill"}, "run", {}, "state"),
        ({}, "burn", {}, "action"),
        ({}, "edit", {}, "edit"),
        ({}, "edit", {"evry": "2m"}, "evry"),
        ({}, "edit", {"every": "0.5s"}, "every"),
        ({}, "resume", {"reason": "x"}, "reason"),
        ({}, "pause", {"until": NOW - HOUR}, "until"),
        ({}, "run", {"once_within": "1d"}, "once_within"),
        ({}, "delete", {"by": " "}, "by"),
        ({}, "delete", {"apply": "no"}, "apply"),
    ],
)
def test_bad_input_names_the_field_and_writes_nothing(wanted, action, given, field, db, fetches):
    before = rows(db)
    with pytest.raises(BadInput) as refused:
        ticker.bulk(db, wanted, action, **{"apply": True} | given)
    assert (refused.value.field, rows(db)) == (field, before)


# --------------------------------------------------------------------------------------------------- the connections


def test_every_kind_of_connection_commits_each_step(db, database_url, fetches, small):
    engine = engine_on(database_url)
    with Session(engine) as session:
        ticker.bulk(session, FETCH, "edit", queue="session", apply=True)
        session.rollback()
        assert {task.queue for task in ticker.list_tasks(db, function="fetch")} == {"session"}
    with engine.connect() as connection, pytest.raises(BadInput, match="db"):
        connection.execute(sa.text("SELECT 1"))
        ticker.bulk(connection, FETCH, "edit", queue="connection", apply=True)
    with psycopg2.connect(database_url) as connection:
        ticker.bulk(connection, FETCH, "edit", queue="psycopg2", apply=True)
        connection.rollback()
    assert {task.queue for task in ticker.list_tasks(db, function="fetch")} == {"psycopg2"}
    with db.transaction(), pytest.raises(BadInput, match="db"):
        ticker.bulk(db, FETCH, "delete", apply=True)


@pytest.mark.slow
def test_asynchronous_connections_do_the_same(db, database_url, fetches, small):
    async def change():
        async with AsyncSession(create_async_engine(of_driver("asyncpg", database_url))) as session:
            await aio.bulk(session, FETCH, "edit", queue="session", apply=True)
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            assert (await aio.bulk(connection, FETCH, "pause", apply=True)).changed == 5
            with pytest.raises(BadInput):
                await aio.bulk(connection, FETCH, "burn")
            await connection.execute("SELECT 1")
            with pytest.raises(BadInput, match="db"):
                await aio.bulk(connection, FETCH, "delete", apply=True)

    asyncio.run(change())
    assert {(task.queue, task.paused_by) for task in ticker.list_tasks(db, function="fetch")} == {
        ("session", "postgres")
    }
