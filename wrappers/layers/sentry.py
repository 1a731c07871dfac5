"""What Sentry is told of a run, where the application has loaded it: else all errors would stand under `wrappers.run`.

No arguments, no cursor, no owner and no name of the task: they may be somebody's data. `ticker show ID` tells them.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from rq.timeouts import JobTimeoutException

from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call
from wrappers.sandbox.limits import SoftLimit


def sentry(call: Call, proceed: Proceed) -> str:
    """Names the transaction; it stays named, as RQ's integration reports an error only after all layers have been left."""
    with suppress(Exception):  # its troubles are not the run's
        introduce(call)
    try:
        return proceed(call)
    except (SoftLimit, JobTimeoutException) as limit:
        with suppress(Exception):
            group(call, limit)
        raise


def introduce(call: Call) -> None:
    """The function as the transaction, and tags by which one finds the run."""
    start = call.start
    assert start is not None  # the guard let it through
    if sdk := loaded():
        scope = sdk.get_current_scope()
        scope.set_transaction_name(start.function, source="task")
        known = {"function": start.function, "task": call.task_id, "run": start.run_id, "kind": start.kind}
        scope.set_tags({f"ticker.{name}": str(value) for name, value in known.items()})


def group(call: Call, limit: BaseException) -> None:
    """All time-outs of a function are one issue: by its stack, each would be another one, wherever it was interrupted."""
    assert call.start is not None
    if sdk := loaded():
        sdk.get_current_scope().add_event_processor(grouped(limit, ["ticker", "timed_out", call.start.function]))


def grouped(limit: BaseException, fingerprint: list[str]) -> Callable[[Any, Any], Any]:
    """Of the events, the one that is about this error, or about what it has become."""

    def process(event: Any, hint: Any) -> Any:
        error = (hint.get("exc_info") or (None, None))[1]
        if error is limit or (error is not None and error.__cause__ is limit):
            event["fingerprint"] = fingerprint
        return event

    return process


def apart() -> AbstractContextManager[Any]:
    """Around one of several runs that share a job: what Sentry is told of it is not said of the next."""
    sdk = loaded()
    return sdk.new_scope() if sdk else nullcontext()


def loaded() -> Any:
    """Sentry's SDK, from release 2 on; None where nobody has imported it. We never do."""
    found = sys.modules.get("sentry_sdk")
    return found if hasattr(found, "new_scope") else None
