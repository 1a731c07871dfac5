"""What has ended is exported as spans: each run once, in the trace of its occurrence, and with nothing personal in it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from subprocess import run as run_program
from threading import Event
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ticker
from tests.doubles import INSTALLATION
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run
from tests.plans import indexes, plan, read_whole
from tests.running import PATIENCE, ROOT, Ticking
from tests.sentences import sentence
from ticker import clock, tracing
from ticker.daemon.traces import AT_MOST, Exporter
from ticker.db.store import PostgresStore
from ticker.read.journal import ENDED, REASONS
from ticker.settings import Settings

Look = Callable[..., dict[str, ReadableSpan]]


@pytest.fixture(autouse=True)
def sampler_of_this_test() -> Iterator[None]:
    tracing.sampler.cache_clear()
    yield
    tracing.sampler.cache_clear()


@pytest.fixture
def task(db):
    return ticker.register(db, "poll", name="of Zoe", owner=("users", "Zoe"), every="1m", kwargs={"password": "Zoe"})


def new_exporter(store: PostgresStore, to: SpanExporter) -> Exporter:
    return Exporter(store, Settings(), Event(), to)


def since(db: Any, at: datetime) -> None:
    """The ends before `at` are exported."""
    db.execute("UPDATE ticker.installation SET traced_until = %s", [at])


@pytest.fixture
def look(db, store) -> Look:
    """Exports what ended since nine. Returns the spans by name."""

    def export(now: datetime = NINE + 2 * MINUTE) -> dict[str, ReadableSpan]:
        memory = InMemorySpanExporter()
        since(db, NINE)
        with clock.use(lambda: now):
            new_exporter(store, memory).attempt()
        return {span.name: span for span in memory.get_finished_spans()}

    return export


def place_of(task: Any, occurrence: datetime | None, run_id: int) -> tracing.Place:
    return tracing.place(
        INSTALLATION, task_id=task.id, occurrence=occurrence, run_id=run_id, parent_id=None, traceparent=None
    )


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """The beginning and the end of a span, after nine."""
    nine = int(NINE.timestamp()) * 10**9
    return (span.start_time - nine) / 1e9, (span.end_time - nine) / 1e9  # type: ignore[operator]


# --------------------------------------------------------------------------------------------------- a run and its parts


def test_a_run_is_a_trace_of_its_occurrence_from_its_due_time_to_its_end(db, task, look):
    run_id = a_run(
        db, task, occurrence=NINE, started_at=NINE + SECOND, ended_at=NINE + 3 * SECOND, queue="mail", job_id="j"
    )
    spans = look()
    assert {name: seconds(span) for name, span in spans.items()} == {"poll": (0, 3), "wait": (0, 1), "run": (1, 3)}
    place = place_of(task, NINE, run_id)
    assert {span.context.trace_id for span in spans.values()} == {place.trace_id}
    assert spans["run"].context.span_id == place.span(tracing.RUN).get_span_context().span_id
    assert spans["poll"].parent is None and spans["run"].parent.span_id == spans["poll"].context.span_id
    assert dict(spans["poll"].attributes) == {
        "ticker.task.id": task.id, "ticker.run.id": run_id, "ticker.function": "poll", "ticker.kind": "scheduled", "ticker.attempt": 1,
        "ticker.outcome": "succeeded",
    }  # fmt: skip
    assert dict(spans["run"].attributes) == {
        "messaging.system": "rq", "messaging.operation.type": "process", "messaging.operation.name": "run",
        "messaging.destination.name": "mail", "messaging.message.id": "j",
    }  # fmt: skip


def test_names_owners_arguments_and_errors_stay_here(db, task, look):
    a_run(db, task, outcome="failed", reason="ValueError: Zoe", traceback="Zoe", output="Zoe", result='"Zoe"')
    spans = look()
    assert spans["poll"].status.is_ok is False and spans["poll"].attributes["error.type"] == "failed"
    assert "Zoe" not in "".join(span.to_json() for span in spans.values())


def test_a_drop_has_its_reason_and_no_parts(db, task, look):
    a_drop(db, task, "too_early")
    [span] = look().values()
    assert (span.name, span.attributes["ticker.outcome"], span.attributes["ticker.drop.reason"]) == (
        "poll",
        "dropped",
        "too_early",
    )
    assert span.status.is_unset


@pytest.mark.slow
def test_a_clock_that_was_set_back_makes_no_span_that_ends_before_it_begins(db, task, look):
    a_run(db, task, occurrence=NINE + SECOND, started_at=NINE, ended_at=NINE)
    assert {name: seconds(span) for name, span in look().items()} == {"poll": (0, 0), "wait": (1, 1), "run": (0, 0)}


# ------------------------------------------------------------------------------------------------------- planned runs


def test_a_run_that_was_requested_within_a_span_belongs_to_its_trace(db, look, monkeypatch, database_url):
    monkeypatch.setenv("TICKER_OTEL", "on")
    task = ticker.register(db, "poll", every="1m")
    with TracerProvider().get_tracer("app").start_as_current_span("request") as request:
        [run_id] = ticker.run_now(db, task)
        assert ticker.run_now(db, task, once_within="1m") == [run_id]
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'succeeded', due_at = %s, pushed_at = %s, started_at = %s, ended_at = %s",
        [NINE + n * SECOND for n in range(4)],
    )
    spans, context = look(), request.get_span_context()
    assert {name: seconds(span) for name, span in spans.items()} == {
        "poll": (0, 3),
        "due": (0, 1),
        "wait": (1, 2),
        "run": (2, 3),
    }
    assert {span.context.trace_id for span in spans.values()} == {context.trace_id}
    assert spans["poll"].parent.span_id == context.span_id


def test_the_trace_of_the_caller_is_stored_only_if_traces_are_on_and_it_has_one(db, monkeypatch):
    first, second = (ticker.register(db, "poll", name=name, every="1m") for name in ("first", "second"))
    with TracerProvider().get_tracer("app").start_as_current_span("request"):
        ticker.run_now(db, first)
    monkeypatch.setenv("TICKER_OTEL", "on")
    ticker.run_now(db, second)
    assert db.execute("SELECT traceparent FROM ticker.runs").fetchall() == [(None,), (None,)]


@pytest.mark.slow
@pytest.mark.parametrize("requested_in", [None, f"00-{7:032x}-{9:016x}-01"], ids=["alone", "within a trace"])
def test_pieces_are_in_the_trace_of_the_manual_run_that_made_them(requested_in, db, task, store):
    memory, given = InMemorySpanExporter(), {"traceparent": requested_in, "occurrence": None, "ended_at": NINE + SECOND}
    since(db, NINE)
    manual = a_run(db, task, kind="manual", due_at=NINE, **given)
    a_run(db, task, kind="piece", due_at=NINE, parent_id=manual, **given)
    with clock.use(lambda: NINE + 2 * MINUTE):
        new_exporter(store, memory).attempt()
    runs = {span.attributes["ticker.kind"]: span for span in memory.get_finished_spans() if span.name == "poll"}
    [trace_id] = {span.context.trace_id for span in runs.values()}
    assert trace_id == (7 if requested_in else place_of(task, None, manual).trace_id)
    parents = [span.parent and span.parent.span_id for span in runs.values()]
    assert parents == [9 if requested_in else None, runs["manual"].context.span_id]


@pytest.mark.slow
def test_a_retry_is_part_of_the_run_that_it_repeats(db, task, store):
    memory, given = InMemorySpanExporter(), {"occurrence": NINE, "due_at": NINE, "ended_at": NINE + SECOND}
    since(db, NINE)
    first = a_run(db, task, **given, outcome="failed")
    a_run(db, task, **given, kind="retry", attempt=2, parent_id=first)
    with clock.use(lambda: NINE + 2 * MINUTE):
        new_exporter(store, memory).attempt()
    roots = (span for span in memory.get_finished_spans() if span.name == "poll")
    one, two = sorted(roots, key=lambda span: span.attributes["ticker.attempt"])
    assert (one.parent, two.parent.span_id, two.context.trace_id) == (None, one.context.span_id, one.context.trace_id)


# ------------------------------------------------------------------------------------------------------------ once each


@pytest.mark.slow
def test_two_tickers_export_each_run_once(db, task, store, database_url):
    for n in range(4):
        a_run(db, task, ended_at=NINE + 12 * n * SECOND)
    since(db, NINE)
    memory = InMemorySpanExporter()
    with closing(PostgresStore(database_url)) as second:
        both = [new_exporter(store, memory), new_exporter(second, memory)]
        for n in range(7):
            with clock.use(lambda now=NINE + 30 * SECOND + 10 * n * SECOND: now):
                with db.transaction():  # another one is claiming, and this one does not wait
                    db.execute("SELECT FROM ticker.installation FOR NO KEY UPDATE")
                    both[0].attempt()
                for exporter in both[:: 1 if n % 2 else -1]:
                    exporter.attempt()
    ids = [span.attributes["ticker.run.id"] for span in memory.get_finished_spans() if span.name == "poll"]
    assert sorted(ids) == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_first_look_begins_now_and_one_after_an_outage_an_hour_ago(db, task, store):
    a_run(db, task, ended_at=NINE)
    a_run(db, task, ended_at=NINE + 90 * MINUTE)
    found = []
    for start, now in ((None, NINE + MINUTE), (NINE - MINUTE, NINE + 2 * 60 * MINUTE), (NINE + 300 * MINUTE, NINE)):
        since(db, start)
        memory = InMemorySpanExporter()
        with clock.use(lambda now=now: now):
            new_exporter(store, memory).attempt()
        found.append([span.attributes["ticker.run.id"] for span in memory.get_finished_spans() if span.name == "poll"])
        [(until,)] = db.execute("SELECT traced_until FROM ticker.installation")
        assert until == now - 30 * SECOND  # also if the clock was set back
    assert found == [[], [2], []]


@pytest.mark.slow
def test_what_a_collector_does_not_take_is_logged_and_the_next_look_goes_on(db, task, store, caplog):
    class Full(InMemorySpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return super().export(spans) if len(spans) < AT_MOST else SpanExportResult.FAILURE

    for _ in range(AT_MOST):
        a_run(db, task, ended_at=NINE + SECOND)
    a_run(db, task, ended_at=NINE + MINUTE)
    since(db, NINE)
    memory = Full()
    with clock.use(lambda: NINE + 2 * MINUTE):
        new_exporter(store, memory).attempt()
    assert [record.message for record in caplog.records] == [sentence("logs.spans_lost", count=3 * AT_MOST)]
    assert len(memory.get_finished_spans()) == 3


@pytest.mark.slow
def test_without_a_database_the_export_waits_for_the_next_attempt(closed_port, caplog):
    with closing(PostgresStore(f"postgresql://127.0.0.1:{closed_port}/x")) as store:
        new_exporter(store, InMemorySpanExporter()).attempt()
    [record] = caplog.records
    assert record.event == "traces_failed" and record.exc_info is None


# ---------------------------------------------------------------------------------------------------- sampled, and off


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "share"), [("parentbased_traceidratio", "0.5"), ("traceidratio", "0.5"), ("always_off", "")]
)
def test_what_is_sampled_depends_on_the_trace_alone(sampler, share, db, task, look, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    sampled = set()
    for n in range(20):
        occurrence = NINE + timedelta(microseconds=n)
        place = place_of(task, occurrence, 1)
        assert place.span().get_span_context().trace_flags.sampled == place.is_sampled
        sampled |= {place.trace_id} if place.is_sampled else set()
        a_run(db, task, function=f"poll {n}", occurrence=occurrence)
    roots = {span.context.trace_id for name, span in look().items() if name.startswith("poll ")}
    assert roots == sampled and (0 < len(sampled) < 20) == bool(share)


OFF = """
import sys
import ticker, ticker.daemon.loop, ticker.web, wrappers.entry, wrappers.__main__
from ticker.settings import from_environment
from wrappers.layers import load_tracing
load_tracing(from_environment())
print(*sys.modules)
"""


@pytest.mark.slow
def test_it_is_off_by_default_and_loads_nothing_then():
    done = run_program([sys.executable, "-c", OFF], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert not {"ticker.tracing", "ticker.daemon.traces", "opentelemetry.sdk.trace", "opentelemetry.exporter"} & {
        *done.stdout.split()
    }


@pytest.mark.slow
def test_without_the_extra_one_sentence_says_how_to_install_it(environ):
    hide = "import sys; sys.modules['opentelemetry'] = None; from ticker.cli import main; main(['run'])"
    done = run_program(
        [sys.executable, "-c", hide], cwd=ROOT, capture_output=True, text=True, timeout=60, env=environ | {"TICKER_OTEL": "on"}
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (78, sentence("errors.otel_is_missing"))


@pytest.mark.slow
def test_the_ends_of_a_time_are_found_by_their_indexes(crowd):
    found = plan(crowd, "ended_between", outcomes=ENDED, reasons=REASONS, since=NINE, until=NINE + 10 * SECOND)
    assert {"runs_by_outcome", "runs_by_reason"} <= indexes(found) and read_whole(found) == set()


@pytest.mark.slow
def test_a_ticker_sends_them_to_the_collector_that_the_environment_names(environ, db, task):
    run_id = a_run(db, task, ended_at=clock.python_utc() - 40 * SECOND)
    db.execute("UPDATE ticker.installation SET traced_until = clock_timestamp() - interval '1 minute'")
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        with Ticking(TICKER_OTEL="on", OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_COMPRESSION="none"):
            server.timeout = PATIENCE
            server.handle_request()
    [(path, body)] = received
    assert path == "/v1/traces" and b"poll" in body and b"Zoe" not in body
    assert (
        place_of(task, db.execute("SELECT occurrence FROM ticker.runs").fetchone()[0], run_id).trace_id.to_bytes(16)
        in body
    )
