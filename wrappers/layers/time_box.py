"""Sets the limits of a run: a quota that the function may check, an interruption that it cannot miss, and the kill.

`wrappers.sandbox.limits` enforces them with timers. `wrappers.sandbox.supervisor` does so if the worker cannot.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import cast

from ticker.engine import timing
from wrappers.pipeline.context import Call, Quota, Run
from wrappers.sandbox import shared_state
from wrappers.sandbox.limits import How, Limits

log = logging.getLogger("ticker.run")


@contextmanager
def time_box(call: Call) -> Iterator[Call]:
    """Yields the call with its run and its limits. Ends the quota after the box B, interrupts at B + g/2, and kills at B + g, counted from just before the request."""
    start = call.start
    assert start is not None  # the guard let it through
    granted = timing.granted_box(start.box_ms, start.grace_ms, call.rq_timeout)
    if granted != start.box_ms:
        call = replace(call, start=replace(start, box_ms=granted))
    with limited(call, granted, start.grace_ms) as limits:
        yield replace(call, run=new_run(call), limits=limits)


def new_run(call: Call) -> Run:
    """Returns what the function receives as its run."""
    start = call.start
    assert start is not None  # the guard let it through
    quota = Quota(start.box_ms / 1000, call.began)
    return Run(
        start.run_id, call.task_id, start.name, start.owner_type, start.owner_id, start.occurrence, start.cursor,
        quota, start.token, call.database, start.kind, start.attempt, start.limits,
    )  # fmt: skip


@contextmanager
def limited(call: Call, box_ms: int, grace_ms: int) -> Iterator[Limits | None]:
    """Yields armed limits and cancels them last of all. Yields None if hard_limit=off, for workers that do not fork."""
    if call.settings.hard_limit == "off":
        log.warning(
            "hard_limit=off: nothing ends task=%s if it overruns its box",
            call.task_id,
            extra={"event": "no_hard_limit"},
        )
        yield None
        return
    hard = (box_ms + grace_ms) / 1000
    assert call.start is not None
    limits = Limits(
        hard - grace_ms / 2000, hard, since=call.since, how=cast(How, call.settings.hard_limit),
        is_stopped=partial(shared_state.is_stopped, call.start.token),
    )  # fmt: skip
    # for the worker and supervisor, which end what the timers cannot: children, and programs started by an exec
    shared_state.write_deadline(call.since + hard, hard)
    limits.arm()
    try:
        yield limits
    finally:
        limits.cancel()  # the deadline stays: children live until the horse is dead, and RQ may delay that
