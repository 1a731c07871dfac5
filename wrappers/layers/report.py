"""Reports the outcome to RQ and the log, as the outermost layer."""

import logging

from wrappers.pipeline import serialize
from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call
from wrappers.sandbox.limits import SoftLimit

log = logging.getLogger("ticker.run")


class TimedOut(Exception):
    """The run reached its soft limit. RQ and Sentry see this ordinary error; only the function sees SoftLimit."""


def report(call: Call, proceed: Proceed) -> str:
    """Returns a short text for RQ. Errors of the function pass through to RQ's failed registry and to Sentry.

    Their tracebacks begin at the function, without the frames of the layers.
    """
    try:
        answer = proceed(call)
    except SoftLimit as limit:
        log.warning("run timed_out task=%s job=%s", call.task_id, call.job_id)
        serialize.shorten(limit)
        raise TimedOut(str(limit)) from limit
    except Exception as error:
        serialize.shorten(error)
        raise
    if ":" not in answer:  # a drop has its own log line
        log.info("run %s task=%s job=%s", answer, call.task_id, call.job_id)
    return answer
