"""Pushes the due tasks of one tick in several threads, each with its own batches.

While Redis stores the jobs of one batch, PostgreSQL finds the rows of the next, and Python packs jobs. With a single
thread, two of the three are always idle. A third thread would find no free core.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

COUNT = 2


class PushThreads:
    """Calls the same function in this thread and in others, which are reused."""

    def __init__(self, count: int = COUNT) -> None:
        self._others = count - 1
        self._threads = ThreadPoolExecutor(max(self._others, 1), "ticker-push")

    def __call__(self, push: Callable[[], T]) -> list[T]:
        """Returns all answers once every call has ended. Raises the error of a failed call: this thread's, if it has
        one.
        """
        others = [self._threads.submit(push) for _ in range(self._others)]
        try:
            answers = [push()]
        finally:
            errors = [other.exception() for other in others]
        for error in errors:
            if error is not None:
                raise error
        return [*answers, *(other.result() for other in others)]
