"""Functions that do their worst not to end: each leaves a note of when it must be over, and of who must be dead then."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wrappers import Run, task
from wrappers.sandbox import limits

NEVER = 600.0  # seconds
FORKS = 50
Function = Callable[[], None]
CASES: list[str] = []


def case(beside: Callable[[], list[int]] = list) -> Callable[[Function], Function]:
    """Registers it as a task's function, with a child and a daemon beside it, and with the processes of `beside`."""

    def register(function: Function) -> Function:
        def overrun(run: Run, note: str, grace: float) -> None:
            over_at = limits.now() + run.quota.remaining + grace
            write_note(Path(note), over_at, [os.getpid(), a_child(), a_daemon(), *beside()])
            function()

        name = function.__name__.replace("_", " ")
        CASES.append(name)
        task(f"overrun {name}")(overrun)
        return function

    return register


def write_note(note: Path, over_at: float, pids: list[int]) -> None:
    draft = note.with_suffix(".draft")
    draft.write_text(json.dumps({"over_at": over_at, "pids": pids}))
    draft.rename(note)


def a_child() -> int:
    return subprocess.Popen(["sleep", str(NEVER)]).pid


def a_daemon() -> int:
    """Forked twice, in a session of its own."""
    command = ["/bin/sh", "-c", f"setsid sleep {NEVER} </dev/null >/dev/null 2>&1 & echo $!"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def sleep_through_everything() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(NEVER)


@case()
def swallows_every_exception() -> None:
    sleep_through_everything()


@case()
def a_long_call_of_c() -> None:
    with suppress(BaseException):  # `re` looks at signals now and then; `sum` never does
        re.match(r"(a+)+$", "a" * 64 + "b")
    sum(range(10**14))


@case()
def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@case()
def blocks_all_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sleep_through_everything()


@case()
def ignores_all_signals() -> None:
    set_all(signal.SIG_IGN)


@case()
def replaces_all_handlers() -> None:
    set_all(lambda _signum, _frame: None)


def set_all(handler: object) -> None:
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(signum, handler)  # type: ignore[arg-type]
    sleep_through_everything()


@case()
def executes_another_program() -> None:
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(signum, signal.SIG_IGN)  # which an exec keeps
    os.execvp("sleep", ["sleep", str(NEVER)])


@case()
def has_threads_that_never_end() -> None:
    for _ in range(4):
        threading.Thread(target=sleep_through_everything).start()
    for thread in threading.enumerate():
        with suppress(BaseException):
            thread.join()
    sleep_through_everything()


def deaf_children() -> list[int]:
    return [in_fork(ignores_all_signals), in_fork(stops_itself)]


@case(beside=deaf_children)
def leaves_deaf_and_stopped_children() -> None:
    sleep_through_everything()


def many_children() -> list[int]:
    """Each in a session of its own; by a shell, since a fork of a Python is slow."""
    script = f"for _ in $(seq {FORKS}); do setsid sleep {NEVER} </dev/null >/dev/null 2>&1 & echo $!; done"
    said = subprocess.run(["/bin/sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout
    return [int(pid) for pid in said.split()]


@case(beside=many_children)
def forks_fifty_times() -> None:
    sleep_through_everything()


def in_fork(function: Function) -> int:
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            function()
        os._exit(0)
    return pid
