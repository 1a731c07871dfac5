"""Supervises the worker of `ticker worker` as its parent process. No process of a run outlives the run's hard limit.

    supervisor.fork_worker(close_record)  # returns in the worker only, a new process
    import whatever_is_big  # the supervisor does not load it, and stays at 14 MB

The supervisor passes signals on to the worker, and ends as the worker ended. After a run's deadline, it kills the
processes that are left of the run. Some are left if the worker is stopped or hangs, or if an exec deleted the timers.

If the worker dies during a run, the orphaned horse becomes the supervisor's child. It continues to its own end, and
then the supervisor kills the processes that it left. If the supervisor itself dies, the worker gets a SIGTERM and
ends after its current job.

Linux only; elsewhere there is no supervisor.
"""

import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wrappers.sandbox import deaths, handoff, limits, output_pipes, shared_state, subreaper

CloseRecord = Callable[[Any, str | None], Any]
"""Takes its own previous return value (or None) and the cause of the horse's death (None while the horse may be alive)."""

LOOK = 0.25  # seconds between two checks of the deadline
SOON = 0.001  # the same, after a pipe was full
MARGIN = 0.1  # seconds in which the horse's own timers, or the worker, can act first

STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
AWAITED = STOPPING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD}
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("ticker.run")


def fork_worker(close_record: CloseRecord) -> None:
    """Forks the worker and returns in it. The calling process becomes its supervisor and never returns.

    After the worker's death, `close_record` writes the ends that the worker could not write.
    """
    if not subreaper.become_subreaper():
        return
    shared_state.share()
    output_pipes.share()
    handoff.share()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if a parent process ignores it, children vanish unseen
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    supervisor = os.getpid()
    worker = os.fork()
    if worker:
        code = keep(worker)
        mind_orphans(close_record, code)
        end_as(code)
    os.setpgid(0, 0)  # a signal from a terminal to the whole group arrives once, through the supervisor
    die_with(supervisor)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def die_with(supervisor: int) -> None:
    """Asks the kernel for a SIGTERM when the parent, which has a single thread, dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor:  # it died before the prctl call
        os._exit(128 + signal.SIGTERM)


def keep(worker: int) -> int:
    """Passes signals on and enforces deadlines until the worker ends. Returns the worker's exit code; -n for signal n."""
    while (code := subreaper.reap(worker)) is None:
        hand_on(awaited_signal(), worker)
        if is_overdue():
            subreaper.kill_groups_under(worker)
    return code


def hand_on(signum: int, worker: int) -> None:
    if signum not in (0, signal.SIGCHLD):
        os.kill(worker, signum)
    if signum == signal.SIGTSTP:  # Ctrl-Z stops both; SIGCONT is passed on like the others
        os.kill(os.getpid(), signal.SIGSTOP)


def mind_orphans(close_record: CloseRecord, ended: int) -> None:
    """After the worker's death, logs it, waits for its horse, the deadline, or a signal to stop. Then kills the
    remaining processes. `ended` is the worker's exit code.
    """
    kept, code = close_record(None, None), None
    horse = shared_state.horse()
    is_orphan = horse in subreaper.children()
    if is_orphan:
        log_to_stdout()
        log.warning(
            "the worker died during a run: its horse, process %s, continues to its own end",
            horse,
            extra={"event": "worker_died"},
        )
    while horse in subreaper.children() and (code := subreaper.reap(horse)) is None and not is_overdue():
        if awaited_signal() in STOPPING:
            break
    if is_orphan and code is None:
        code = -signal.SIGKILL  # which we send next
    subreaper.kill_new_children(set())
    if ended < 0 and -ended not in STOPPING and not is_orphan:  # after the kill, which must not wait for the imports
        log_to_stdout()
        log.warning("the worker died of %s", deaths.signal_name(-ended), extra={"event": "worker_died"})
    close_record(kept, deaths.cause(code))


def log_to_stdout() -> None:
    from ticker import logs, settings  # imported here, because nearly no supervisor needs them

    logs.to_stdout(settings.from_environment().log)


def awaited_signal() -> int:
    """Returns the next signal; 0 if none came for a while. Empties the pipes of a run's output if the worker does not.

    If this process is stopped in the call, and continued after the timeout, CPython returns an uninitialised number.
    """
    info = signal.sigtimedwait(AWAITED, SOON if output_pipes.relieve() else LOOK)
    return info.si_signo if info and info.si_signo in AWAITED else 0


def is_overdue() -> bool:
    return limits.now() > shared_state.deadline() + MARGIN


def end_as(code: int) -> None:
    """Ends this process as its worker ended, with the same exit code or by the same signal."""
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to set
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)  # 128 + n: the first process of a container dies by no signal
