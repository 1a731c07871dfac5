"""Kills the processes that a function leaves running, before the run's end is written and its hold is freed.

The worker's own clean-up would be too late: RQ calls Redis between the run's end and the horse's exit, and may hang
there. That clean-up handles horses that die before the run's end. Under a stock worker, this module does nothing.
"""

import logging
import os
import sys

from wrappers.sandbox import limits, shared_state, subreaper

log = logging.getLogger("ticker.run")


def adopt() -> None:
    """Makes the function's daemons, which fork twice, children of this horse instead of its worker.

    Called when the limits are armed. By then, their watchdog, which also forks twice, is a child of the worker.
    """
    if _is_a_horse_of_ours():
        subreaper.become_subreaper()


def kill() -> None:
    """Kills this horse's children and waits until all are dead, at most until the hard limit.

    Children of another user (a set-uid program) stay. Threads stay, too, and die with the horse. If the function forked
    a process, and that process leaves the function (by `sys.exit`), it exits here: it must not write the run's end.
    """
    if shared_state.horse() and not _is_a_horse_of_ours():
        os._exit(_exit_code(sys.exception()))
    if _is_a_horse_of_ours() and subreaper.has_children():
        left = subreaper.kill_new_children(set(), patience=shared_state.deadline() - limits.now())
        if left:
            log.warning("killed %s process(es) that a job left behind", left, extra={"event": "processes_killed"})


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code that Python would use after this error."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 1 if error else 0


def _is_a_horse_of_ours() -> bool:
    """Returns False in a process that the function forked, and under a stock worker, which has no shared page."""
    return shared_state.horse() == os.getpid()
