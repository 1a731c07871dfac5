"""The processes of the demo: started as honcho starts a Procfile's lines, and ended with all that they started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Self

from wrappers.sandbox import subreaper

PATIENCE = 4.0  # seconds from SIGTERM to SIGKILL: a worker first lets its run end, which its box does within 2.1 s
LAST_LINES = 15


def procfile() -> Mapping[str, str]:
    """The lines of the Procfile by name. The one at the top of the repository is the same."""
    text = files("ticker.demo").joinpath("Procfile").read_text(encoding="utf-8")
    lines = (line.partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {name: command for name, _, command in lines}


class ProcessFailed(Exception):
    """A process ended by itself."""


class Processes:
    """Shell commands with a log each. Behind the `with` block none of them is left, nor any of their children."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        subreaper.become_subreaper()  # the work-horse of a worker that was killed becomes a child of ours
        self._others = subreaper.children()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: str) -> None:
        """Runs it in a session of its own, where no Ctrl-C arrives; our own programs are found first."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        with (self._logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, shell=True, env=os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """ProcessFailed if one of them ended by itself, which none should."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                raise ProcessFailed(f"{name} ended by itself, with exit code {code}")

    def stop(self) -> None:
        """Ends all of them: asked first, killed if they stay."""
        groups = [process.pid for process in self._running.values()]
        for group in groups:
            _signal(group, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while any(map(_lives, groups)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for group in filter(_lives, groups):
            _signal(group, signal.SIGKILL)
        subreaper.kill_new_children(self._others)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def log(self, name: str) -> str:
        """What it has said by now."""
        return (self._logs / f"{name}.log").read_text(errors="replace")

    def tails(self) -> str:
        """The end of each log."""
        logs = sorted(self._logs.glob("*.log"))
        return "\n".join(f"--- {log.stem}\n{_tail(log)}" for log in logs)


def _signal(group: int, number: int) -> bool:
    """Sends it to every process of the group; whether there is any. The shell may be gone, and its command not."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


def _lives(group: int) -> bool:
    """Whether any process of the group is left, when those that ended are reaped: all are our children then."""
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    return _signal(group, 0)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
