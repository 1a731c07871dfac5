"""Old records, and those that a lap of pruning keeps."""

from datetime import timedelta

import ticker
from ticker.daemon import prune
from ticker.daemon.prune import Pruned
from ticker.settings import Settings

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def of(db, keep="all", name="poll"):
    """The id of a task."""
    return ticker.register(db, "poll", name=name, every="1m", keep=keep).id


def put(db, task, outcome, age, *, reason="too_early", **columns):
    """The record of a run, or of a drop; its id."""
    values = {"task_id": task, "kind": "manual", "state": "ended", "outcome": outcome,
              "reason": reason if outcome == "dropped" else ""} | columns  # fmt: skip
    ended = "NULL" if values["state"] != "ended" else "clock_timestamp() - %(age)s"
    names = ", ".join(values)
    [[id_]] = db.execute(
        f"INSERT INTO ticker.runs ({names}, created_at, ended_at)"
        f" VALUES ({', '.join(f'%({name})s' for name in values)}, clock_timestamp() - %(age)s, {ended}) RETURNING id",
        values | {"age": age},
    ).fetchall()
    return id_


def newer(db, task, outcome="succeeded", count=20, age=3 * HOUR):
    return [put(db, task, outcome, age) for _ in range(count)]


def left(db, table="runs"):
    return [id_ for (id_,) in db.execute(f"SELECT id FROM ticker.{table} ORDER BY id")]


def lap(store, settings=None, dry=False):
    return sum(prune.lap(store, settings or Settings(), dry=dry), Pruned())


def event(db, task, age, told=True):
    [[id_]] = db.execute(
        "INSERT INTO ticker.events (at, task_id, what, told) VALUES (clock_timestamp() - %s, %s, 'failed', %s) RETURNING id",
        [age, task, told],
    ).fetchall()
    return id_
