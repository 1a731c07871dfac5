"""Finds and kills the processes that a function leaves running, before the run's end is written and its hold is freed.

The worker's own clean-up would be too late: RQ calls Redis between the run's end and the horse's exit, and may hang
there. That clean-up handles horses that die before the run's end. Under a stock worker, this module does nothing.
"""

import _posixsubprocess
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from wrappers.sandbox import limits, shared_state, subreaper

log = logging.getLogger("ticker.run")

MARK = "TICKER_RUN"
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # one of each serves all runs


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
    exit_if_forked()
    if _is_a_horse_of_ours() and subreaper.has_children():
        log_killed(subreaper.kill_new_children(set(), patience=shared_state.deadline() - limits.now()))


def exit_if_forked() -> None:
    """Exits in a process that the function forked."""
    if shared_state.horse() and not _is_a_horse_of_ours():
        os._exit(_exit_code(sys.exception()))


def log_killed(number: int) -> None:
    if number:
        log.warning("killed %s process(es) that a job left behind", number, extra={"event": "processes_killed"})


def mark(run_of: Callable[[], int | None]) -> None:
    """Marks each process that a run begins from now on: by its environment after an exec, by its name after a fork.

    `run_of` returns the id of the run that begins a process. A program that was begun without Python's help, as by
    `os.system`, or that drops its environment, has no mark. It lives until this process ends. The helpers of
    multiprocessing get none.
    """
    fork_exec = _posixsubprocess.fork_exec

    def marked_fork_exec(*given: Any) -> int:
        run, arguments = run_of(), [*given]
        if run is not None and not any(helper in str(arguments[0]) for helper in HELPERS):
            env = arguments[5] if arguments[5] is not None else [b"%s=%s" % pair for pair in os.environb.items()]
            arguments[5] = [*env, f"{MARK}={run}".encode()]
        return fork_exec(*arguments)

    def marked(spawn: Callable[..., int]) -> Any:
        def marked_spawn(path: Any, argv: Any, env: Any, **options: Any) -> int:
            run = run_of()
            if run is not None and (env is not None or sys.version_info >= (3, 13)):  # before, None is an error
                env = {**(os.environ if env is None else env), MARK: str(run)}
            return spawn(path, argv, env, **options)

        return marked_spawn

    def name() -> None:
        if (run := run_of()) is not None:
            os.environ[MARK] = str(run)  # for a program that replaces the process
            with suppress(OSError):
                Path("/proc/self/comm").write_text(_name(run))

    setattr(subprocess, "_fork_exec", marked_fork_exec)  # noqa: B010 - unknown to type checkers
    _posixsubprocess.fork_exec = marked_fork_exec
    os.posix_spawn, os.posix_spawnp = marked(os.posix_spawn), marked(os.posix_spawnp)
    os.register_at_fork(before=run_of, after_in_child=name)


def belongs(pid: int, runs: set[int]) -> bool:
    """Returns whether a process has the mark of one of these runs. A process of another user shows none."""
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        if (process / "comm").read_text(errors="replace").strip() in map(_name, runs):
            return True
        marks = {f"{MARK}={run}".encode() for run in runs}
        return not marks.isdisjoint((process / "environ").read_bytes().split(b"\0"))
    return False


def _name(run: int) -> str:
    return f"run {run:x}"  # the kernel keeps 15 bytes


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code that Python would use after this error."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 1 if error else 0


def _is_a_horse_of_ours() -> bool:
    """Returns False in a process that the function forked, and under a stock worker, which has no shared page."""
    return shared_state.horse() == os.getpid()
