"""Keeps the horse, its deadline and the open runs in memory that supervisor, worker and horse share.

The worker resets the memory before each fork. The horse writes its pid and the instant of its hard limit, which stay
after the run. Before the horse requests a start, it writes the run's token into a slot. It adds the run's id when the
answer arrives. It clears the slot when the end is written, or left to the worker (see `handoff`). A single run uses the
first slot; each run of a group has its own.

So if a dead horse (killed, `os._exit`, a crash) left a run in a slot, that run has no end. If the instant has passed, a
process of the run may still be alive. Under a stock worker, this memory does not exist and nothing is written; the
ticker's sweep ends such runs.
"""

import math
import mmap
import struct
from typing import NamedTuple
from uuid import UUID

SLOTS = 1000
BLOCKED = 1.0  # seconds: a run with a longer step on the event loop blocks its neighbours
_HEAD = struct.Struct("dqd")  # the deadline, 0 for none; the horse's pid, 0 for none; the hard limit, 0 for none
_USED = struct.Struct("q")  # the number of slots, from the first, that may be in use
_STOP = struct.Struct("q")  # 1 if nothing new may begin
_LOOP = struct.Struct("qd")  # 1 + the slot of the run on the event loop, 0 for none; since when
_SLOT = struct.Struct("qq16sddd")  # the fields of an OpenRun; a free slot has the task id 0
_STOP_AT = _HEAD.size + _USED.size
_LOOP_AT = _STOP_AT + _STOP.size
_FIRST = _LOOP_AT + _LOOP.size
_STOPPED_AT = _FIRST + SLOTS * _SLOT.size
_SIZE = _STOPPED_AT + SLOTS * 16  # for each slot, the token of its run if somebody stopped the run
_NAMES = 2048  # bytes for the job and the names of a run; a name has at most 200 characters, and an owner at most 402
_page: mmap.mmap | None = None
_names: mmap.mmap | None = None  # unused pages take no memory


class OpenRun(NamedTuple):
    """A run without an end, and its slot.

    `run_id` is 0 if its start was not answered, which means that its function did not begin. `soft_at` and `deadline`
    are instants of `limits.now`, and `hard_limit` is in seconds. All three are 0.0 outside a group, where the limits of
    the horse apply.
    """

    task_id: int
    token: str
    run_id: int
    deadline: float
    hard_limit: float
    slot: int
    soft_at: float = 0.0


def share() -> None:
    """Creates the memory, unless it exists. Later forks of this process inherit it."""
    global _page, _names
    if _page is None:
        _page, _names = mmap.mmap(-1, _SIZE), mmap.mmap(-1, SLOTS * _NAMES)


def is_shared() -> bool:
    return _page is not None


def begin(deadline: float) -> None:
    """Resets the memory for a new job: no horse, and no open run. `deadline` is an instant of `limits.now`."""
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


def write(
    task_id: int, token: str, run_id: int = 0, *, slot: int = 0, deadline: float = 0.0, hard_limit: float = 0.0,
    soft_at: float = 0.0,
) -> None:  # fmt: skip
    """Writes an open run. `run_id` is passed after the start was answered, when the function may have begun."""
    if _page is not None:
        _USED.pack_into(_page, _HEAD.size, max(slot + 1, *_USED.unpack_from(_page, _HEAD.size)))
        _SLOT.pack_into(_page, _at(slot), task_id, run_id, UUID(token).bytes, deadline, hard_limit, soft_at)


def write_names(job_id: str, name: str, owner: str, slot: int = 0) -> None:
    """Writes the job, and the task's name and owner, for log lines about a run whose process has died."""
    if _names is not None:
        text = f"{job_id}\n{name}\n{owner}\n".encode("utf-8", "replace")[:_NAMES]
        _names[slot * _NAMES : slot * _NAMES + len(text)] = text


def names_of(run: OpenRun) -> tuple[str, str, str]:
    """Returns the job, and the task's name and owner, of a run whose start was answered; `?` if they are unknown."""
    if _names is None or not run.run_id:
        return "?", "?", "?"
    names = _names[run.slot * _NAMES : (run.slot + 1) * _NAMES].decode("utf-8", "replace")
    job_id, name, owner, *_ = names.split("\n", 3)
    return job_id, name, owner


def clear(slot: int = 0) -> None:
    if _page is not None:
        _SLOT.pack_into(_page, _at(slot), 0, 0, b"", 0, 0, 0)


def clear_all() -> None:
    if _page is not None:
        _page[_HEAD.size :] = bytes(_SIZE - _HEAD.size)


def open_runs() -> list[OpenRun]:
    """Returns the open runs of the horse, whether it is dead or alive."""
    if _page is None:
        return []
    slots = enumerate(_SLOT.iter_unpack(_page[_FIRST : _at(*_USED.unpack_from(_page, _HEAD.size))]))
    return [
        OpenRun(task_id, str(UUID(bytes=token)), run_id, deadline, hard_limit, slot, soft_at)
        for slot, (task_id, run_id, token, deadline, hard_limit, soft_at) in slots
        if task_id
    ]


def stop() -> None:
    """Asks a group to begin nothing new. Its runs continue to their own ends."""
    if _page is not None:
        _STOP.pack_into(_page, _STOP_AT, 1)


def is_stopping() -> bool:
    return _page is not None and _STOP.unpack_from(_page, _STOP_AT) == (1,)


def stop_run(run: OpenRun) -> None:
    """Notes that somebody stops this run. Its process finds that out by `is_stopped`."""
    if _page is not None:
        _page[_stopped(run.slot)] = UUID(run.token).bytes


def is_stopped(token: str, slot: int = 0) -> bool:
    return _page is not None and _page[_stopped(slot)] == UUID(token).bytes


def write_on_loop(slot: int | None, since: float = 0.0) -> None:
    """Notes which run of a group is on the event loop, and since which instant of `limits.now`."""
    if _page is not None:
        _LOOP.pack_into(_page, _LOOP_AT, 0 if slot is None else slot + 1, since)


def on_loop() -> tuple[int, float] | None:
    """Returns the slot of the run on the event loop, and the instant at which its step began. Returns None if no run is
    on it.
    """
    if _page is None:
        return None
    number, since = _LOOP.unpack_from(_page, _LOOP_AT)
    return (number - 1, since) if number else None


def has_begun() -> bool:
    """Returns whether there is a run whose start was answered and that has no end yet."""
    return any(run.run_id for run in open_runs())


def _head() -> tuple[float, int, float]:
    if _page is None:
        return math.inf, 0, 0.0
    head: tuple[float, int, float] = _HEAD.unpack_from(_page)
    return head


def _put_head(instant: float, pid: int, hard: float) -> None:
    if _page is not None:
        _HEAD.pack_into(_page, 0, instant, pid, hard)


def _at(slot: int) -> int:
    return _FIRST + slot * _SLOT.size


def _stopped(slot: int) -> slice:
    return slice(_STOPPED_AT + 16 * slot, _STOPPED_AT + 16 * (slot + 1))
