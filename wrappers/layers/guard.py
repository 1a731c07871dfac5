"""Asks the database whether this job may run. It decides, records, and sets `last_run` in one atomic statement."""

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from ticker import clock, timing
from ticker.schedules.duration import words
from ticker.task import Outcome, Reason
from wrappers import page, registry
from wrappers.chain import Proceed
from wrappers.context import Call, Start

log = logging.getLogger("ticker.run")

SLOWEST_ANSWER = 2.0  # seconds; after a longer wait nobody knows how much of the hold is left


def guard(call: Call, proceed: Proceed) -> str:
    """Runs the job, or drops it with a reason. If the database cannot be asked, nothing runs (DatabaseUnavailable)."""
    token = str(uuid4())
    call.database.open()
    page.write(call.task_id, token)
    began = clock.monotonic()
    verdict = ask(call, token)
    if verdict["refusal"]:
        page.clear()
        return drop(call, verdict)
    waited = clock.monotonic() - began
    if waited > SLOWEST_ANSWER:
        return give_up(call, token, waited)
    return proceed(replace(call, began=began, start=_start(verdict, token)))


def ask(call: Call, token: str) -> Mapping[str, Any]:
    """The start statement, for a scheduled or for a planned run."""
    common: dict[str, Any] = {
        "task_id": call.task_id, "functions": list(registry.functions()), "token": token, "now": clock.now(),
        "worker": call.worker, "host": socket.gethostname(), "pid": os.getpid(), "job_id": call.job_id,
    }  # fmt: skip
    if call.planned is not None:
        return call.database.execute("start_planned", run_id=call.planned, **common)[0]
    return call.database.execute("start", occurrence=call.occurrence, **common)[0]


def drop(call: Call, verdict: Mapping[str, Any]) -> str:
    """A drop is a warning and a record, and for RQ an ordinary end."""
    reason = Reason(verdict["refusal"])
    detail = explain(reason, verdict)
    log.warning(
        "dropped reason=%s task=%s name=%s last_run=%s interval=%s tolerance=%s: %s",
        reason, call.task_id, verdict["name"] or "?", verdict["last_run"],
        words(verdict["every_ms"] or 0), words(verdict["tolerance_ms"] or 0), detail,
    )  # fmt: skip
    return f"dropped: {reason}, {detail}"


def explain(reason: Reason, verdict: Mapping[str, Any]) -> str:
    """The numbers behind a refusal, in a few words."""
    now, last_run = verdict["now"], verdict["last_run"]
    match reason:
        case Reason.TOO_EARLY:
            early = timing.earliest_start(last_run, verdict["every_ms"], verdict["tolerance_ms"]) - now
            return f"{_span(early)} early, {_span(now - last_run)} after the last start"
        case Reason.STILL_RUNNING:
            return f"another run holds the task for {_span(verdict['running_until'] - now)} more"
        case Reason.CLOCK:
            return f"the clock was set back by {_span(last_run - now)} or more"
        case Reason.UNKNOWN_FUNCTION:
            return f"this worker knows no function {verdict['function']!r}; see --tasks"
        case Reason.GONE:
            return "the task was deleted"
        case Reason.PAUSED:
            return "the task is paused or disabled, or its owner is inactive"
        case Reason.EXPIRED:
            return "it waited too long, and a newer one waits"
        case Reason.DUPLICATE:
            return "this occurrence has already had its start"


def give_up(call: Call, token: str, waited: float) -> str:
    """The answer came so late that the hold may be half over: end the run before it begins."""
    reason = f"the start statement took {waited:.1f} s, over the limit of {SLOWEST_ANSWER:g} s"
    call.database.execute(
        "finish", task_id=call.task_id, token=token, outcome=Outcome.LOST, reason=reason,
        result=None, traceback="", now=clock.now(),
    )  # fmt: skip
    page.clear()
    log.warning("lost task=%s: %s", call.task_id, reason)
    return f"lost: {reason}"


def _start(verdict: Mapping[str, Any], token: str) -> Start:
    return Start(
        run_id=verdict["run_id"], token=token, now=verdict["now"], name=verdict["name"], function=verdict["function"],
        kwargs=verdict["kwargs"], owner_type=verdict["owner_type"], owner_id=verdict["owner_id"],
        cursor=verdict["cursor"], box_ms=verdict["box_ms"], grace_ms=verdict["grace_ms"],
    )  # fmt: skip


def _span(delta: timedelta) -> str:
    """A difference for people: `27 s`."""
    return f"{delta.total_seconds():.3f}".rstrip("0").rstrip(".") + " s"
