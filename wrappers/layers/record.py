"""Calls the function, and writes its one outcome, fenced by the run's token."""

import os
from asyncio import CancelledError
from contextlib import nullcontext
from dataclasses import replace

from rq.timeouts import JobTimeoutException

from ticker.errors import BadInput
from ticker.model import NO_FAILURE, Outcome
from wrappers.pipeline import finish as finishing
from wrappers.pipeline import serialize
from wrappers.pipeline.context import Call, HoldLost, log_end
from wrappers.pipeline.hold_off import SlowDown, checked_key
from wrappers.pipeline.invoke import call_function
from wrappers.pipeline.output import Capture
from wrappers.sandbox import child_processes, handoff, limits, shared_state
from wrappers.sandbox.handoff import STOPPED, End, PendingEnd
from wrappers.sandbox.limits import SoftLimit


def record(call: Call) -> str:
    """Calls the function in this thread. The run ends in exactly one outcome, unless the hard limit kills it."""
    assert call.run is not None
    capture = Capture(call.settings.output == "keep")
    child_processes.adopt()
    try:
        with capture, call.limits.interrupting() if call.limits else nullcontext():
            call_function(call)
        call.answer.overlooked |= call.limits is not None and call.limits.passed
    except BaseException as error:
        note_stop(call)
        end = end_of_error(call, error)
        answer = finish(call, end, capture)
        if end.outcome in NO_FAILURE:
            return answer
        raise
    note_stop(call)
    return finish(call, end_of(call), capture)


def note_stop(call: Call) -> None:
    call.answer.stopped = call.limits is not None and call.limits.stopped


def end_of(call: Call) -> End:
    """Returns the end of a run whose function returned."""
    assert call.run is not None
    answer = call.answer
    if answer.stopped:
        return End(Outcome.INTERRUPTED, STOPPED, answer.result)
    if answer.overlooked:
        return End(Outcome.TIMED_OUT, "it ignored its soft limit and returned late", answer.result)
    if answer.nothing_to_do:
        return End(Outcome.NOTHING_TO_DO)
    outcome = Outcome.PARTIAL if call.run.quota.answered_exhausted else Outcome.SUCCEEDED
    return End(outcome, answer.note, answer.result, pieces=answer.pieces, made=answer.made)


def end_of_error(call: Call, error: BaseException, *, is_cancelled: bool = True) -> End:
    """Returns the end of a run whose function raised. After a stop, any error counts as the stop.

    `is_cancelled`: False in a group, if nothing asked the run's own coroutine to end.
    """
    assert call.start is not None
    if call.answer.stopped:
        return End(Outcome.INTERRUPTED, STOPPED, traceback=serialize.trace(error))
    if isinstance(error, SlowDown):
        try:
            key = checked_key(error.key, call.start.limits)
        except BadInput as wrong:
            return End(Outcome.FAILED, f"SlowDown: {wrong}", traceback=serialize.trace(error))
        return End(Outcome.HELD_OFF, f"{key} is held off for a while", held_key=key, held_ms=error.for_ms)
    by = call.answer.cancelled_by
    if isinstance(error, CancelledError) and (by is not None or not is_cancelled):
        reason = f"it was cancelled by the code of task {by}" if by is not None else "what it awaited was cancelled"
        return End(Outcome.INTERRUPTED, reason, traceback=serialize.trace(error))
    return End(outcome_of(error), serialize.sentence(error), traceback=serialize.trace(error))


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, SoftLimit | JobTimeoutException):
        return Outcome.TIMED_OUT
    return Outcome.LOST if isinstance(error, HoldLost) else Outcome.FAILED


def finish(call: Call, end: End, capture: Capture) -> str:
    """Leaves the end to the worker, or writes it."""
    assert call.start is not None
    child_processes.kill()  # the end frees the hold, so another run could begin next to leftover processes
    left = pending_end(call, end, *capture.texts())
    is_left = end.pieces is None and handoff.leave(left)  # pieces may be many, so the horse writes them itself
    is_ended = is_left or finishing.write(call.database, left, until=call.deadline, wake=call.settings.wake)
    shared_state.clear()
    if not is_ended:
        return "lost: another run holds the task"
    answer = end.outcome if end.pieces is None else "processing"
    log_end(answer, end.reason, call.task_id, call.start.names, call.start.run_id, call.job_id)
    return answer


def pending_end(call: Call, end: End, output: str, error_output: str) -> PendingEnd:
    """Returns the end of a run whose function has just ended, with what it wrote."""
    assert call.start is not None
    end = replace(end, output=output, error_output=error_output, pid=os.getpid(), at=limits.now())
    return PendingEnd(call.task_id, call.start.run_id, call.start.token, end)
