"""Work-horses that a test forks: their work, and how they ended."""

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], object]
NEVER = 90.0  # seconds; pytest's own timeout of a test is 120


def horse(body: Callable[[Say], object]) -> tuple[int, str]:
    """Runs `body` in a fork. Returns its exit code (-n: died by signal n) and all output until every process has closed it."""
    reader, writer = os.pipe()

    def guarded() -> None:
        try:
            body(lambda text: os.write(writer, f"{text} ".encode()))
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
            raise

    pid = in_fork(guarded)
    os.close(writer)
    try:
        said = Path(f"/dev/fd/{reader}").read_text()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.strip()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)


def in_fork(function: Callable[..., object], *args: object) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function(*args)
            status = 0
        finally:
            os._exit(status)
    return pid


def until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.005)


def sleep() -> None:
    time.sleep(NEVER)


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
