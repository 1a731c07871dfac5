"""L6: no task is left waiting though its keys have room. Only what the actors saw counts here; no slot is read.

Room is certain if there is some by every reading of what happened. Before the calm, clocks were set: what a run, a start or a
hold took then may count from the first clamp after that.
"""

import math
from datetime import timedelta

from tests.doubles import is_due
from tests.simulation.record import Activity
from tests.simulation.world import SECOND, World

LEFT_BEHIND = 600 * SECOND  # a slot whose run was lost, after the clock was set back


def is_calm(world: World) -> bool:
    calm = world.history.calm_from
    return bool(calm) and world.t > calm + round((2 * world.period + 1) * SECOND)


def left(world: World, key: str) -> float:
    """How many more runs of the key have room for certain."""
    history, limit = world.history, world.history.limit_of(key)
    runs = [run for run in history.activities if key in run.keys]
    holds = [hold for hold in history.holds if hold.key == key]
    if any(_since(world, hold.t) + hold.length + _ticks(world) > world.t for hold in holds):
        return 0
    places = math.inf if limit.concurrency is None else limit.concurrency
    places = min(places, 1) if holds else places  # it may still be starting slowly
    token = limit.token // timedelta(microseconds=1)
    tokens = math.inf if limit.burst is None else limit.burst
    used = sum(_since(world, run.started) + token > world.t for run in runs) if token else 0
    return min(places - sum(_is_active(world, run) for run in runs), tokens - used)


def _is_active(world: World, run: Activity) -> bool:
    """A run uses its slot until its end is recorded, or until B + g and two ticks."""
    if run.recorded is not None:
        return False
    was_set_back = any(by < 0 and t >= run.started for t, by in world.history.steps)
    hold = (run.box_ms + run.grace_ms) * 1000 + (LEFT_BEHIND if was_set_back else 0)
    return _since(world, run.started) + hold + _ticks(world) > world.t


def _since(world: World, t: int) -> int:
    return max(t, world.history.calm_from)


def _ticks(world: World) -> int:
    return round(2 * world.period * SECOND)


def judge_tick(world: World) -> None:
    """Right after a pass: what is still due has a key without room. What was pushed and has not started takes room, too.

    A pass may push a task of which a job waits already. Here each of these jobs takes room, as it did in that pass.
    """
    if not world.history.limits or not is_calm(world):
        return
    now, tasks, runs = world.now(), {row.id: row for row in world.tables.task_rows()}, world.tables.run_rows()
    pushed = [tasks[run.task_id] for run in runs if run.state == "pushed" and run.task_id in tasks]
    pushed += [row for row in tasks.values() for _ in row.waiting]
    waiting = [key for row in pushed for key in row.limits or ()]
    rooms = {key: left(world, key) - waiting.count(key) for key in world.history.limits}
    planned = [run.task_id for run in runs if run.state == "planned" and run.due_at and run.due_at <= now]
    due = [row.id for row in tasks.values() if is_due(row, now, 0)]
    for id_ in [*due, *(id_ for id_ in planned if id_ in tasks)]:
        keys = tasks[id_].limits or ()
        world.counts["judged: due after a tick, with limits"] += bool(keys)
        if keys and all(rooms[key] > 0 for key in keys):
            world.history.complain("L6", f"task {id_} is due after the tick at {now}, and {keys} have room: {rooms}")


def judge_refusal(world: World, job_id: str, keys: tuple[str, ...]) -> None:
    if is_calm(world) and all(left(world, key) > 0 for key in keys):
        world.history.complain("L6", f"{job_id} met a full limit at {world.now()}, and {keys} have room")
