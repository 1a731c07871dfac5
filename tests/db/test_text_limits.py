"""The tables limit the length of all that a role may write, and our own statements write nothing that they refuse."""

import pytest
from psycopg import errors

import ticker
from tests.harness import events
from tests.running import work
from ticker.engine.tick import tick
from ticker.model import NAME_AT_MOST, TEXT_AT_MOST

WRITABLE = """
    SELECT c.relname, a.attname, t.oid::regtype::text, coalesce(nullif(t.typbasetype, 0), t.oid)::regtype::text
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
    WHERE c.relnamespace = 'ticker'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attgenerated = ''
      AND (has_column_privilege(%(role)s, c.oid, a.attnum, 'INSERT') OR has_column_privilege(%(role)s, c.oid, a.attnum, 'UPDATE'))"""
LONG = {
    "text": ["repeat('a', 2000000)"],
    "jsonb": ["""('{"a": "' || repeat('a', 2000000) || '"}')::jsonb""", "to_jsonb(repeat('a', 2000000))"],
    "text[]": ["ARRAY[repeat('a', 2000000)]", "array_fill('a'::text, ARRAY[2000000])"],
}
WORDS = {("slots", "kind"), ("pauses", "scope")}
"""Columns with a CHECK of the table that lists their values."""


@pytest.mark.slow
@pytest.mark.parametrize("role", ["worker", "application", "page"])
def test_no_column_that_a_role_may_write_takes_two_megabytes(db, roles, role):
    columns = db.execute(WRITABLE, {"role": roles[role]}).fetchall()
    assert {table for table, *_ in columns} >= {"tasks", "runs"}
    taken = []
    for table, column, kind, base in columns:
        for value in LONG.get(base, []) if (table, column) not in WORDS else []:
            try:
                db.execute(f"SELECT ({value})::{kind}")
                taken.append(f"{table}.{column} {kind}")
            except errors.CheckViolation:
                pass
    assert taken == []


@pytest.mark.slow
def test_the_longest_words_that_triggers_put_together_are_stored(db):
    """By raw SQL, since the functions of `ticker` allow shorter authors."""
    ticker.register(db, "poll", every="1m")
    long, name = "ä" * TEXT_AT_MOST, "ö" * NAME_AT_MOST
    db.execute("UPDATE ticker.tasks SET paused_by = %(long)s, paused_reason = %(long)s", {"long": long})
    db.execute("UPDATE ticker.tasks SET paused_by = NULL, paused_reason = ''")
    texts = {
        **dict.fromkeys(("subject", "description", "zone", "expression"), TEXT_AT_MOST),
        **dict.fromkeys(("function", "queue", "submitter", "group_name", "backoff", "during"), NAME_AT_MOST),
    }
    for letter in "xy":
        values = ", ".join(f"{column} = repeat('{letter}', {length})" for column, length in texts.items())
        db.execute(
            f"UPDATE ticker.tasks SET {values}, limits = ARRAY[repeat('{letter}', 200), repeat('z', 200)],"
            " every_ms = every_ms + 31622400000 - 1000 - every_ms, starts_at = clock_timestamp(), ends_at = '9999-01-01Z', retries = retries + 1"
        )
    db.execute(
        "INSERT INTO ticker.pauses (scope, value, by, reason) VALUES ('owner_type', %s, %s, %s)", [name, name, long]
    )
    lengths = [len(words) for (words,) in events(db, "words")]
    assert max(lengths) > 2 * TEXT_AT_MOST and len(lengths) == 5


FUNCTIONS = """
from wrappers import task

@task("raises")
def raises():
    raise ValueError("\\U0001f4a5" * 1_000_000)

@task("returns.numbers")
def returns_numbers():
    return [5e-324] * 512

@task("returns.digits")
def returns_digits():
    return 10**600
"""


@pytest.mark.slow
def test_no_end_is_lost_for_a_long_text_of_a_run(environ, db, store, queue):
    for function in ("raises", "returns.numbers", "returns.digits"):
        ticker.register(db, function, every="1h")
    tick(store, queue)
    log = work("--name", "w" * 3 * TEXT_AT_MOST, "polling", patch=FUNCTIONS).stdout
    runs = {run.task_name: run for run in ticker.list_runs(db)}
    assert {name: run.outcome for name, run in runs.items()} == {
        "raises": "failed", "returns.numbers": "succeeded", "returns.digits": "succeeded",
    }  # fmt: skip
    assert "cannot be stored" not in log and "gave up" not in log
    assert {len(run.worker) for run in runs.values()} == {TEXT_AT_MOST}
    assert len(runs["raises"].reason) == 500 and len(runs["raises"].traceback) == 64 * 1024
    assert isinstance(runs["returns.digits"].result, str) and isinstance(runs["returns.numbers"].result, str)


@pytest.mark.slow
def test_the_end_of_a_run_that_was_stopped_by_a_long_name_is_written(db, play):
    ticker.register(db, "poll", every="1h")
    play.tick()
    [taken] = play.take()
    db.execute("UPDATE ticker.runs SET stop_requested_at = clock_timestamp(), stop_requested_by = repeat('ü', 200)")
    assert play.end(taken, "interrupted", "stopped")
    [(reason,)] = db.execute("SELECT reason FROM ticker.runs").fetchall()
    assert reason == "stopped by " + "ü" * 200
