"""A row that a hand has edited is refused by the table, or costs only itself: its neighbours are pushed and listed.

Every column of every table is tried, each with all that its type can hold and our code may stumble over.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from redis import Redis
from sqlalchemy import Column
from sqlalchemy.dialects.postgresql import ARRAY

import ticker
from tests.conftest import admin, copy_of
from tests.harness import command, finish, start
from tests.sentences import sentence
from ticker.cli import main
from ticker.db import sql, tables
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.engine.tick import TickOptions, tick
from ticker.errors import TickerError
from ticker.model import Reason
from ticker.queue.rq import RedisQueue
from ticker.read import tasks

pytestmark = pytest.mark.usefixtures("environ")

Db = psycopg.Connection[Any]

NEST = [260, 5000]
LONG = "x" * 70_000  # over the limit of JSON

TIMES = ["infinity", "-infinity", "294276-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "4713-01-01 BC",
         "1970-01-01T00:00:00Z", "9999-12-31T00:00:00Z", None]  # fmt: skip
TEXTS = ["", " ", "{a b}:c", "a\nb", "\x1b[31mred", "\u202eabc", "<script>", "x" * 201, "x" * 2001, None]
DOCUMENTS = ["null", "[]", "5", '"x"', "{}", '{"a": 1e400}', '{"a": 1e5000}', '{"a": -1e131000}', '{"a": 1e-16000}',
             *('{"a": ' * n + "1" + "}" * n for n in NEST), "[" * 260 + "]" * 260, json.dumps({"a": LONG}),
             json.dumps({"a": [1] * 30_000}), None]  # fmt: skip
NUMBERS = [0, -1, 1, 999, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), None]


def list_of(count: int, first: datetime) -> str:
    return "{" + ",".join((first + n * timedelta(seconds=1)).isoformat() for n in range(count)) + "}"


LISTS = ["{}", "{NULL}", "{infinity}", "{-infinity}", "{294276-12-31T00:00:00Z}", "{9999-12-31T00:00:00Z}",
         "{{2026-01-01,2026-01-02},{2026-01-03,2026-01-04}}", "[5:6]={2026-01-01,2026-01-02}",
         "{2026-01-02,2026-01-01,2026-01-02}", list_of(10_000, datetime(2026, 1, 1, tzinfo=UTC)),
         list_of(10_000, datetime(2100, 1, 1, tzinfo=UTC)), list_of(10_001, datetime(2026, 1, 1, tzinfo=UTC)), None]  # fmt: skip


def candidates(column: Column[Any]) -> list[Any]:
    """What a hand may write into a column of this type."""
    if isinstance(column.type, ARRAY):
        return LISTS
    known: dict[type, list[Any]] = {datetime: TIMES, str: TEXTS, int: NUMBERS, bool: [True, False, None]}
    if column.type.__class__.__name__ == "JSONB":
        return DOCUMENTS
    return known.get(column.type.python_type, ["00000000-0000-0000-0000-000000000000", None])


def columns_of(table: str) -> list[str]:
    return [
        column.name
        for column in tables.define().tables[f"ticker.{table}"].columns
        if column.name not in ("id", "phase_ms")
    ]


def column(table: str, name: str) -> Column[Any]:
    return tables.define().tables[f"ticker.{table}"].columns[name]


@pytest.fixture(scope="module")
def database_url(servers: Servers, template: str) -> Iterator[str]:
    """One for all of them, emptied for each value."""
    yield copy_of(servers, template, f"{template}_poison")
    admin(servers, f'DROP DATABASE "{template}_poison" WITH (FORCE)')


# --------------------------------------------------------------------------------------------- rows that are looked at

POPULATE = """
    WITH now AS (SELECT clock_timestamp() AS now), role AS (
        SELECT * FROM (VALUES ('due'), ('woken'), ('waits'), ('overdue'), ('planned'), ('pushed')) AS r (role)
    ), task AS (
        INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, waiting,
            paused_by, paused_until, last_run, run_token, running_until)
        SELECT sort || ' ' || role, 'plain', 'interval', 60000, 5000, 30000, 1000, 'polling',
            now + CASE WHEN role = 'due' THEN interval '-1 min' ELSE interval '1 h' END,
            CASE WHEN role = 'waits' THEN ARRAY[now - interval '1 h', now] ELSE '{}' END,
            CASE WHEN role = 'woken' THEN 'me' END, CASE WHEN role = 'woken' THEN now - interval '1 s' END,
            CASE WHEN role IN ('woken', 'overdue') THEN now - interval '2 min' END,
            CASE WHEN role = 'overdue' THEN gen_random_uuid() END,
            CASE WHEN role = 'overdue' THEN now - interval '1 min' END
        FROM role, now, unnest(%(sorts)s::text[]) AS sort
        RETURNING *
    ), ticker AS (
        INSERT INTO ticker.tickers (id, pid, host, started_at, last_tick_at)
        SELECT gen_random_uuid(), 1, sort, now, now FROM now, unnest(%(sorts)s::text[]) AS sort
    )
    INSERT INTO ticker.runs (task_id, task_name, kind, state, occurrence, token, due_at, pushed_at, started_at, until)
    SELECT id, name, CASE WHEN run_token IS NULL THEN 'manual' ELSE 'scheduled' END,
        CASE WHEN run_token IS NOT NULL THEN 'running' WHEN name LIKE '%% planned' THEN 'planned' ELSE 'pushed' END,
        CASE WHEN run_token IS NOT NULL THEN last_run END, run_token, now, now, last_run, running_until
    FROM task, now WHERE name ~ ' (overdue|planned|pushed)$'"""


def populate(db: Db, sorts: list[str]) -> None:
    """Of each sort a task in each of the states that a pass looks at, their runs, and a ticker."""
    db.execute("TRUNCATE ticker.tasks, ticker.runs, ticker.tickers")
    db.execute(POPULATE, {"sorts": sorts})


OWN_NAME = {"tasks": "name", "runs": "task_name", "tickers": "host"}
REFUSALS = (psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError, psycopg.errors.StatementTooComplex)


def poison(db: Db, table: str, name: str, sort: str, value: Any) -> None:
    """Writes `value` into each row of that sort that takes it; where none does, they go."""
    taken = False
    rows = db.execute(f"SELECT ctid::text FROM ticker.{table} WHERE {OWN_NAME[table]} LIKE %s", [f"{sort}%"]).fetchall()
    for [ctid] in rows:
        with suppress(*REFUSALS):
            db.execute(f"UPDATE ticker.{table} SET {name} = %s WHERE ctid = %s::tid", [value, ctid])
            taken = True
    if not taken:
        for refuses, own_name in OWN_NAME.items():
            db.execute(f"DELETE FROM ticker.{refuses} WHERE {own_name} LIKE %s", [f"{sort}%"])


def assert_the_good_ones_went_on(db: Db) -> None:
    instant = sql.on(db, "ticker")("instant", now=None)[0]["now"]
    good = {task.name.removeprefix("good "): task for task in ticker.list_tasks(db) if task.name.startswith("good ")}
    assert len(good["due"].waiting) == 1 and good["due"].next_run and good["due"].next_run > instant
    assert good["woken"].paused_by is None and len(good["woken"].waiting) == 1
    assert len(good["waits"].waiting) == 1
    assert (good["overdue"].running_until, good["overdue"].last_outcome) == (None, "lost")
    states = [ticker.list_runs(db, task=good[role])[0].state for role in ("planned", "pushed")]
    assert states == ["pushed", "pushed"]


def assert_everybody_can_read(db: Db) -> None:
    """Lists and single rows, for programs and for people."""
    tasks.tickers(db)
    for words in (["list"], ["list", "--json"], ["runs"], ["runs", "--json"], ["tick", "--dry-run"]):
        told = CliRunner().invoke(main, words)
        assert told.exit_code == 0, (words, told.output[-500:])
    assert "ticker good pid" in CliRunner().invoke(main, ["health"]).output
    tasks.get(db, "good due")


def assert_a_worker_is_answered(db: Db) -> None:
    """A start of each task is decided and recorded; a run that may begin can end."""
    instant = sql.on(db, "ticker")("instant", now=None)[0]["now"]
    for task in ticker.list_tasks(db):
        token = str(uuid4())
        verdict = start(db, task, instant, None, pushed=False, token=token, functions=["plain"])
        assert verdict["refusal"] is None or Reason(verdict["refusal"])
        assert bool(finish(db, task, token, "failed", None)) == (verdict["refusal"] is None)


def assert_an_operator_can_mend_it(db: Db) -> None:
    """Everything that people do to a task works, or says in a sentence why not."""
    for task in ticker.list_tasks(db)[::5]:  # of six states each, so that all of them are met
        for act in (
            partial(ticker.pause, db, task), partial(ticker.resume, db, task), partial(ticker.run_now, db, task),
            partial(ticker.register, db, "plain", name=task.name, every="1m", box=20, tolerance=1),
            partial(ticker.edit, db, task, every="2m", kwargs={}, queue="polling", enabled=True),
        ):  # fmt: skip
            with suppress(TickerError):
                act()
        assert [gone.id for gone in ticker.unregister(db, task)] == [task.id]


# ---------------------------------------------------------------------------------------------------- what is written


def every_third_by_default() -> list[Any]:
    """All columns, most of them in the long run only: each costs a database and a few passes."""
    names = [(table, name) for table in ("tasks", "runs", "tickers") for name in columns_of(table)]
    marks = [() if number % 3 == 0 else (pytest.mark.long,) for number in range(len(names))]
    return [pytest.param(*name, marks=mark) for name, mark in zip(names, marks, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), every_third_by_default())
def test_whatever_a_hand_writes_into_a_column_is_refused_or_costs_only_its_own_row(
    table: str, name: str, db: Db, store: PostgresStore, queue: RedisQueue
) -> None:
    values = candidates(column(table, name))
    populate(db, ["good", *(f"poison {number} " for number in range(len(values)))])
    for number, value in enumerate(values):
        poison(db, table, name, f"poison {number} ", value)
    for _ in range(2):  # the first pass of a store is a thorough one
        tick(store, queue)
    assert_the_good_ones_went_on(db)
    assert_everybody_can_read(db)
    assert_a_worker_is_answered(db)
    assert_an_operator_can_mend_it(db)


# ------------------------------------------------------------------------------------------------ quarantined, and shown


def refused_by_the_schedule(db: Db) -> None:
    """A kind that the table allows, and that has no interval to go by."""
    db.execute("UPDATE ticker.tasks SET kind = 'cron', expression = '0 0 30 2 *', every_ms = 0 WHERE name = 'bad'")


def refused_by_redis(redis: Redis) -> None:
    redis.set("rq:queue:bad", "of another type")


@pytest.mark.slow
@pytest.mark.parametrize(("by", "cause"), [("schedule", "never fires"), ("redis", "WRONGTYPE Operation")])
def test_a_row_that_cannot_be_pushed_backs_off_with_its_reason_shown_while_the_others_go_on(
    by: str, cause: str, db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis
) -> None:
    db.execute("TRUNCATE ticker.tasks, ticker.runs, ticker.tickers")
    ticker.register(db, "plain", name="bad", every="1m", queue="bad")
    ticker.register(db, "plain", name="good", every="1m")
    refused_by_redis(redis) if by == "redis" else refused_by_the_schedule(db)
    instant, pauses = store.now(), []
    for _ in range(9):
        report = tick(store, queue, instant, TickOptions(waiting_jobs=9))
        assert (report.errors, report.due.enqueued) == (1, 1)
        bad = ticker.get(db, "bad")
        assert bad.push_after is not None and cause in bad.push_error
        pauses.append((bad.push_after - instant).total_seconds())
        instant = bad.push_after + timedelta(minutes=1)
    assert (pauses, bad.push_errors) == ([30, 60, 120, 240, 480, 960, 1920, 3600, 3600], 9)
    assert sentence("cli.not_pushed", error=bad.push_error, year=20).within(command("list")[0])
    assert sentence("cli.not_pushed", error=bad.push_error, year=20).within(command("list", "bad")[0])
    [listed] = [task for task in json.loads(command("list", "--json")[0]) if task["name"] == "bad"]
    assert (listed["state"], listed["push_errors"], listed["push_error"]) == ("not_pushed", 9, bad.push_error)


@pytest.mark.slow
def test_a_sweep_settles_so_many_occurrences_that_their_rows_are_not_locked_for_long(
    db: Db, store: PostgresStore, queue: RedisQueue
) -> None:
    """1,000 tasks with 100 each took longer than a statement may: nothing was ever swept again."""
    db.execute("TRUNCATE ticker.tasks, ticker.runs, ticker.tickers")
    for n in range(120):
        ticker.register(db, "plain", name=f"old {n}", every="1m", first=store.now() + timedelta(hours=1))
    old = list_of(100, store.now() - timedelta(days=1))
    db.execute("UPDATE ticker.tasks SET waiting = %s", [old])
    with store.batch() as rows:
        assert sum(len(task.waiting) for task in rows.claim_waiting(1000)) == 5000
    swept = [tick(store, queue).swept for _ in range(3)]
    assert sum(s.expired + s.repushed for s in swept) == 12_000
    assert ticker.list_runs(db, limit=1) and {len(task.waiting) for task in ticker.list_tasks(db)} == {1}


@pytest.mark.slow
def test_rows_that_stay_ahead_whatever_the_clamp_writes_cost_it_one_look_each(
    db: Db, store: PostgresStore, queue: RedisQueue
) -> None:
    db.execute("TRUNCATE ticker.tasks, ticker.runs, ticker.tickers")
    for n in range(5):
        ticker.register(db, "plain", name=f"held {n}", every="1m")
    db.execute("UPDATE ticker.tasks SET last_run = now() + interval '1 year'")
    db.execute("""CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        NEW.last_run = OLD.last_run; RETURN NEW; END'""")
    db.execute("CREATE TRIGGER keep BEFORE UPDATE ON ticker.tasks FOR EACH ROW EXECUTE FUNCTION keep()")
    assert tick(store, queue, options=TickOptions(batch=2)).enqueued == 5
