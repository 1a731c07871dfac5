"""The outermost layer: what RQ and the log are told."""

import logging

from wrappers.pipeline import serialize
from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call
from wrappers.sandbox.limits import SoftLimit

log = logging.getLogger("ticker.run")


class TimedOut(Exception):
    """The run reached its soft limit. RQ and Sentry see this ordinary error; SoftLimit is for the function alone."""


def report(call: Call, proceed: Proceed) -> str:
    """Hands RQ a short text; errors of the function pass through, so that RQ's failed registry and Sentry see them.

    They are read there in full: what the layers did before is left out.
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
    if ":" not in answer:  # a drop has had its own line
        log.info("run %s task=%s job=%s", answer, call.task_id, call.job_id)
    return answer
