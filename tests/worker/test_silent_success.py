"""No run succeeds whose function's body never ran: behind decorators, in groups, and in generators that nothing iterates over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ticker
from tests.running import until, working
from ticker.engine.tick import tick

FUNCTIONS = """
import asyncio, functools, os
from pathlib import Path
from wrappers import task

FOLDER = Path(os.environ["GROUP_FOLDER"])

def plainly(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

def forgets_to_await(function):
    async def call(run, deed):
        return function(run, deed)
    return call

async def body(run, deed):
    await asyncio.sleep(0)
    (FOLDER / f"{run.name} ran").touch()
    if deed == "has a timeout":
        async with asyncio.timeout(0.01):
            await asyncio.sleep(1000)
    if deed == "overruns":
        await asyncio.sleep(1000)
    return deed

async def yields(run, deed):
    (FOLDER / f"{run.name} ran").touch()
    yield deed

def generator(run, deed):
    (FOLDER / f"{run.name} ran").touch()
    yield deed

for group in ({}, {"batch": 4, "concurrency": 2}):
    kind = "grouped" if group else "alone"
    task(f"{kind}.plainly", **group)(plainly(body))
    task(f"{kind}.forgetful", **group)(forgets_to_await(body))
    task(f"{kind}.generator", **group)(plainly(generator))
    task(f"{kind}.asynchronous generator", **group)(plainly(yields))

@task("decorated pieces")
class Pieces:
    @plainly
    async def generate(self, run, deed):
        yield {"deed": deed}
    @plainly
    async def process(self, run, piece, deed):
        (FOLDER / f"{run.name} ran").touch()
"""


@pytest.fixture
def runs(
    environ: object, db: Any, store: Any, queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, tuple[str, str, bool]]]:
    """Runs the functions once. Returns their outcomes and reasons, and whether their bodies ran."""
    (tmp_path / "silent_tasks.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GROUP_FOLDER", str(tmp_path))

    def run(*functions: str, deed: str = "done") -> dict[str, tuple[str, str, bool]]:
        for function in functions:
            ticker.register(db, function, every="1h", box="1s", kwargs={"deed": deed})
        with working("--tasks", "silent_tasks"):
            until(lambda: tick(store, queue) and ended(), "all ends")
        return {
            run.function: (str(run.outcome), run.reason, (tmp_path / f"{run.function} ran").exists())
            for run in ticker.list_runs(db)
        }

    def ended() -> bool:
        ran = ticker.list_runs(db)
        return all(run.ended_at for run in ran) and len(ran) >= len(ticker.list_tasks(db))

    return run


KINDS = ("alone", "grouped")


@pytest.mark.slow
def test_an_awaitable_is_awaited_where_the_function_runs(runs: Callable[..., Any]) -> None:
    found = runs(*(f"{kind}.{name}" for kind in KINDS for name in ("plainly", "forgetful")))
    assert set(found.values()) == {("succeeded", "", True)}


@pytest.mark.slow
def test_such_a_coroutine_has_its_soft_limit(runs: Callable[..., Any]) -> None:
    found = runs(*(f"{kind}.plainly" for kind in KINDS), deed="overruns")
    assert {(outcome, ran) for outcome, _, ran in found.values()} == {("timed_out", True)}


@pytest.mark.slow
def test_such_a_coroutine_can_cancel_itself_as_a_timeout_does(runs: Callable[..., Any]) -> None:
    found = runs(*(f"{kind}.plainly" for kind in KINDS), deed="has a timeout")
    assert {(outcome, reason) for outcome, reason, _ in found.values()} == {("failed", "TimeoutError: ")}


@pytest.mark.slow
def test_a_generator_that_never_began_fails_the_run(runs: Callable[..., Any]) -> None:
    found = runs(*(f"{kind}.{name}" for kind in KINDS for name in ("generator", "asynchronous generator")))
    assert {(outcome, ran) for outcome, _, ran in found.values()} == {("failed", False)}
    assert all("nothing iterates over" in reason for _, reason, _ in found.values())


@pytest.mark.slow
def test_pieces_of_a_decorated_class_are_made_and_processed(
    runs: Callable[..., Any], db: Any, store: Any, queue: Any
) -> None:
    runs("decorated pieces")
    with working("--tasks", "silent_tasks"):
        until(
            lambda: tick(store, queue) and [r for r in ticker.list_runs(db) if r.kind == "piece" and r.ended_at],
            "the piece",
        )
    assert {str(run.outcome) for run in ticker.list_runs(db)} == {"succeeded"}
