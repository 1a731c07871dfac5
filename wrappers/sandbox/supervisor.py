"""The parent of the worker of `ticker worker`: nothing of a run outlives its hard limit, whatever happens to the worker.

    supervisor.fork_worker(close_record)  # returns in the worker only, a new process
    import whatever_is_big  # the supervisor does not load it, and stays at 14 MB

The supervisor hands on signals and ends as its worker ended. When a run is over its deadline and something of it lives
(its worker is stopped or hangs, or an exec has lost the timers), the supervisor kills that. When the worker dies in mid-run,
the orphaned horse becomes the supervisor's child, goes on until its own end, and after that the supervisor kills what it left.

When the supervisor itself dies, the worker is told to end (SIGTERM: after the job it has). Linux only; elsewhere there is no
supervisor.
"""

import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ticker import logs
from wrappers.sandbox import deaths, handoff, limits, ring_buffer, shared_state, subreaper

__all__ = ["fork_worker"]

CloseRecord = Callable[[Any, str | None], Any]
"""Is handed what it returned before, or None, and the cause of the horse's death, or None while the horse may live."""

LOOK = 0.25  # seconds between two looks at the deadline
MARGIN = 0.1  # seconds that the horse's own timers, and the worker, have for it first

STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
AWAITED = STOPPING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD}
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("ticker.run")


def fork_worker(close_record: CloseRecord) -> None:
    """Returns in a new process. The calling process goes on as its supervisor, and ends with it.

    After the worker's death, `close_record` writes the ends that the worker could not write.
    """
    if not subreaper.become_subreaper():
        return
    shared_state.share()
    ring_buffer.share()
    handoff.share()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some parent may have left it, children vanish unseen
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    supervisor = os.getpid()
    worker = os.fork()
    if worker:
        code = keep(worker)
        mind_orphans(close_record)
        end_as(code)
    os.setpgid(0, 0)  # a signal that a terminal sends to the whole group arrives once, through the supervisor
    die_with(supervisor)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def die_with(supervisor: int) -> None:
    """Asks for a SIGTERM when the single-threaded parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor:  # it died before the prctl call
        os._exit(128 + signal.SIGTERM)


def keep(worker: int) -> int:
    """Hands on signals and keeps to deadlines until the worker has ended; how it did, -n for a signal."""
    while (code := subreaper.reap(worker)) is None:
        hand_on(awaited_signal(), worker)
        if is_overdue():
            subreaper.kill_groups_under(worker)
    return code


def hand_on(signum: int, worker: int) -> None:
    if signum not in (0, signal.SIGCHLD):
        os.kill(worker, signum)
    if signum == signal.SIGTSTP:  # Ctrl-Z stops both; SIGCONT is handed on like the others
        os.kill(os.getpid(), signal.SIGSTOP)


def mind_orphans(close_record: CloseRecord) -> None:
    """After the worker's death: waits for its horse, until the deadline, or until a signal to stop; then kills what is left."""
    kept, code = close_record(None, None), None
    horse = shared_state.horse()
    is_orphan = horse in subreaper.children()
    if is_orphan:
        logs.to_stdout()
        log.warning("the worker died in mid-run: its horse, process %s, goes on until its own end", horse)
    while horse in subreaper.children() and (code := subreaper.reap(horse)) is None and not is_overdue():
        if awaited_signal() in STOPPING:
            break
    if is_orphan and code is None:
        code = -signal.SIGKILL  # which we send next
    subreaper.kill_new_children(set())
    close_record(kept, deaths.cause(code))


def awaited_signal() -> int:
    """The next signal; 0 when none came for a while."""
    found = signal.sigtimedwait(AWAITED, LOOK)
    return found.si_signo if found else 0


def is_overdue() -> bool:
    return limits.now() > shared_state.deadline() + MARGIN


def end_as(code: int) -> None:
    """Ends this process as its worker ended: with that exit code, or by that signal."""
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to set
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)  # 128 + n: the first process of a container dies by no signal
