"""The spans that a function makes have its run as their parent, in every kind of worker."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ticker
from tests.running import stock_worker, work
from ticker import clock, tracing
from ticker.daemon.traces import Exporter
from ticker.engine.tick import tick
from ticker.settings import Settings

pytestmark = pytest.mark.slow

APPLICATION = """
from opentelemetry import trace
from wrappers import task

def parent():
    span = trace.get_current_span().get_span_context()
    return [f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_flags.sampled, span.is_remote]

@task("traces")
def traces():
    return parent()

@task("trace.fails")
def fails():
    raise ValueError(parent())

@task("batch", batch=4)
def batch():
    return parent()

@task("threads", batch=4, concurrency=2)
def threads():
    return parent()

@task("coroutines", batch=4, concurrency=2)
async def coroutines():
    return parent()

@task("trace.pieces")
class Pieces:
    def generate(self):
        return ["a"]
    def process(self, piece):
        return parent()
"""
NOTHING = ["0" * 32, "0" * 16, False, False]


@pytest.fixture(autouse=True)
def on(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TICKER_OTEL", "on")
    tracing.sampler.cache_clear()
    yield
    tracing.sampler.cache_clear()


def exported(db: Any, store: Any) -> dict[int, list[Any]]:
    """What the ticker exports of the runs, as the functions see it: the trace and the id of `run`, by the id of the run."""
    memory, now = InMemorySpanExporter(), store.now()
    db.execute("UPDATE ticker.installation SET traced_until = %s - interval '30 minutes'", [now])
    with clock.use(lambda: now):
        db.execute("UPDATE ticker.runs SET ended_at = ended_at - interval '40 seconds'")
        Exporter(store, Settings(), Event(), memory).attempt()
    spans = memory.get_finished_spans()
    ids = {
        span.context.span_id: span.attributes["ticker.run.id"]
        for span in spans
        if span.parent is None or span.name not in ("run", "wait", "due")
    }  # type: ignore[union-attr]
    return {
        ids[span.parent.span_id]: [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", True, True]
        for span in spans if span.name == "run"
    }  # fmt: skip


@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_the_run_is_the_parent_of_what_its_function_does(worker, db, store, queue):
    names = ["batch", "threads", "coroutines"]
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at)"
        " SELECT name, 4, CASE name WHEN 'batch' THEN 1 ELSE 2 END, clock_timestamp() FROM unnest(%s::text[]) AS name", [names]
    )  # fmt: skip
    for name in ("traces", "batch", "threads", "coroutines"):
        for number in range(1 if name == "traces" else 2):
            ticker.register(db, name, name=f"{name} {number}", every="1m")
    tick(store, queue)
    worker(patch=APPLICATION)
    runs = ticker.list_runs(db)
    assert {run.outcome for run in runs} == {"succeeded"} and len(runs) == 7
    assert {run.id: run.result for run in runs} == exported(db, store)


def test_a_manual_run_and_its_pieces_are_in_the_trace_of_the_caller(db, store, queue):
    tasks = [ticker.register(db, name, cron="0 0 1 1 *") for name in ("traces", "trace.pieces")]
    with TracerProvider().get_tracer("app").start_as_current_span("request") as span:
        for task in tasks:
            ticker.run_now(db, task)
    for _ in range(2):
        tick(store, queue)
        work(patch=APPLICATION)
    runs = [run for run in ticker.list_runs(db) if run.result]
    assert [run.kind for run in runs] == ["piece", "manual"]
    assert {run.result[0] for run in runs} == {f"{span.get_span_context().trace_id:032x}"}
    spans = exported(db, store)
    assert all(spans[run.id] == run.result for run in runs)


def test_what_is_not_sampled_is_not_recorded_by_the_function_either(db, store, queue, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    ticker.register(db, "traces", every="1m")
    tick(store, queue)
    work(patch=APPLICATION)
    [run] = ticker.list_runs(db)
    assert run.result[0] != NOTHING[0] and run.result[2] is False
    assert exported(db, store) == {}


def test_off_there_is_no_parent(db, store, queue, monkeypatch):
    monkeypatch.setenv("TICKER_OTEL", "off")
    ticker.register(db, "traces", every="1m")
    tick(store, queue)
    work(patch=APPLICATION)
    assert [run.result for run in ticker.list_runs(db)] == [NOTHING]


def test_a_traceback_begins_at_the_function(db, store, queue):
    ticker.register(db, "trace.fails", every="1m")
    tick(store, queue)
    work(patch=APPLICATION)
    [run] = ticker.list_runs(db)
    assert run.traceback.count("File ") == 1 and "in fails" in run.traceback


def test_an_opentelemetry_that_we_do_not_know_costs_no_run(db, store, queue):
    ticker.register(db, "traces", every="1m")
    tick(store, queue)
    stock_worker(patch=f"{APPLICATION}\nimport opentelemetry.trace\ndel opentelemetry.trace.use_span")
    assert [run.result for run in ticker.list_runs(db)] == [NOTHING]
