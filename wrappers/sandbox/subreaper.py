"""Kills the processes that a job leaves behind, in the worker that is the parent of its horse.

When a horse dies, its children, and daemons that forked twice, become children of the nearest subreaper above it. That
is the worker, which finds and kills them. Only Linux has subreapers.
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

from ticker.errors import ConfigurationError

PASSES = 10  # over the children of a stopped worker
HANDED_ON = 0.01  # seconds within which the children of a dead process get a new parent, except on a busy machine

_PR_SET_CHILD_SUBREAPER = 36


def require_linux() -> None:
    """Raises ConfigurationError on another system, where nothing would kill the processes that a run leaves behind."""
    if sys.platform != "linux":
        raise ConfigurationError(
            f"ticker worker requires Linux, but this system is {sys.platform}, where it cannot kill the processes that a run "
            "leaves behind; run it on a Linux host or in a container"
        )


def become_subreaper() -> bool:
    """Makes orphaned descendants children of this process, but not of its forks. Returns False if the system cannot do
    this.
    """
    if sys.platform != "linux":
        return False
    return bool(_library().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def children(of: int | None = None) -> set[int]:
    """Returns the pids of a process's (by default, this one's) direct children, zombies included. Empty without /proc."""
    parent = os.getpid() if of is None else of
    try:
        return _listed_children(parent)
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN, or the process is gone
        return _scanned_children(parent)


def has_children() -> bool:
    """Returns whether this process has a child, zombies included. Takes one system call and does not read /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_new_children(before: set[int], *, patience: float = 2.0) -> int:
    """Kills and reaps all children that are not in `before`, and their children, until none are left. Returns the
    number killed.

    Children that ended by themselves are reaped and not counted. After `patience` seconds, or if the system does not
    permit the kill, the others are left: `children() - before` lists them.

    If no child is left, no descendant is left: the children of a process become ours before we can reap it.
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
    """Kills the process groups of all children of another process, adopted ones included. Spares that process's own
    group.

    A horse leads its own group. A process that leaves this group does not join the worker's, which holds only processes
    that the worker itself started. The worker reaps the killed processes. The next call kills those that the worker
    adopts after the last pass.
    """
    spared = {os.getpgrp(), *_groups({worker})}
    for _ in range(PASSES):
        groups = _groups(children(worker)) - spared
        if not groups:
            return
        _kill_groups(groups)
        spared |= groups  # a stopped worker does not reap, so they stay among its children
        time.sleep(HANDED_ON)


def reap(pid: int) -> int | None:
    """Returns how this child ended, as in `os.waitstatus_to_exitcode`; None if it is alive or was reaped elsewhere."""
    with suppress(ChildProcessError):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped == pid:
            return os.waitstatus_to_exitcode(status)
    return None


def _kill_groups(groups: Iterable[int]) -> None:
    """Kills whole groups. That is atomic: no member can escape by forking, however fast it is."""
    for group in groups:
        if group > 1:  # 0 is a group outside our pid namespace, but our own to killpg
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def _kill(pid: int) -> bool:
    """Returns False if the kill is not permitted (a set-uid program)."""
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
    """Returns the kernel's own lists, one per thread. They are exact for this process: only we reap our children."""
    pids: set[int] = set()
    with os.scandir(f"/proc/{parent}/task") as threads:
        for thread in threads:
            with suppress(ProcessLookupError), open(f"{thread.path}/children", "rb") as file:  # noqa: PTH123 hot path
                pids.update(map(int, file.read().split()))
    return pids


def _scanned_children(parent: int) -> set[int]:
    pids = set()
    with suppress(FileNotFoundError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and _parent(entry.path) == parent:
                pids.add(int(entry.name))
    return pids


def _parent(process: str) -> int:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"{process}/stat", "rb") as file:  # noqa: PTH123 hot path
        # "pid (name) state ppid ..."; the name may contain spaces and brackets
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0
