"""The output of commands, and the records that they print."""

import json
import re

from tests.harness import command

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
RUN = {
    "id", "task_id", "task_name", "function", "owner", "owner_type", "owner_id", "kind", "parent_id", "item",
    "occurrence", "attempt", "retried", "pieces", "state", "outcome", "reason", "due_at", "pushed_at", "started_at",
    "until", "ended_at", "created_at", "checked_last_run", "checked_at", "every_ms",
    "tolerance_ms", "early_ms", "took_ms", "result", "traceback", "worker", "host", "pid", "job_id",
    "stop_requested_by", "stop_requested_at", "queue", "subject",
}  # fmt: skip


def answer(*words, code=0):
    """What a command says with --json."""
    return json.loads(command(*words, "--json", code=code)[0])


def refused(*words, code=2):
    """The sentence by which a command is refused."""
    out, err = command(*words, code=code)
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
    return err[7:-1]


def dropped(db, task_id, reason, **columns):
    """The record of a drop. Each has an occurrence of its own, a microsecond after the last one's."""
    [[count]] = db.execute("SELECT count(*) FROM ticker.runs WHERE task_id = %s", [task_id]).fetchall()
    values = {"task_id": task_id, "task_name": "mail.fetch", "reason": reason, "kind": "scheduled", "state": "ended",
              "outcome": "dropped", "occurrence": f"2026-03-01T12:02:00.{count:06}Z", "ended_at": "2026-03-01T12:02:03Z"} | columns  # fmt: skip
    db.execute(
        f"INSERT INTO ticker.runs ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))})", [*values.values()]
    )
