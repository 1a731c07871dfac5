"""Rows, arguments and instants for the tests of several folders."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


def engine_on(url: str) -> Engine:
    """An engine with psycopg 3; SQLAlchemy 2.0 takes `postgresql://` for psycopg2."""
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)


def a_run(db, task, **values):
    """A row of `runs`, by default one that succeeded on time."""
    due = values.get("occurrence") or NINE + first_free(db, task)
    given = {"task_id": task.id, "task_name": task.name, "function": task.function, "owner_type": task.owner_type,
             "owner_id": task.owner_id, "kind": "scheduled", "occurrence": due, "state": "ended", "outcome": "succeeded",
             "started_at": due, "until": due + 31 * SECOND, "ended_at": due + SECOND, "created_at": due, "checked_at": due,
             "every_ms": 60_000, "tolerance_ms": 5_000}  # fmt: skip
    values = given | values
    names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
    [[id_]] = db.execute(f"INSERT INTO ticker.runs ({names}) VALUES ({marks}) RETURNING id", [*values.values()])
    return id_


def first_free(db, task):
    """An occurrence has one record: further runs that name none are a microsecond apart."""
    [(taken,)] = db.execute(
        "SELECT count(*) FROM ticker.runs WHERE task_id = %s AND kind = 'scheduled' AND occurrence >= %s"
        " AND occurrence < %s + interval '10 milliseconds'", [task.id, NINE, NINE]
    )  # fmt: skip
    return timedelta(microseconds=taken)


def a_drop(db, task, reason, **values):
    at = values.get("checked_at", NINE)
    given = {"outcome": "dropped", "reason": reason, "checked_at": at, "ended_at": at, "created_at": at}
    return a_run(db, task, **given | {"started_at": None, "until": None} | values)


def an_event(db, task, what, at, by="", words=""):
    db.execute(
        "INSERT INTO ticker.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [at, task.id, task.name, task.function, task.owner_type, task.owner_id, what, by, words],
    )


def ticked(db, ago=SECOND, started=NINE - 60 * MINUTE, ended=False, **report):
    """Writes a ticker's heartbeat, with this report. Its age is counted by the database's own clock."""
    report = {"ended": True} if ended else report
    db.execute(
        "INSERT INTO ticker.tickers (id, host, pid, started_at, last_tick_at, last_report)"
        " VALUES (gen_random_uuid(), 'here', 7, %s, clock_timestamp() - %s, %s::jsonb)",
        [started, ago, json.dumps(report)],
    )


def a_need(db, queue="polling", average=1.5, enough=2, functions="{}"):
    """How many workers a queue needs, measured just now."""
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, needed, demand) VALUES (date_trunc('minute', clock_timestamp()), %s, %s,"
        " jsonb_build_object('at', clock_timestamp(), 'average', %s::float8, 'functions', %s::text::jsonb))",
        [queue, enough, average, functions],
    )


def let_time_pass(db, seconds):
    """Moves the last starts into the past by that much."""
    db.execute("UPDATE ticker.tasks SET last_run = last_run - %s", [timedelta(seconds=seconds)])


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def create_trace(db):
    """Creates the table in which the functions of `tests.sample_tasks` record their work."""
    db.execute("CREATE TABLE trace (id bigint GENERATED ALWAYS AS IDENTITY, what text, value jsonb, pid int)")
