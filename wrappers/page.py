"""A page of memory that the worker shares with its horse: which run is open, so that the worker can close it.

The horse writes the token before it asks for its start and clears the page when its end is written. Whatever is on
the page when the horse is dead (killed, `os._exit`, a crash) is a run without an end. Without a page, under a stock
worker, nothing is written, and the ticker's sweep ends such runs.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

_SIZE = 128
_page: mmap.mmap | None = None


@contextmanager
def opened() -> Iterator[None]:
    """A page for one job, to be opened before the fork."""
    global _page
    with mmap.mmap(-1, _SIZE) as _page:
        try:
            yield
        finally:
            _page = None


def write(task_id: int, token: str) -> None:
    _put(f"{task_id} {token}")


def clear() -> None:
    _put("")


def read() -> tuple[int, str] | None:
    """(task id, token) of the run that is open; None when there is none."""
    text = _page[:].rstrip(b"\0").decode() if _page is not None else ""
    task_id, _, token = text.partition(" ")
    return (int(task_id), token) if token else None


def _put(text: str) -> None:
    if _page is not None:
        _page[:] = text.encode().ljust(_SIZE, b"\0")
