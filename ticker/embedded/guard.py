"""Runs the parent of each embedded server: a process that briefly outlives the one that uses the server."""

import ctypes
import inspect
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from ticker.embedded.programs import Account

IPC_RMID = 0


class Guard:
    """A server's parent, in its own process. It takes requests from a pipe.

    When the pipe closes, it stops the server and removes everything. Its process runs only the source of this class, so
    the class uses only the imports of GUARD_PROGRAM.
    """

    def __init__(self, folder: str, last_signal: int, user: dict[str, Any]) -> None:
        self.folder, self.last_signal, self.user = folder, last_signal, user
        self.server: Any = None
        self.life: Any = None  # a pipe that all processes of the server hold open; it closes with the last one

    def obey(self) -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the pipe alone decides
            signal.signal(number, lambda *_: None)  # not SIG_IGN: the server would inherit it
        try:
            for line in sys.stdin:
                os.write(1, json.dumps(self.answer(*json.loads(line))).encode() + b"\n")
        finally:
            self.finish()

    def answer(self, verb: str, *values: Any) -> dict[str, Any]:
        try:
            return {"value": getattr(self, verb)(*values)}
        except OSError as error:
            return {"error": str(error)}

    def start(self, *command: str) -> int:
        if self.life:
            self.life.close()
        reader, held = os.pipe()
        self.life = os.fdopen(reader)
        options = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr, "pass_fds": [held], **self.user}
        with os.fdopen(held, "w"):
            self.server = subprocess.Popen(command, **options)
        return int(self.server.pid)

    def send(self, number: int) -> None:
        self.server.send_signal(number)
        self.server.send_signal(signal.SIGCONT)  # a process that was stopped (SIGSTOP) would not receive it

    def code(self, patience: float = 0) -> int | None:
        """Returns the exit code once no process of the server is left. Only then may another server use its folder."""
        return int(self.server.wait()) if select.select([self.life], [], [], patience)[0] else None

    def remove_segment(self, number: int) -> None:
        """Removes shared memory with the rights of the server's account, because that account may have named any
        segment.
        """
        if self.user:
            os.seteuid(self.user["user"])
        try:
            ctypes.CDLL(None).shmctl(number, IPC_RMID, None)
        finally:
            if self.user:
                os.seteuid(0)

    def finish(self) -> None:
        for number in (self.last_signal, signal.SIGKILL) if self.server else ():
            self.send(number)
            if self.code(patience=10) is not None:
                break
        shutil.rmtree(self.folder, ignore_errors=True)


GUARD_PROGRAM = """from __future__ import annotations
import ctypes, json, os, select, shutil, signal, subprocess, sys
IPC_RMID = 0
{guard}
Guard(*json.loads(sys.argv[1])).obey()
"""


def start_guard(folder: Path, log: int, last_signal: int, account: Account) -> subprocess.Popen[bytes]:
    """Starts the guard in its own session, where it receives no Ctrl-C. PR_SET_PDEATHSIG would depend on a thread
    instead.
    """
    program = GUARD_PROGRAM.format(guard=inspect.getsource(Guard))
    user = {"user": account[0], "group": account[1], "extra_groups": []} if account else {}
    command = [sys.executable, "-I", "-S", "-c", program, json.dumps([str(folder), last_signal, user])]
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    environ = kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}  # without PGPORT or any of your secrets
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0,
        cwd=folder, env=environ, start_new_session=True,
    )  # fmt: skip
