"""What a fault run writes down while it goes on, and what it takes from the database at its end."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row

AUDIT = Path(__file__).with_name("audit.sql")
INSTANTS = {
    "tasks": ("next_run", "waiting", "push_after", "last_run", "last_occurrence", "running_until", "paused_until", "alone_until", "again_at",
              "last_ended_at", "last_success_at", "last_worked_at", "created_at", "updated_at", "resumed_at", "waits_again"),
    "runs": ("occurrence", "due_at", "pushed_at", "started_at", "until", "ended_at", "created_at",
             "checked_last_run", "checked_at"),
    "events": ("at",),
    "slots": ("until",),
}  # fmt: skip


class Journal:
    """`events.jsonl`: one line per event, with the monotonic clock, written at once. For any thread."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "events.jsonl").open("a", buffering=1, encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, event: str, **more: Any) -> None:
        with self._lock:
            self._file.write(json.dumps({"at": time.monotonic(), "event": event, **more}) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def install_audit(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(AUDIT.read_bytes())


def export(database_url: str, file: Path) -> None:
    """`database.jsonl`: the audit trail, then every row as it stands at the end. `database-0.jsonl` is the same of a database
    that was replaced by an older dump."""
    with (
        psycopg.connect(database_url, row_factory=dict_row) as connection,
        file.open("w", encoding="utf-8") as lines,
    ):
        rows = (_rows(connection, relation) for relation in ("tasks", "runs", "events", "slots"))
        for line in chain(_changes(connection), *rows):
            lines.write(json.dumps(line) + "\n")


def _changes(connection: psycopg.Connection[Any]) -> Iterator[dict[str, Any]]:
    query = "SELECT seq, xid, clock, relation, op::text, id, old, new FROM audit.changes ORDER BY seq"
    for row in connection.execute(query):
        relation = row["relation"]
        yield {
            "at": None, "event": "row", "table": relation, "op": row["op"], "seq": row["seq"], "xid": row["xid"],
            "clock": row["clock"].timestamp(), "id": row["id"],
            "old": _numbered(relation, row["old"]), "new": _numbered(relation, row["new"]),
        }  # fmt: skip


def _rows(connection: psycopg.Connection[Any], relation: str) -> Iterator[dict[str, Any]]:
    order = "key, kind, n" if relation == "slots" else "id"
    for row in connection.execute(f"SELECT to_jsonb(t) AS row FROM ticker.{relation} t ORDER BY {order}"):  # type: ignore[arg-type]
        kind = "noted" if relation == "events" else relation[:-1]
        yield {"at": None, "event": kind, "row": _numbered(relation, row["row"])}


def _numbered(relation: str, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Instants as seconds since 1970."""
    if row is None:
        return None
    return {column: _number(value) if column in INSTANTS[relation] else value for column, value in row.items()}


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(item) for item in value]
    return None if value is None else datetime.fromisoformat(value).timestamp()
