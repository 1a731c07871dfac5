"""The layers between RQ and a function, outermost first. The order matters:

report   reports to RQ; turns a limit into an ordinary error, a drop into a short text
guard    asks the database whether this job may run, before any code of the task does
sentry   labels the run for Sentry, if Sentry is loaded
trace    makes the run the parent of the function's spans, if TICKER_OTEL is on
time_box arms the soft and the hard limit, and cancels them last of all
record   calls the function, and writes its one outcome

A layer gets the call and the next layer, which it may or may not call.
"""

from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from ticker.engine import jobs
from ticker.settings import Settings
from wrappers.layers.record import record
from wrappers.layers.sentry import sentry
from wrappers.layers.time_box import time_box
from wrappers.pipeline import serialize, start
from wrappers.pipeline.context import Call, Proceed
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


def guard(call: Call, proceed: Proceed) -> str:
    """Runs the job, or drops it with a reason. Our Worker requests the start before the fork; under a stock worker, this
    layer does.
    """
    asked = call if call.start is not None else start.ask(call)
    return asked if isinstance(asked, str) else proceed(asked)


def trace(call: Call, proceed: Proceed) -> str:
    """Makes the run the parent of the spans that its function makes with OpenTelemetry, if TICKER_OTEL is on.

    The ticker exports the span of the run itself after its end (`ticker/daemon/traces.py`): nothing is sent from here.
    """
    with span_of_run(call):
        return proceed(call)


def span_of_run(call: Call) -> AbstractContextManager[Any]:
    """Returns a context in which the run is the current span."""
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


LAYERS = (report, guard, sentry, trace, time_box, record)


def run_in_layers(call: Call, function: Proceed) -> str:
    """Returns `report(call, guard(call, ... function(call)))`."""
    proceed = function
    for layer in reversed(LAYERS):
        proceed = partial(layer, proceed=proceed)
    return proceed(call)
