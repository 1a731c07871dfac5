"""Makes the run the parent of the spans that its function makes with OpenTelemetry, if TICKER_OTEL is on.

The ticker exports the span of the run itself after its end (`ticker/daemon/traces.py`): nothing is sent from here.
"""

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ticker.engine import jobs
from ticker.settings import Settings
from wrappers.pipeline.chain import Proceed
from wrappers.pipeline.context import Call


def trace(call: Call, proceed: Proceed) -> str:
    with parent(call):
        return proceed(call)


def parent(call: Call) -> AbstractContextManager[Any]:
    """Returns a context in which the run is the current span."""
    if call.settings.otel:
        with suppress(Exception):  # an error in OpenTelemetry must not fail the run
            return in_trace(call)
    return nullcontext()


def in_trace(call: Call) -> AbstractContextManager[Any]:
    from opentelemetry.trace import use_span

    from ticker import tracing  # its library is an extra

    start = call.start
    assert start is not None  # the guard let it through
    place = tracing.place(
        jobs.installation_of(call.job_id), task_id=call.task_id, occurrence=start.occurrence, run_id=start.run_id,
        parent_id=start.parent_id, traceparent=start.traceparent,
    )  # fmt: skip
    return use_span(place.span(tracing.RUN), record_exception=False, set_status_on_exception=False)


def load(settings: Settings) -> None:
    """Loads the library before any fork, so that no run waits for it."""
    if settings.otel:
        from ticker import tracing

        tracing.sampler()
