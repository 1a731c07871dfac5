"""What belongs to which run on the event loop of a group, without a worker."""

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ticker import model
from wrappers.group.begun import Begun, OwnedTask, make_task, shared

Function = Callable[[], Awaitable[Any]]


def in_runs(*functions: Function) -> list[Begun]:
    """Calls each function as a run, all at the same time."""
    runs = [Begun(number, number) for number, _ in enumerate(functions, 1)]

    async def call(run: Begun, function: Function) -> None:
        try:
            with run.by(asyncio.current_task()):
                await function()
        except asyncio.CancelledError:
            pass
        finally:
            await run.end()

    async def all_of_them() -> None:
        await asyncio.gather(*(asyncio.create_task(call(*one)) for one in zip(runs, functions, strict=True)))

    with asyncio.Runner() as runner:
        runner.get_loop().set_task_factory(make_task)
        runner.run(all_of_them())
    return runs


def test_a_task_with_an_empty_context_does_not_see_that_of_the_run():
    seen: list[Any] = []
    variable = contextvars.ContextVar("variable", default="unset")

    async def looks() -> None:
        seen.append(variable.get())

    async def function() -> None:
        variable.set("of the run")
        await asyncio.create_task(looks(), context=contextvars.Context())

    in_runs(function)
    assert seen == ["unset"]


def test_a_cancellation_of_a_task_that_has_ended_is_not_noted():
    tasks: list[asyncio.Task[Any]] = []
    is_cancelled = asyncio.Event()

    async def begins() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(0)))
        await is_cancelled.wait()

    async def cancels() -> None:
        await tasks[0]
        tasks[0].cancel()
        is_cancelled.set()

    assert [run.cancelled_by for run in in_runs(begins, cancels)] == [None, None]


def test_a_run_whose_task_is_awaited_by_what_another_run_leaves_is_told_who_cancelled_it():
    tasks: list[asyncio.Task[Any]] = []

    async def awaits_its_task() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        await tasks[0]

    async def leaves() -> None:
        async def follows() -> None:
            await tasks[0]

        tasks.append(asyncio.create_task(follows()))
        await asyncio.sleep(0)  # it begins to wait

    assert [run.cancelled_by for run in in_runs(awaits_its_task, leaves)] == [2, None]


def test_only_tasks_that_the_function_did_not_cancel_are_logged_by_their_names(caplog):
    async def function() -> None:
        asyncio.create_task(asyncio.sleep(60), name="cancelled").cancel()
        task = asyncio.create_task(asyncio.sleep(60), name="left")
        task.set_name(None)  # as Python 3.13.0 does without a name

    in_runs(function)
    assert [record.getMessage() for record in caplog.records] == [
        "task=1 left asyncio tasks, which were cancelled: left"
    ]


def test_what_runs_under_shared_is_not_at_work_for_the_run():
    seen: list[Any] = []

    async def looks() -> None:
        seen.append(model.at_work.get())

    async def function() -> None:
        model.at_work.set((1, datetime(2026, 3, 1, tzinfo=UTC)))
        await asyncio.create_task(looks())
        with shared():
            await asyncio.create_task(looks())

    in_runs(function)
    assert seen == [(1, datetime(2026, 3, 1, tzinfo=UTC)), None]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 brings eager tasks")
def test_an_eager_task_can_be_cancelled_in_its_first_step_and_is_not_left_once_it_has_ended():
    seen: list[Any] = []

    async def first() -> None:
        task = asyncio.current_task()
        assert isinstance(task, OwnedTask)
        seen.extend([task.place is not None, task.cancel(), task.uncancel()])

    async def function() -> None:
        loop, options = asyncio.get_running_loop(), {"eager_start": True}
        make_task(loop, first(), **options)

    [run] = in_runs(function)
    assert seen == [True, True, 0]
    assert run.tasks == set()
