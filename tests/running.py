"""Real processes for tests: workers, tickers, and functions in forks. Waits end on an event, or fail after a bound."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from ticker import embedded
from ticker.embedded import Servers
from wrappers.sandbox.subreaper import children

ROOT = Path(__file__).parent.parent
LOCK_AWAITED = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
ASKED_UNDER_A_LOCK = """
SELECT run.pid FROM pg_stat_activity run, pg_stat_activity lock WHERE run.application_name = 'ticker-run'
    AND lock.state = 'idle in transaction' AND lock.application_name <> 'ticker-run' AND run.query_start > lock.state_change AND run.query LIKE '%SKIP LOCKED%'"""
"""Whether a worker or its horse has asked for a start or an end since a lock was taken. Both skip a locked row."""
PATIENCE = 60.0  # seconds: a bound for a loaded machine, never what a test waits for


@contextmanager
def servers_or_given() -> Iterator[Servers]:
    """The servers that DATABASE_URL and REDIS_URL name, and embedded ones instead of those that are not set."""
    with ExitStack() as started:
        database_url = os.environ.get("DATABASE_URL") or started.enter_context(embedded.postgres()).url
        redis_url = os.environ.get("REDIS_URL") or started.enter_context(embedded.valkey()).url
        yield Servers(database_url, redis_url)


def work(*queues: str, patch: str = "", timeout: float = PATIENCE) -> "subprocess.CompletedProcess[str]":
    """`python -m wrappers --tasks tests.sample_tasks --burst QUEUE...` until the queues are empty; `patch` runs before."""
    start = ["-m", "wrappers"] if not patch else ["-c", f"{patch}\nfrom wrappers.__main__ import main; main()"]
    command = [sys.executable, *start, "--tasks", "tests.sample_tasks", "--burst", *(queues or ["polling"])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=True)


def supervised(program: str) -> str:
    """Returns Python code that forks a worker under a supervisor, as `python -m wrappers` does, and runs `program` in it."""
    return f"""
from wrappers.pipeline.dead_workers import close_record
from wrappers.sandbox import supervisor

supervisor.fork_worker(close_record)
{program}"""


@contextmanager
def working(*arguments: str, patch: str = "") -> Iterator["subprocess.Popen[str]"]:
    """A worker in its own session, without a supervisor; killed after the block with its horses, if it still runs."""
    code = f"{patch}\nfrom wrappers.__main__ import main; main()"
    command = [sys.executable, "-c", code, "--tasks", "tests.sample_tasks", *arguments, "polling"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGSTOP)  # it forks no further one
                horses = children(process.pid)
                process.kill()
                for horse in horses:
                    with suppress(ProcessLookupError):
                        os.kill(horse, signal.SIGKILL)


class Ticking:
    """Starts `ticker run` in its own process; yields it and the lines printed so far. Kills it at the end of the block."""

    def __init__(self, *options: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "ticker", "run", "--tick", "0.2s", *options], cwd=ROOT, env=os.environ | environ,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)

    def says(self, pattern: str, after: int = 0) -> int:
        """Waits for a line; the number of lines up to it."""

        def found() -> int | None:
            return next((n for n, line in enumerate(self.lines[after:], after + 1) if re.search(pattern, line)), None)

        return int(until(found, f"{pattern!r} in {''.join(self.lines[-8:])}"))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        return code


def stock_worker(*arguments: str, patch: str = "") -> "subprocess.CompletedProcess[str]":
    """RQ's own `rq worker --burst`, which only knows TICKER_TASKS; `patch` runs before."""
    command = [
        sys.executable,
        *(["-m", "rq.cli"] if not patch else ["-c", f"{patch}\nfrom rq.cli import main; main()"]),
        "worker",
        "--burst",
        "--url",
        os.environ["REDIS_URL"],
        *(arguments or ["polling"]),
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


def answer(url: str) -> tuple[int, str]:
    """The status and the text of an answer over HTTP."""
    try:
        with urlopen(url, timeout=PATIENCE) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Waits for a fact that another process brings about; its value. Fails with `what` after a minute, or `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {patience:.0f} s: {what}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
