"""Gives each run its place in a trace of OpenTelemetry, which is an extra. Imported only if TICKER_OTEL is on.

The trace id is a hash of the installation, the task and the occurrence; the ids of spans are hashes, too. So a worker
and a ticker agree on them, and on what is sampled, without any communication. A manual run that was requested within a
trace belongs to that trace. A manual run without one has its own id in place of an occurrence. Retries and pieces
belong to the trace of their occurrence.
"""

from datetime import datetime
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ticker.engine import jobs

RUN = "run"
"""The part of a run that is the parent of its function's spans: from the start to the end."""


class Place(NamedTuple):
    """The place of a run in its trace. `requested_in` is the context in which a manual run was requested, otherwise an
    empty one.
    """

    trace_id: int
    run_id: int
    parent_id: int | None
    is_sampled: bool
    requested_in: Context

    def span_id(self, part: str = "") -> int:
        """Returns the id of the span of a part of the run, or of the whole run."""
        return _hash(f"{self.trace_id:032x} {self.run_id} {part}", 8)

    def span(self, part: str = "") -> NonRecordingSpan:
        """Returns such a span as a parent of others. The ticker records the span itself."""
        flags = TraceFlags(TraceFlags.SAMPLED if self.is_sampled else TraceFlags.DEFAULT)
        return NonRecordingSpan(SpanContext(self.trace_id, self.span_id(part), True, flags))

    def parent(self) -> Context:
        """Returns the context of the span of the whole run. A retry and a piece are part of the run that led to them."""
        if self.parent_id is None:
            return self.requested_in
        return set_span_in_context(self._replace(run_id=self.parent_id).span(), Context())


def place(
    installation: str, *, task_id: int, occurrence: datetime | None, run_id: int, parent_id: int | None, traceparent: str | None
) -> Place:  # fmt: skip
    """Returns the place of a run, from its record."""
    requested_in = _W3C.extract({"traceparent": traceparent} if traceparent else {}, Context())
    requested = get_current_span(requested_in).get_span_context()
    if requested.is_valid:
        trace_id = requested.trace_id
    elif occurrence:
        trace_id = _hash(jobs.job_id(installation, task_id, occurrence), 16)
    else:
        trace_id = _hash(jobs.planned_id(installation, parent_id or run_id), 16)
    decision = sampler().should_sample(requested_in, trace_id, "").decision
    return Place(trace_id, run_id, parent_id, decision is Decision.RECORD_AND_SAMPLE, requested_in)


def traceparent() -> str | None:
    """Returns the current context as W3C's text, or None outside a trace."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get("traceparent")


@cache
def sampler() -> Sampler:
    """Returns the sampler that OTEL_TRACES_SAMPLER names, as the SDK reads it."""
    return TracerProvider(shutdown_on_exit=False).sampler


_W3C = TraceContextTextMapPropagator()


def _hash(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest())
