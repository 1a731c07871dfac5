"""Reports the outcome to RQ, as the outermost layer."""

from wrappers.pipeline import serialize
from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call
from wrappers.sandbox.limits import SoftLimit


class TimedOut(Exception):
    """The run reached its soft limit. RQ and Sentry see this ordinary error; only the function sees SoftLimit."""


def report(call: Call, proceed: Proceed) -> str:
    """Returns a short text for RQ. Errors of the function pass through to RQ's failed registry and to Sentry.

    Their tracebacks begin at the function, without the frames of the layers.
    """
    try:
        return proceed(call)
    except SoftLimit as limit:
        serialize.shorten(limit)
        raise TimedOut(str(limit)) from limit
    except Exception as error:
        serialize.shorten(error)
        raise
