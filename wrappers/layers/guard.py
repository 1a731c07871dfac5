"""Stops calls without a start. Our Worker requests the start before the fork; under a stock worker, this layer does."""

from wrappers.pipeline import start
from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call


def guard(call: Call, proceed: Proceed) -> str:
    """Runs the job, or drops it with a reason."""
    asked = call if call.start is not None else start.ask(call)
    return asked if isinstance(asked, str) else proceed(asked)
