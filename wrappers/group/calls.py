"""Calls the functions of a group's runs, and interrupts each at its soft limit, or when somebody stops its run."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ticker.model import RunKind
from wrappers.group.begun import Begun
from wrappers.group.loop_watch import Noted
from wrappers.group.threads import Interruptible
from wrappers.pipeline import registry
from wrappers.pipeline.context import Call
from wrappers.pipeline.invoke import awaited, call_function, called, cancelling, note
from wrappers.sandbox import child_processes, limits, shared_state
from wrappers.sandbox.limits import Stopped, soft_limit


class Calls:
    """The calls in progress. `when_it_ignores` gets the task's id if a run goes on after its soft limit."""

    def __init__(self, concurrency: int, when_it_ignores: Callable[[int], None]) -> None:
        self._threads = ThreadPoolExecutor(concurrency, "ticker-run")
        self._when_it_ignores = when_it_ignores
        self._stoppable: dict[int, tuple[Call, Callable[[], None]]] = {}  # by slot: a call, and what interrupts it

    async def call(self, slot: int, call: Call) -> None:
        """Calls the function, and stores its answer in the call."""
        assert call.start is not None
        function = registry.functions()[call.start.function]
        # a job that was pushed before the task or its function was changed
        in_pieces = function.process is not None or call.start.kind is RunKind.PIECE
        is_async = function.step.is_async and not in_pieces
        watched = asyncio.get_running_loop().call_later(
            call.at(3 / 4) - limits.now(), self._when_it_ignores, call.task_id
        )
        begun, coroutine = Begun(call.start.run_id, call.task_id), asyncio.current_task()
        try:
            with begun.by(coroutine if is_async else None):
                if is_async:
                    await self._on_loop(slot, call, called(call, function.step))
                else:
                    await self._in_thread(slot, call, None if in_pieces else function.step, begun)
        finally:
            child_processes.exit_if_forked()
            call.answer.cancelled_by = begun.cancelled_by
            await begun.end()
            call.answer.is_cancelled = coroutine is None or coroutine.cancelling() > 0
            call.answer.threads = begun.threads
            watched.cancel()

    def stop(self) -> None:
        """Interrupts the calls whose runs somebody stops."""
        for slot, (call, _) in [*self._stoppable.items()]:
            if is_stopped(slot, call):
                self._interrupt(slot)

    def _interrupt(self, slot: int) -> None:
        _, interrupt = self._stoppable.pop(slot)
        with suppress(RuntimeError):  # its soft limit has just been reached
            interrupt()

    async def _on_loop(self, slot: int, call: Call, answer: Any) -> None:
        async with cancelling(call, partial(is_stopped, slot, call)) as limit:
            with self._stopping(slot, call, partial(limit.reschedule, 0)):
                note(call, await Noted(awaited(answer), slot))

    async def _in_thread(self, slot: int, call: Call, step: registry.Step | None, begun: Begun) -> None:
        loop, interruptible = asyncio.get_running_loop(), Interruptible()
        function = partial(called, call, step) if step else partial(call_function, call)
        error = soft_limit(call.seconds(1 / 2))
        interrupted = loop.call_later(call.at(1 / 2) - limits.now(), interruptible.interrupt, error)
        context = contextvars.copy_context()
        try:
            with self._stopping(slot, call, partial(interruptible.interrupt, Stopped)):
                returned: Any = await loop.run_in_executor(self._threads, context.run, interruptible, function)
        finally:
            interrupted.cancel()
            interruptible.interrupt()  # if its thread could not start, another thread would call the function later
            call.answer.overlooked = interruptible.is_interrupted
            call.answer.stopped = interruptible.is_interrupted and is_stopped(slot, call)
        if inspect.isawaitable(returned):
            with begun.by(asyncio.current_task()):
                await self._on_loop(slot, call, returned)
        elif step:
            note(call, returned)

    @contextmanager
    def _stopping(self, slot: int, call: Call, interrupt: Callable[[], None]) -> Iterator[None]:
        """Interrupts the call if somebody stops its run during the block, or has already done so."""
        self._stoppable[slot] = call, interrupt
        if is_stopped(slot, call):
            self._interrupt(slot)
        try:
            yield
        finally:
            self._stoppable.pop(slot, None)


def is_stopped(slot: int, call: Call) -> bool:
    assert call.start is not None
    return shared_state.is_stopped(call.start.token, slot)
