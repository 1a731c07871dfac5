"""Kills what a function leaves running before the run's end is written and its hold freed. Only under our Worker.

The worker's own clean-up would come too late: RQ talks to Redis between the end and the horse's exit, and may hang
there. That clean-up remains for horses that die before their end. Under a stock worker, this module does nothing.
"""

import logging
import os
import sys

from wrappers.sandbox import limits, shared_state, subreaper

log = logging.getLogger("ticker.run")


def adopt() -> None:
    """Makes the function's daemons, which fork twice, children of this horse instead of its worker.

    Called when the limits are armed. By then their watchdog, which forks twice as well, belongs to the worker.
    """
    if _is_a_horse_of_ours():
        subreaper.become_subreaper()


def kill() -> None:
    """Kills this horse's children and returns when none is left. Waits for one that does not die, up to the hard limit.

    Children of another user (a set-uid program) stay. Threads stay, too, and die with the horse. A process that the
    function forked and that left it (by `sys.exit`) exits here, because it must not write the run's end.
    """
    if shared_state.horse() and not _is_a_horse_of_ours():
        os._exit(_exit_code(sys.exception()))
    if _is_a_horse_of_ours() and subreaper.has_children():
        left = subreaper.kill_new_children(set(), patience=shared_state.deadline() - limits.now())
        if left:
            log.warning("a job left %s processes behind: killed", left)


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code that Python would use."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 1 if error else 0


def _is_a_horse_of_ours() -> bool:
    """Returns False in a process that the function forked, and under a stock worker, which has no shared page."""
    return shared_state.horse() == os.getpid()
