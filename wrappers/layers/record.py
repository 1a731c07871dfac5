"""Calls the function, and writes its one outcome, fenced by the run's token."""

import os
import threading
from asyncio import CancelledError
from contextlib import nullcontext
from dataclasses import replace

from rq.timeouts import JobTimeoutException

from ticker.errors import BadInput
from ticker.model import NO_FAILURE, Outcome
from wrappers.pipeline import finish as finishing
from wrappers.pipeline import serialize
from wrappers.pipeline.context import Call, HoldLost, log_end
from wrappers.pipeline.invoke import call_function
from wrappers.pipeline.output import Capture
from wrappers.pipeline.slow_down import SlowDown, checked_key
from wrappers.sandbox import child_processes, handoff, limits, shared_state
from wrappers.sandbox.handoff import STOPPED, End, PendingEnd
from wrappers.sandbox.limits import SoftLimit


def record(call: Call) -> str:
    """Calls the function in this thread. The run ends in exactly one outcome, unless the hard limit kills it."""
    assert call.start is not None
    capture, answer = Capture(call.settings.output == "keep"), call.answer
    child_processes.adopt()
    before, error = set(threading.enumerate()), None
    try:
        with capture, call.limits.interrupting() if call.limits else nullcontext():
            call_function(call)
        answer.overlooked |= call.limits is not None and call.limits.passed
    except BaseException as raised:
        child_processes.exit_if_forked()
        error = raised
    answer.stopped = call.limits is not None and call.limits.stopped
    answer.threads = set(threading.enumerate()) - before
    child_processes.kill()  # the end frees the hold, so another run could begin next to leftover processes
    left = pending_end(call, error, *capture.texts())
    is_ended = leave(left) or finishing.write(call.database, left, until=call.deadline)
    shared_state.clear()
    text = log_ended(call, left.end) if is_ended else "lost: another run holds the task"
    if error is not None and left.end.outcome not in NO_FAILURE:
        raise error
    return text


def pending_end(call: Call, error: BaseException | None, output: str, error_output: str) -> PendingEnd:
    """Returns the end of a run whose function has just returned or raised, with what it wrote and the threads it left."""
    assert call.start is not None
    end = end_of(call) if error is None else end_of_error(call, error)
    reason = "; ".join(filter(None, (end.reason, threads_left(call))))
    end = replace(end, reason=reason, output=output, error_output=error_output, pid=os.getpid(), at=limits.now())
    return PendingEnd(call.task_id, call.start.run_id, call.start.token, end, bool(call.start.limits))


def leave(left: PendingEnd) -> bool:
    """Leaves the end to the worker. Returns False if the horse must write it: it may have many pieces."""
    return left.end.pieces is None and handoff.leave(left)


def log_ended(call: Call, end: End) -> str:
    """Logs an end that was left or written. Returns the word for RQ."""
    assert call.start is not None
    answer = end.outcome if end.pieces is None else "processing"
    log_end(answer, end.reason, call.task_id, call.start.names, call.start.run_id, call.job_id)
    return answer


def threads_left(call: Call) -> str:
    """Returns a sentence about the threads that the function left, except daemons and those of an executor."""
    left = [thread.name for thread in call.answer.threads if thread.is_alive() and not is_of_executor(thread)]
    names = serialize.visible(serialize.clean(", ".join(sorted(left))))[: serialize.REPR_AT_MOST]
    return names and f"it left threads: {names}"


def is_of_executor(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None) or type(thread)
    return thread.daemon or (getattr(target, "__module__", "") or "").startswith("concurrent.")


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


def end_of_error(call: Call, error: BaseException) -> End:
    """Returns the end of a run whose function raised. After a stop, any error counts as the stop."""
    assert call.start is not None
    if call.answer.stopped:
        return End(Outcome.INTERRUPTED, STOPPED, traceback=serialize.trace(error))
    if isinstance(error, SlowDown):
        try:
            key = checked_key(error.key, call.start.limits)
        except BadInput as wrong:
            return End(Outcome.FAILED, f"SlowDown: {wrong}", traceback=serialize.trace(error))
        return End(Outcome.SLOWED_DOWN, f"{key} is closed for a while", closed_key=key, closed_ms=error.for_ms)
    by = call.answer.cancelled_by
    if isinstance(error, CancelledError) and (by is not None or not call.answer.is_cancelled):
        reason = f"it was cancelled by the code of task {by}" if by is not None else "what it awaited was cancelled"
        return End(Outcome.INTERRUPTED, reason, traceback=serialize.trace(error))
    return End(outcome_of(error), serialize.sentence(error), traceback=serialize.trace(error))


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, SoftLimit | JobTimeoutException):
        return Outcome.TIMED_OUT
    return Outcome.LOST if isinstance(error, HoldLost) else Outcome.FAILED
