"""Labels a run for Sentry, if the application has loaded it. Otherwise all errors would be listed under `wrappers.run`.

Sends no arguments, cursor, owner or task name, which may be personal data. `ticker list TASK` prints them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from rq.timeouts import JobTimeoutException

from wrappers.pipeline.context import Answer, Call
from wrappers.sandbox.limits import SoftLimit

_keeps_names = False


@contextmanager
def labelled(call: Call) -> Iterator[None]:
    """Names the transaction. The name stays, because RQ's integration reports errors after all else has returned."""
    with suppress(Exception):  # an error in Sentry must not fail the run
        introduce(call)
    assert call.start is not None
    with one_issue(call.start.function, call.answer):
        yield


@contextmanager
def one_issue(function: str, answer: Answer | None = None) -> Iterator[None]:
    """Groups all timeouts of a function as one issue. Grouped by stack, each point of interruption would be its own
    issue. A job of several has this around it, too: the scope of its run has ended when RQ's timeout is reported.
    """
    try:
        yield
    except (SoftLimit, JobTimeoutException) as limit:
        if not (answer and answer.stopped):
            with suppress(Exception):
                group(function, limit)
        raise


def introduce(call: Call) -> None:
    """Sets the function as the transaction, and tags that identify the run."""
    start = call.start
    assert start is not None  # the guard let it through
    if sdk := loaded():
        keep_names()
        scope = sdk.get_current_scope()
        scope.set_transaction_name(start.function, source="task")
        known = {"function": start.function, "task": call.task_id, "run": start.run_id, "kind": start.kind}
        scope.set_tags({f"ticker.{name}": str(value) for name, value in known.items()})


def keep_names() -> None:
    """Makes Sentry send none of our log lines that name a task and its owner."""
    global _keeps_names
    if not _keeps_names and (sdk := loaded()):
        sdk.get_global_scope().add_event_processor(nameless)
        _keeps_names = True


def nameless(event: Any, _: Any) -> Any:
    """An event processor. Sentry keeps log lines as breadcrumbs; ours that name a task also have its owner."""
    crumbs = event.get("breadcrumbs") or {}
    if "values" in crumbs:
        crumbs["values"] = [crumb for crumb in crumbs["values"] if not names_a_task(crumb)]
    return event


def names_a_task(crumb: Any) -> bool:
    return crumb.get("category") == "ticker.run" and " owner=" in (crumb.get("message") or "")


def group(function: str, limit: BaseException) -> None:
    if sdk := loaded():
        sdk.get_current_scope().add_event_processor(grouped(limit, ["ticker", "timed_out", function]))


def grouped(limit: BaseException, fingerprint: list[str]) -> Callable[[Any, Any], Any]:
    """Returns an event processor that groups the events about this error, or about an error that it caused."""

    def process(event: Any, hint: Any) -> Any:
        error = (hint.get("exc_info") or (None, None))[1]
        if error is limit or (error is not None and error.__cause__ is limit):
            event["fingerprint"] = fingerprint
        return event

    return process


def apart() -> AbstractContextManager[Any]:
    """Returns a scope for one of several runs of a job, so that its labels do not apply to the next run."""
    sdk = loaded()
    return sdk.new_scope() if sdk else nullcontext()


def loaded() -> Any:
    """Returns Sentry's SDK (release 2 or later) if the application has imported it, else None."""
    sdk = sys.modules.get("sentry_sdk")
    return sdk if hasattr(sdk, "new_scope") else None
