"""Keeps the horse's pid, its deadline and the open run in a page of memory that supervisor, worker and horse share.

The worker resets the page before each fork. The horse writes its pid and the instant of its hard limit, which stay after the run.
Before the horse requests the start, it writes its run's token; it adds the run's id when the answer arrives. It clears
both when the end is written, or left to the worker (see `handoff`).

So if a dead horse (killed, `os._exit`, a crash) left a run on the page, that run has no end. If the instant has passed,
a process of the run may still be alive. Under a stock worker, there is no page and nothing is written; the ticker's
sweep ends such runs.
"""

import math
import mmap
import struct

_SIZE = 128
_HEAD = struct.Struct("dqd")  # the deadline, 0 for none; the horse's pid, 0 for none; the hard limit, 0 for none
_page: mmap.mmap | None = None


def share() -> None:
    """Creates the page, unless it exists. Later forks of this process inherit it."""
    global _page
    if _page is None:
        _page = mmap.mmap(-1, _SIZE)


def begin(deadline: float) -> None:
    """Resets the page for a new job: no horse, and no open run. `deadline` is an instant of `limits.now`."""
    if _page is not None:
        _page[:] = _HEAD.pack(deadline, 0, 0).ljust(_SIZE, b"\0")


def write_horse(pid: int) -> None:
    _put_head(deadline(), pid, hard_limit())


def write_deadline(instant: float, hard: float = 0.0) -> None:
    """Sets the instant after which no process of this job may live. `hard` is the limit in seconds."""
    _put_head(instant, horse(), hard)


def forget_horse() -> None:
    """Removes the horse and the deadline, once the horse and its children are dead."""
    _put_head(math.inf, 0, 0)


def deadline() -> float:
    """Returns the instant of `limits.now` after which no process of the job may live; infinite if there is none."""
    return _head()[0] or math.inf


def horse() -> int:
    """Returns the pid of the current horse, or of the one that was running when its worker died; 0 if there is none."""
    return _head()[1]


def hard_limit() -> float:
    """Returns the run's hard limit in seconds; 0.0 if the deadline is not a run's."""
    return _head()[2]


def write(task_id: int, token: str, run_id: int = 0) -> None:
    """Writes the open run. `run_id` is given after the start was answered, when the function may have begun."""
    _put_run(f"{task_id} {token} {run_id}")


def clear() -> None:
    _put_run("")


def read() -> tuple[int, str] | None:
    """Returns the task id and the token of the open run; None if there is none."""
    words = _run()
    return (int(words[0]), words[1]) if words else None


def run_id() -> int:
    """Returns the id of the open run; 0 if its start was not answered, so that its function did not begin."""
    return int(_run()[2]) if _run() else 0


def _head() -> tuple[float, int, float]:
    if _page is None:
        return math.inf, 0, 0.0
    head: tuple[float, int, float] = _HEAD.unpack_from(_page)
    return head


def _put_head(instant: float, pid: int, hard: float) -> None:
    if _page is not None:
        _HEAD.pack_into(_page, 0, instant, pid, hard)


def _run() -> list[str]:
    return _page[_HEAD.size :].rstrip(b"\0").decode().split() if _page is not None else []


def _put_run(text: str) -> None:
    if _page is not None:
        _page[_HEAD.size :] = text.encode().ljust(_SIZE - _HEAD.size, b"\0")
