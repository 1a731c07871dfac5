"""What a function leaves running: under our Worker it is dead before the run's end is written, and with it the hold freed.

The worker's own clean-up would come too late for that: between the end and the horse's exit stands RQ's talk with Redis,
which may hang. It stays for horses that die before their end. Under a stock worker all of this does nothing.
"""

import logging
import os
import sys

from wrappers.sandbox import limits, shared_state, subreaper

log = logging.getLogger("ticker.run")


def adopt() -> None:
    """From now on daemons of the function, forked twice, become children of this horse, and not of its worker.

    Called when the limits are armed: their watchdog, forked twice as well, has gone to the worker then.
    """
    if _is_a_horse_of_ours():
        subreaper.become_subreaper()


def kill() -> None:
    """Returns when no child of this horse lives; one that cannot be killed is waited for, up to the hard limit.

    Children of another user (a set-uid program) stay. So do threads, which die with the horse. A process that the
    function forked, and that came out of it (by `sys.exit`), ends here: the end is not its to write.
    """
    if shared_state.horse() and not _is_a_horse_of_ours():
        os._exit(_exit_code(sys.exception()))
    if _is_a_horse_of_ours() and subreaper.has_children():
        left = subreaper.kill_new_children(set(), patience=shared_state.deadline() - limits.now())
        if left:
            log.warning("a job left %s processes behind: killed", left)


def _exit_code(error: BaseException | None) -> int:
    """What Python would end with."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 1 if error else 0


def _is_a_horse_of_ours() -> bool:
    """Not so in a process that the function forked, nor under a stock worker, which has no page."""
    return shared_state.horse() == os.getpid()
