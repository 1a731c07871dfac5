"""Notes which run of a group is on the event loop, and logs a run that blocks it and thereby delays its neighbours."""

import logging
import sys
import threading
from collections.abc import Awaitable, Coroutine, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar

from wrappers.sandbox import limits, shared_state
from wrappers.sandbox.shared_state import BLOCKED

T = TypeVar("T")

log = logging.getLogger("ticker.run")


class Noted(Awaitable[T], Generic[T]):
    """Awaits a coroutine, and notes the run's slot in the shared memory during each of its steps."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], slot: int) -> None:
        self._coroutine, self._slot = coroutine, slot

    def __await__(self) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            shared_state.write_on_loop(self._slot, limits.now())
            try:
                awaited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                shared_state.write_on_loop(None)
            error = None
            try:
                yield awaited
            except BaseException as thrown:
                error = thrown


class Watch:
    """Logs each step that blocks the event loop of the main thread for more than a second. Runs in a thread of its own."""

    def __init__(self) -> None:
        self._main, self._ends = threading.get_ident(), threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="ticker-watch", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def _watch(self) -> None:
        logged = None
        while not self._ends.wait(BLOCKED / 2):
            step = shared_state.on_loop()
            if step is None or step == logged or limits.now() - step[1] < BLOCKED:
                continue
            logged = step
            frame = sys._current_frames().get(self._main)
            where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"
            task = next((run.task_id for run in shared_state.open_runs() if run.slot == step[0]), "?")
            log.warning(
                "task=%s blocks the event loop: %.1f s in one step, now at %s",
                task,
                limits.now() - step[1],
                where,
                extra={"event": "event_loop_blocked"},
            )
