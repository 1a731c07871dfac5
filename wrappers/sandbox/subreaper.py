"""Nothing is left alive behind a job: what the worker, as the parent of the horses, does about their children.

When a horse dies, its children, and daemons that forked twice, become children of the nearest subreaper above:
the worker. There they are found and killed. Linux only; elsewhere all of this does nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

__all__ = ["become_subreaper", "children", "has_children", "kill_groups_under", "kill_new_children", "reap"]

PASSES = 10  # over the children of a worker that is stopped
HANDED_ON = 0.01  # seconds: a death takes less until its children have their new parent, but on a busy machine

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """From now on orphaned descendants become children of this process. Not inherited by a fork; False: no Linux."""
    if sys.platform != "linux":
        return False
    return bool(_library().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def children(of: int | None = None) -> set[int]:
    """The pids of the direct children of a process (this one), zombies included; empty where there is no /proc."""
    parent = os.getpid() if of is None else of
    try:
        return _listed_children(parent)
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN, or the process is gone
        return _scanned_children(parent)


def has_children() -> bool:
    """Whether this process has any child, a zombie included. One system call, and no look into /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_new_children(before: set[int], *, patience: float = 2.0) -> int:
    """Kill and reap every child that is not in `before`, and theirs, until none is left; returns how many died.

    Children that ended by themselves are reaped and not counted. After `patience` seconds, or where the system
    does not permit the kill, the rest is left: `children() - before` names it.

    Finding none left is proof: a process hands its children on to us before we can reap it.
    """
    killed, pause = 0, 0.0002
    left_alone = set(before)
    own_groups = {os.getpgrp(), *_groups(before)}
    give_up_at = time.monotonic() + patience
    while (new := children() - left_alone) and time.monotonic() < give_up_at:
        _kill_groups(_groups(new) - own_groups)
        left_alone |= {pid for pid in new if not _kill(pid)}
        reaped = [status for pid in new if (status := reap(pid)) is not None]
        killed += reaped.count(-signal.SIGKILL)
        if not reaped:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
    return killed


def kill_groups_under(worker: int) -> None:
    """Kills the groups of another process's children, and of those that their death hands on to it; spares its own.

    A horse leads a group, and what leaves the horse's group does not come into the worker's; what the worker itself
    started is in there. The worker reaps them. What is handed on to it after the last pass, the next call finds.
    """
    spared = {os.getpgrp(), *_groups({worker})}
    for _ in range(PASSES):
        found = _groups(children(worker)) - spared
        if not found:
            return
        _kill_groups(found)
        spared |= found  # a stopped worker reaps nobody: they stay among its children
        time.sleep(HANDED_ON)


def reap(pid: int) -> int | None:
    """How this child ended, as in `os.waitstatus_to_exitcode`; None: not yet, or somebody else reaped it."""
    with suppress(ChildProcessError):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped == pid:
            return os.waitstatus_to_exitcode(status)
    return None


def _kill_groups(groups: Iterable[int]) -> None:
    """Whole groups first: that is atomic, no member forks itself away from it, however fast it is."""
    for group in groups:
        if group > 1:  # 0 is a group outside of our pid namespace, and to killpg our own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def _kill(pid: int) -> bool:
    """False: not permitted (a set-uid program)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


def _groups(pids: Iterable[int]) -> set[int]:
    groups = set()
    for pid in pids:
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(pid))
    return groups


def _listed_children(parent: int) -> set[int]:
    """The kernel's own list, one per thread. Exact for this process, since nobody but us reaps our children."""
    found: set[int] = set()
    with os.scandir(f"/proc/{parent}/task") as threads:
        for thread in threads:
            with suppress(ProcessLookupError), open(f"{thread.path}/children", "rb") as file:  # noqa: PTH123 hot path
                found.update(map(int, file.read().split()))
    return found


def _scanned_children(parent: int) -> set[int]:
    found = set()
    with suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and _parent(entry.path) == parent:
                found.add(int(entry.name))
    return found


def _parent(process: str) -> int:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"{process}/stat", "rb") as file:  # noqa: PTH123 hot path
        # "pid (name) state ppid ...", and the name may hold spaces and brackets
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0
