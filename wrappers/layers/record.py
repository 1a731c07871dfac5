"""Calls the function, and writes its one outcome, fenced by the run's token."""

import logging
import time
from contextlib import nullcontext
from itertools import chain, repeat

from rq.timeouts import JobTimeoutException

from ticker import clock
from ticker.errors import DatabaseUnavailable
from ticker.task import Outcome
from wrappers import leftovers, page, storable
from wrappers.chain import Proceed
from wrappers.context import Call, HoldLost
from wrappers.limits import SoftLimit

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write the end; the last one repeats


def record(call: Call, proceed: Proceed) -> str:
    """The innermost layer but for the function: it ends in exactly one outcome, or the hard limit ends it."""
    assert call.run is not None
    leftovers.adopt()
    try:
        with call.limits.interrupting() if call.limits else nullcontext():
            answer = proceed(call)
        overlooked = call.limits is not None and call.limits.passed
    except BaseException as error:
        finish(call, outcome_of(error), reason=storable.sentence(error), trace=storable.trace(error))
        raise
    if overlooked:
        return finish(
            call, Outcome.TIMED_OUT, reason="it overlooked its soft limit and returned late", result=answer or None
        )
    outcome = Outcome.PARTIAL if call.run.quota.answered_exhausted else Outcome.SUCCEEDED
    return finish(call, outcome, result=answer or None)


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, SoftLimit | JobTimeoutException):
        return Outcome.TIMED_OUT
    return Outcome.LOST if isinstance(error, HoldLost) else Outcome.FAILED


def finish(call: Call, outcome: Outcome, *, reason: str = "", result: str | None = None, trace: str = "") -> str:
    """Writes the end. A database that is away is asked again, until the hard limit ends the process."""
    assert call.start is not None
    leftovers.kill()  # the end frees the hold: another run may begin beside whatever still lives
    deadline = call.began + (call.start.box_ms + call.start.grace_ms) / 1000
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    while True:
        try:
            return _finish(call, outcome, reason, result, trace)
        except DatabaseUnavailable as error:
            log.warning("the end of task=%s could not be written yet: %s", call.task_id, error)
            if clock.monotonic() > deadline:  # only where hard_limit=off lets a run come so far
                raise
            time.sleep(next(pauses))


def _finish(call: Call, outcome: Outcome, reason: str, result: str | None, trace: str) -> str:
    assert call.start is not None
    ended = call.database.finish(call.task_id, call.start.token, outcome, reason=reason, result=result, traceback=trace)
    page.clear()
    if not ended:
        log.warning("hold lost task=%s run=%s: its end (%s) changed nothing", call.task_id, call.start.run_id, outcome)
        return "lost: another run holds the task"
    return outcome
