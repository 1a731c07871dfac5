"""Ends the asyncio tasks and the processes that a run of a group leaves behind, and lists its threads.

    begun = Begun(run_id, task_id)
    with begun.by(asyncio.current_task()):
        await function()
    await begun.end()

The context of the caller decides to which run something belongs. Coroutines, `asyncio.to_thread` and forks inherit that
context.
"""

import asyncio
import contextvars
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any

from ticker.model import at_work
from wrappers.sandbox import child_processes, subreaper

log = logging.getLogger("ticker.run")

PAUSE = 0.002  # seconds between two looks at dying processes
POOL = "concurrent.futures.process"  # the processes of an executor outlive runs, as its threads do


class _Place:
    """What the context of one coroutine says about its run, which may change: another run may take the coroutine over."""

    def __init__(self, begun: "Begun | None") -> None:
        self.begun = begun


_SHARED = _Place(None)
_place: ContextVar[_Place | None] = ContextVar("ticker_place", default=None)  # None: outside of all functions


@contextmanager
def shared() -> Iterator[None]:
    """Lets what is begun in the block outlive the run: asyncio tasks, threads and child processes.

    Use it where a run of a group begins something for all runs of its process, such as a client with a task of its own,
    or a pool of processes. Without a group, the process ends with its run, and this changes nothing.
    """
    token = _place.set(_SHARED)
    try:
        yield
    finally:
        _place.reset(token)


class OwnedTask(asyncio.Task[Any]):
    """A task on the event loop of a group. It notes which other run cancels it. No run can cancel a task of our own
    code.
    """

    def __init__(self, coroutine: Any, *, place: _Place | None, **options: Any) -> None:
        self.place = place  # an eager task takes its first step in the next line
        super().__init__(coroutine, **options)

    def set_name(self, value: object) -> None:
        if value is not None:  # Python 3.13.0 passes None for a task without a name
            super().set_name(value)

    def cancel(self, msg: Any | None = None) -> bool:
        by, mine = _place.get(), self.place
        if (by is not None and mine is None) or not super().cancel(msg):
            return False
        if by is not None and by.begun and mine is not None and mine.begun and by.begun is not mine.begun:
            mine.begun.cancelled_by = by.begun.task_id
        return True


def make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: contextvars.Context | None = None, **options: Any,
) -> OwnedTask:  # fmt: skip
    """Creates a task, as the task factory of a group's event loop. A task with a context of its own belongs to no run."""
    place = _place.get()
    if place is not None:
        place = _Place(place.begun) if place.begun and context is None else _SHARED
        context = contextvars.copy_context() if context is None else context
        with suppress(RuntimeError):  # the context is being used
            context.run(_place.set, place)
            if place is _SHARED:
                context.run(at_work.set, None)
    task = OwnedTask(coroutine, place=place, loop=loop, context=context, **options)
    if place is not None and place.begun and not task.done():
        place.begun.tasks.add(task)
        task.add_done_callback(_forget)
    return task


def _forget(task: OwnedTask) -> None:
    if task.place is not None and task.place.begun is not None:
        task.place.begun.tasks.discard(task)


class Begun:
    """What one run has begun."""

    def __init__(self, run_id: int, task_id: int) -> None:
        self.run_id, self.task_id = run_id, task_id
        self.tasks: set[OwnedTask] = set()
        self.threads: list[threading.Thread] = []
        self.has_forked = False
        self.killers = {run_id: {self}}  # by run: the runs of which the last to end kills that run's processes
        self.is_active = True
        self.cancelled_by: int | None = None
        """The id of the task whose run cancelled a coroutine of this run."""

    @contextmanager
    def by(self, coroutine: asyncio.Task[Any] | None) -> Iterator[None]:
        """Notes what the block begins. Other runs can cancel the coroutine meanwhile; None for a run in a thread."""
        place = _Place(self)
        before = _place.set(place)
        if isinstance(coroutine, OwnedTask):
            coroutine.place = place
        try:
            yield
        finally:
            if isinstance(coroutine, OwnedTask):
                coroutine.place = None
            _place.reset(before)

    async def end(self) -> None:
        """Returns when the run's tasks and processes have ended."""
        self.is_active = False
        self._hand_over()
        if names := ", ".join(sorted(task.get_name() for task in self.tasks if not task.cancelling())):
            log.warning(
                "task=%s left asyncio tasks, which were cancelled: %s",
                self.task_id,
                names,
                extra={"event": "coroutines_cancelled"},
            )
        while self.tasks:
            with self.by(None):  # such a task may await one of another run, and so cancel it
                for task in self.tasks:
                    task.cancel()
            await asyncio.wait(self.tasks)
        for killers in self.killers.values():
            killers.discard(self)
        if self.has_forked:
            await self._kill({run for run, killers in self.killers.items() if not killers})

    def _hand_over(self) -> None:
        """Gives each task that another active run awaits to that run, and then the tasks that those tasks await."""
        while awaited := [(task, run) for task in self.tasks if (run := _awaiting(task)) is not None]:
            for task, run in awaited:
                assert task.place is not None
                task.place.begun = run
                self.tasks.discard(task)
                run.tasks.add(task)
                run.has_forked = True  # this run may have, and nothing says which processes such a task uses
                run.killers |= self.killers
                for killers in self.killers.values():
                    killers.add(run)

    async def _kill(self, runs: set[int]) -> None:
        killed: set[int] = set()
        while mine := {pid for pid in subreaper.children() if pid in killed or child_processes.belongs(pid, runs)}:
            for pid in mine - killed:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= mine
            await asyncio.sleep(PAUSE)  # lets the event loop reap those that it watches
            for pid in mine:
                subreaper.reap(pid)
        child_processes.log_killed(len(killed))


def _awaiting(task: asyncio.Task[Any]) -> Begun | None:
    """Returns another active run that awaits this task, directly or by a task of that run. Otherwise, returns None."""
    for _, context in task._callbacks or ():
        place = context.get(_place)
        if place is not None and place.begun is not None and place.begun.is_active:
            return place.begun
    return None


@cache
def watch() -> None:
    """Notes each thread that a function starts, and marks each process that it begins, from now on."""
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        if (begun := _current()) is not None:
            begun.threads.append(thread)
        start(thread)

    threading.Thread.start = noted  # type: ignore[method-assign, assignment]
    child_processes.mark(_forking)


def _forking() -> int | None:
    """Returns the id of the run that is about to fork or to spawn a process. Returns None outside of all runs, and for
    a pool.
    """
    frames = traceback.walk_stack(sys._getframe())
    if (begun := _current()) is None or any(frame.f_globals.get("__name__") == POOL for frame, _ in frames):
        return None
    begun.has_forked = True
    return begun.run_id


def _current() -> Begun | None:
    place = _place.get()
    return place.begun if place is not None else None
