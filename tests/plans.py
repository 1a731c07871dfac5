"""PostgreSQL's plans of the statements in `ticker.db.sql`: the indexes they use, and the tables they read in full."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from ticker.db.sql import statements
from ticker.tasks.rows import ALL_SEEN, LISTS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES: dict[type, str] = {datetime: "timestamptz", int: "bigint", UUID: "uuid", list: "text[]", str: "text"}

ROWS = 200_000


TASKS = f"""
INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, waiting)
SELECT 'task ' || n, 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling',
    timestamptz '{NOW}' + (n - 1000) * interval '10 milliseconds',
    CASE WHEN n % 1000 = 0 THEN ARRAY[timestamptz '{NOW}'] ELSE '{{}}' END
FROM generate_series(1, {ROWS}) n"""


RUNS = f"""
INSERT INTO ticker.runs (task_id, kind, occurrence, state, outcome, due_at, started_at, ended_at, token, until)
SELECT 1 + n % 20000, 'scheduled', at, state, CASE state WHEN 'ended' THEN 'succeeded' END, at,
    CASE WHEN state IN ('ended', 'running') THEN at END, CASE state WHEN 'ended' THEN at END,
    CASE state WHEN 'running' THEN gen_random_uuid() END, CASE state WHEN 'running' THEN at END
FROM generate_series(1, {ROWS}) n,
    LATERAL (SELECT timestamptz '{NOW}' - n * interval '1 second' AS at,
             CASE n % 5000 WHEN 1 THEN 'planned' WHEN 2 THEN 'pushed' WHEN 3 THEN 'running' ELSE 'ended' END AS state) s"""


def plan(db: psycopg.Connection[Any], statement: str, **parameters: Any) -> list[dict[str, Any]]:
    """The nodes of the plan of a real statement."""
    text, names = numbered(statement)
    parameters = ALL_SEEN | parameters
    types = [TYPES.get(type(parameters[name]), "unknown") for name in names]
    with psycopg.ClientCursor(db) as cursor:
        cursor.execute(f"PREPARE looked_at ({', '.join(types)}) AS {text}")
        try:
            values = [parameters[name] for name in names]
            cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at ({', '.join(['%s'] * len(names))})", values)
            [[[found]]] = cursor.fetchall()
        finally:
            cursor.execute("DEALLOCATE looked_at")
    return list(nodes(found["Plan"]))


def numbered(statement: str) -> tuple[str, list[str]]:
    """A statement with $1, $2 ... for its parameters, as PREPARE takes it, and their names."""
    text = statements("ticker", LISTS)[statement]
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})s", f"${number}")
    return text, names


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from nodes(inner)


def indexes(found: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in found if "Index Name" in node}


def read_whole(found: list[dict[str, Any]]) -> set[str]:
    """The tables that are read from the beginning to the end."""
    return {node["Relation Name"] for node in found if node["Node Type"] == "Seq Scan"}


def read_per_row(found: list[dict[str, Any]]) -> set[str]:
    """The common table expressions that are read in full for each row of something else."""
    joins = [node["Plans"] for node in found if node["Node Type"] == "Nested Loop"]
    inner = [one for plans in joins for one in plans if one["Parent Relationship"] == "Inner"]
    return {one["CTE Name"] for node in inner for one in nodes(node) if one["Node Type"] == "CTE Scan"}


def walked(found: list[dict[str, Any]]) -> set[str]:
    """The tables of which every row is read, in any order."""
    return read_whole(found) | {
        node["Relation Name"]
        for node in found
        if node.get("Index Name", "").endswith("_pkey") and "Index Cond" not in node
    }


def crowd(db: psycopg.Connection[Any]) -> None:
    """Writes 200,000 tasks (1,000 due, 200 waiting) and 200,000 runs (40 planned, pushed and running each)."""
    db.execute(TASKS)
    db.execute(RUNS)
    db.execute("INSERT INTO ticker.limited_keys (key) SELECT 'key:' || n FROM generate_series(1, 20000) n")
    db.execute("SET default_statistics_target = 1000")  # all rows are sampled: a plan must not depend on luck
    db.execute("VACUUM ANALYZE ticker.tasks, ticker.runs, ticker.limited_keys")
    db.execute("RESET default_statistics_target")
