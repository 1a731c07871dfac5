"""Calls the function, and writes its one outcome, fenced by the run's token."""

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, repeat

from rq.timeouts import JobTimeoutException

from ticker import clock
from ticker.errors import DatabaseUnavailable
from ticker.task import GOOD, Outcome
from wrappers import leftovers, page, storable
from wrappers.chain import Proceed
from wrappers.context import Call, HoldLost
from wrappers.limits import SoftLimit
from wrappers.output import Capture

log = logging.getLogger("ticker.run")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt to write the end; the last one repeats


@dataclass(frozen=True, slots=True)
class End:
    """What is written of a run's end."""

    outcome: Outcome
    reason: str = ""
    result: str | None = None
    traceback: str = ""
    pieces: str | None = None
    """A JSON array of pieces of work, for which the run waits."""


def record(call: Call, proceed: Proceed) -> str:
    """The innermost layer but for the function: it ends in exactly one outcome, or the hard limit ends it."""
    assert call.run is not None
    capture = Capture(call.settings.output == "keep")
    leftovers.adopt()
    try:
        with capture, call.limits.interrupting() if call.limits else nullcontext():
            proceed(call)
        overlooked = call.limits is not None and call.limits.passed
    except BaseException as error:
        finish(call, End(outcome_of(error), storable.sentence(error), traceback=storable.trace(error)), capture)
        raise
    return finish(call, end_of(call, overlooked), capture)


def end_of(call: Call, overlooked: bool) -> End:
    """Of a run whose function returned."""
    assert call.run is not None
    answer = call.answer
    if overlooked:
        return End(Outcome.TIMED_OUT, "it overlooked its soft limit and returned late", answer.result)
    if answer.nothing_to_do:
        return End(Outcome.NOTHING_TO_DO)
    outcome = Outcome.PARTIAL if call.run.quota.answered_exhausted else Outcome.SUCCEEDED
    return End(outcome, result=answer.result, pieces=answer.pieces)


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, SoftLimit | JobTimeoutException):
        return Outcome.TIMED_OUT
    return Outcome.LOST if isinstance(error, HoldLost) else Outcome.FAILED


def finish(call: Call, end: End, capture: Capture) -> str:
    """Writes the end. A database that is away is asked again, until the hard limit ends the process."""
    assert call.start is not None
    leftovers.kill()  # the end frees the hold: another run may begin beside whatever still lives
    deadline = call.began + (call.start.box_ms + call.start.grace_ms) / 1000
    pauses = chain(PAUSES, repeat(PAUSES[-1]))
    texts = capture.texts()
    while True:
        try:
            return _finish(call, end, *texts)
        except DatabaseUnavailable as error:
            log.warning("the end of task=%s could not be written yet: %s", call.task_id, error)
            if clock.monotonic() > deadline:  # only where hard_limit=off lets a run come so far
                raise
            time.sleep(next(pauses))


def _finish(call: Call, end: End, output: str, error_output: str) -> str:
    assert call.start is not None
    texts = {"output": output, "error_output": error_output}
    if end.pieces is not None:
        ended = call.database.hand_out(call.task_id, call.start.token, end.pieces, **texts)
    else:
        ended = call.database.finish(
            call.task_id, call.start.token, end.outcome, reason=end.reason, result=end.result, traceback=end.traceback,
            **texts,
        )  # fmt: skip
    page.clear()
    if not ended:
        log.warning(
            "hold lost task=%s run=%s: its end (%s) changed nothing", call.task_id, call.start.run_id, end.outcome
        )
        return "lost: another run holds the task"
    if call.settings.wake and (end.pieces is not None or end.outcome not in GOOD):  # there is more for a tick to do
        call.database.execute("wake_up", schema=call.settings.schema)
    return end.outcome if end.pieces is None else "processing"
