"""Real processes for tests: workers, tickers, and functions in forks. Waits end on an event, or fail after a bound."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0  # seconds: a bound for a loaded machine, never what a test waits for


def work(*queues: str, patch: str = "", timeout: float = PATIENCE) -> "subprocess.CompletedProcess[str]":
    """`python -m wrappers --tasks tests.sample_tasks --burst QUEUE...` until the queues are empty; `patch` runs before."""
    start = ["-m", "wrappers"] if not patch else ["-c", f"{patch}\nfrom wrappers.__main__ import main; main()"]
    command = [sys.executable, *start, "--tasks", "tests.sample_tasks", "--burst", *(queues or ["polling"])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=True)


def stock_worker(*queues: str, patch: str = "") -> "subprocess.CompletedProcess[str]":
    """RQ's own `rq worker --burst`, which only knows TICKER_TASKS; `patch` runs before."""
    command = [
        sys.executable,
        *(["-m", "rq.cli"] if not patch else ["-c", f"{patch}\nfrom rq.cli import main; main()"]),
        "worker",
        "--burst",
        "--url",
        os.environ["REDIS_URL"],
        *(queues or ["polling"]),
    ]
    environ = os.environ | {"TICKER_TASKS": "tests.sample_tasks"}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=True)


def in_fork(function: Callable[[], Any]) -> int:
    """Runs `function` in a fork of this process; its exit code, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def until(condition: Callable[[], Any], what: str) -> Any:
    """Waits for a fact that another process brings about; its value. Fails with `what` after a minute."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE:.0f} s: {what}")


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
