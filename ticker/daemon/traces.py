"""Exports what has ended as spans, from the records: the process of a run sends nothing.

Each claim moves `traced_until` of the table `installation` on, so that several tickers export each end once. What a
ticker has claimed is lost if it dies, or if the collector does not answer: traces may have gaps, and records have none.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from ticker import tracing
from ticker.db.sql import Row
from ticker.db.store import PostgresStore
from ticker.engine import jobs
from ticker.errors import TickerError
from ticker.model import NO_FAILURE, Outcome
from ticker.read.journal import ENDED, LATE, REASONS
from ticker.settings import Settings

log = logging.getLogger("ticker")

EVERY = 5.0  # seconds between two attempts
STEP = timedelta(seconds=10)  # of ends that are claimed at a time
AT_MOST = 512  # spans of one request, as the SDK's own processor sends them


class Exporter(threading.Thread):
    """Exports in its own thread and on its own connection. No tick waits for it."""

    def __init__(
        self, store: PostgresStore, settings: Settings, stopping: threading.Event, to: SpanExporter | None = None
    ) -> None:
        super().__init__(name="ticker-traces", daemon=True)
        self._store, self._stopping = store, stopping
        self._to, self._recorder = to or OTLPSpanExporter(), Recorder()

    def run(self) -> None:
        while not self._stopping.wait(EVERY):
            self.attempt()

    def attempt(self) -> None:
        """Exports what has ended up to half a minute ago. Logs errors and raises nothing."""
        try:
            for rows in self._claimed():
                self._export(self._recorder.spans(self._store.installation, rows))
        except TickerError as error:
            log.warning("traces are exported later: %s", error, extra={"event": "traces_failed"})
        except Exception:
            log.exception("traces are missing, because of an internal error", extra={"event": "traces_failed"})

    def _claimed(self) -> Iterator[list[Row]]:
        """Yields the records of each claimed span of time, after its commit, until no whole step is left."""
        is_whole = True
        while is_whole and not self._stopping.is_set():
            with self._store.transaction() as execute:
                claimed = execute("claim_ends", late=LATE, step=STEP)
                rows = [
                    row for span in claimed for row in execute("ended_between", **span, outcomes=ENDED, reasons=REASONS)
                ]
            yield rows
            is_whole = any(span["until"] - span["since"] == STEP for span in claimed)

    def _export(self, spans: list[ReadableSpan]) -> None:
        """Sends the spans. Discards the rest after a failure, as a collector that is down costs 10 s for each request."""
        for sent in range(0, len(spans), AT_MOST):
            if self._to.export(spans[sent : sent + AT_MOST]) is not SpanExportResult.SUCCESS:
                log.warning(
                    "%s spans are lost: the collector did not take them",
                    len(spans) - sent,
                    extra={"event": "traces_failed"},
                )
                return


class Recorder(SpanProcessor, IdGenerator):
    """Records spans with the SDK, with ids and times of ours. Sampler, resource and limits are those of the OTEL_
    variables.
    """

    def __init__(self) -> None:
        self._ended: list[ReadableSpan] = []
        self._trace_id = self._span_id = 0
        provider = TracerProvider(id_generator=self, shutdown_on_exit=False)
        provider.add_span_processor(self)
        self._tracer = provider.get_tracer("ticker")

    def spans(self, installation: str, rows: Iterable[Row]) -> list[ReadableSpan]:
        """Returns the spans of the runs and drops that are sampled."""
        self._ended = []
        for row in rows:
            known = {name: row[name] for name in ("task_id", "occurrence", "parent_id", "traceparent")}
            place = tracing.place(installation, run_id=row["id"], **known)
            if place.is_sampled:
                self._record(place, row)
        return self._ended

    def _record(self, place: tracing.Place, row: Row) -> None:
        """Records the run from the time it was due to its end, and its parts: before the push, in the queue, at work.

        The record of a scheduled run has no time of its push, so that the time in the queue includes the time before
        it.
        """
        due, pushed, start, end = (row[name] for name in ("due_at", "pushed_at", "started_at", "ended_at"))
        begin = min(filter(None, (due, start, end)))
        span = self._begin(place, "", row["function"], begin, place.parent())
        span.set_attributes(of_run(row))
        if row["outcome"] not in NO_FAILURE and row["outcome"] != Outcome.DROPPED:
            span.set_attribute("error.type", row["outcome"])
            span.set_status(StatusCode.ERROR)
        for part, since, until in (("due", due, pushed), ("wait", pushed or due, start), (tracing.RUN, start, end)):
            if since and until:
                child = self._begin(place, part, part, since, set_span_in_context(span))
                if part == tracing.RUN:
                    child.set_attributes(of_message(row))
                child.end(nanoseconds(max(since, until)))
        span.end(nanoseconds(end))

    def _begin(self, place: tracing.Place, part: str, name: str, at: datetime, context: Context) -> Span:
        self._trace_id, self._span_id = place.trace_id, place.span_id(part)
        kind = SpanKind.CONSUMER if part == tracing.RUN else SpanKind.INTERNAL
        return self._tracer.start_span(name, context, kind, start_time=nanoseconds(at))

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def of_run(row: Row) -> dict[str, AttributeValue]:
    """Returns the attributes of a run. Names, owners, arguments and errors may be personal data: `ticker list TASK`
    prints them.
    """
    known = {
        "task.id": row["task_id"], "run.id": row["id"], "function": row["function"], "kind": row["kind"], "attempt": row["attempt"],
        "outcome": row["outcome"], "drop.reason": row["reason"],
    }  # fmt: skip
    return {f"ticker.{name}": value for name, value in known.items() if value is not None}


def of_message(row: Row) -> dict[str, AttributeValue]:
    """Returns the attributes of the job that carried the run, as OpenTelemetry's conventions for messaging name them."""
    known = {
        "system": "rq",
        "operation.type": "process",
        "operation.name": tracing.RUN,
        "destination.name": row["queue"],
        "message.id": row["job_id"] or None,
    }
    return {f"messaging.{name}": value for name, value in known.items() if value is not None}


def nanoseconds(at: datetime) -> int:
    return jobs.micros(at) * 1000
