"""What happens around a function, in a job of its own and in a group. The order matters:

1. The database decides whether the run may begin, before any code of the task does (`start.ask`, `start.ask_all`).
2. `AROUND` surrounds the call.
3. The function is called within its limits: by `time_box` in the main thread, or by `Calls` in a group.
4. The run's one outcome is left to the worker, or written (`record`). The limits are cancelled last of all.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from rq.timeouts import JobTimeoutException

from ticker.engine import jobs
from ticker.settings import Settings
from wrappers.layers.record import record
from wrappers.layers.sentry import apart, labelled
from wrappers.layers.time_box import time_box
from wrappers.pipeline import serialize, start
from wrappers.pipeline.context import Call
from wrappers.pipeline.invoke import at_work
from wrappers.sandbox.limits import SoftLimit

log = logging.getLogger("ticker.run")


class TimedOut(Exception):
    """The run reached its soft limit. RQ and Sentry see this ordinary error; only the function sees SoftLimit."""


def run_alone(call: Call) -> str:
    """Runs the job in this thread, or drops it with a reason. Returns a short text for RQ.

    Our Worker requests the start before the fork; under a stock worker, this function does. Errors of the task's
    function pass through to RQ's failed registry and to Sentry. Their tracebacks begin at that function.
    """
    try:
        asked = call if call.start is not None else start.ask(call)
        if isinstance(asked, str):
            return asked
        with around(asked), time_box(asked) as boxed:
            return record(boxed)
    except SoftLimit as limit:
        serialize.shorten(limit)
        raise TimedOut(str(limit)) from limit
    except Exception as error:
        serialize.shorten(error)
        raise


@contextmanager
def one_of_several(call: Call, *fatal: type[BaseException]) -> Iterator[None]:
    """Keeps the error of a run from the others of its job: it goes only to the log, and from there to Sentry, with the
    labels of the run. RQ's timeout ends the job, and so do errors of the types `fatal`.
    """
    with apart():
        try:
            yield
        except BaseException as error:
            if isinstance(error, (JobTimeoutException, *fatal)):
                raise
            log.error(
                "traceback of task=%s job=%s", call.task_id, call.job_id, exc_info=error, extra={"event": "run_error"}
            )


@contextmanager
def around(call: Call) -> Iterator[None]:
    """Surrounds the call of a function by what `AROUND` lists, outermost first."""
    with ExitStack() as surroundings:
        for surrounding in AROUND:
            surroundings.enter_context(surrounding(call))
        yield


def span_of_run(call: Call) -> AbstractContextManager[Any]:
    """Returns a context in which the run is the parent of the spans that its function makes, if TICKER_OTEL is on.

    The ticker exports the span of the run itself after its end (`ticker/daemon/traces.py`): nothing is sent from here.
    """
    if call.settings.otel:
        with suppress(Exception):  # an error in OpenTelemetry must not fail the run
            from opentelemetry.trace import use_span

            from ticker import tracing  # its library is an extra

            start = call.start
            assert start is not None  # the guard let it through
            place = tracing.place(
                jobs.installation_of(call.job_id), task_id=call.task_id, occurrence=start.occurrence, run_id=start.run_id,
                parent_id=start.parent_id, traceparent=start.traceparent,
            )  # fmt: skip
            return use_span(place.span(tracing.RUN), record_exception=False, set_status_on_exception=False)
    return nullcontext()


def load_tracing(settings: Settings) -> None:
    """Loads OpenTelemetry before any fork, so that no run waits for it."""
    if settings.otel:
        from ticker import tracing

        tracing.sampler()


AROUND: tuple[Callable[[Call], AbstractContextManager[Any]], ...] = (labelled, span_of_run, at_work)
"""For Sentry, if it is loaded; for OpenTelemetry; and for `run_now`, which finds its caller there."""
