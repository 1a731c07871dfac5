"""A page of memory that a supervisor, its worker and the horse share: which horse works, until when, and which run is open.

The worker begins the page before each fork. The horse writes its pid, and the instant of its hard limit, which stays.
Before it requests the start, it writes the token of its run, and adds the run's id when the answer has come. It clears
both when the end is written, or left (`ends`). So a run on the page of a dead horse (killed, `os._exit`, a crash) has no
end. If the instant has passed, some process of the run may still live. Without a page, under a stock worker, nothing is
written, and the ticker's sweep ends such runs.
"""

import math
import mmap
import struct

_SIZE = 128
_HEAD = struct.Struct("dqd")  # the deadline, 0 for none; the horse's pid, 0 for none; the hard limit, 0 for none
_page: mmap.mmap | None = None


def share() -> None:
    """Makes the page, unless there is one already; for this process and those that it forks from now on."""
    global _page
    if _page is None:
        _page = mmap.mmap(-1, _SIZE)


def begin(deadline: float) -> None:
    """For a new job: no horse yet, and no open run. The deadline is an instant of `limits.now`."""
    if _page is not None:
        _page[:] = _HEAD.pack(deadline, 0, 0).ljust(_SIZE, b"\0")


def write_horse(pid: int) -> None:
    _put_head(deadline(), pid, hard_limit())


def write_deadline(instant: float, hard: float = 0.0) -> None:
    """Sets the instant from which no process of this job may live, the horse included. `hard`: the run's limit in seconds."""
    _put_head(instant, horse(), hard)


def forget_horse() -> None:
    """The horse is dead, and nothing of it lives: neither horse nor deadline."""
    _put_head(math.inf, 0, 0)


def deadline() -> float:
    """The instant, of `limits.now`, when nothing of the job may live any more; infinite when there is none."""
    return _head()[0] or math.inf


def horse() -> int:
    """The pid of the horse that works, or worked when its worker died; 0 when there is none."""
    return _head()[1]


def hard_limit() -> float:
    """Seconds of the run's hard limit that is the deadline; 0.0 if the deadline is not a run's."""
    return _head()[2]


def write(task_id: int, token: str, run_id: int = 0) -> None:
    """Writes the open run; with `run_id` once its start was answered, and its function may have begun."""
    _put_run(f"{task_id} {token} {run_id}")


def clear() -> None:
    _put_run("")


def read() -> tuple[int, str] | None:
    """(task id, token) of the run that is open; None when there is none."""
    words = _run()
    return (int(words[0]), words[1]) if words else None


def run_id() -> int:
    """The id of the open run; 0 if its start was not answered, so that its function did not begin."""
    return int(_run()[2]) if _run() else 0


def _head() -> tuple[float, int, float]:
    if _page is None:
        return math.inf, 0, 0.0
    found: tuple[float, int, float] = _HEAD.unpack_from(_page)
    return found


def _put_head(instant: float, pid: int, hard: float) -> None:
    if _page is not None:
        _HEAD.pack_into(_page, 0, instant, pid, hard)


def _run() -> list[str]:
    return _page[_HEAD.size :].rstrip(b"\0").decode().split() if _page is not None else []


def _put_run(text: str) -> None:
    if _page is not None:
        _page[_HEAD.size :] = text.encode().ljust(_SIZE - _HEAD.size, b"\0")
