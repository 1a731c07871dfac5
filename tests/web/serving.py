"""`ticker web` as a process of its own, and any application in a thread of this one."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from tests.running import PATIENCE, ROOT

COMMAND = [sys.executable, "-m", "ticker", "web"]
ADDRESS = re.compile(r"http://(?:ticker:(\S+)@)?(\S+)")


@dataclass
class Served:
    """Its address, and the token that it made, if any; once it has ended, its exit code and all that it said."""

    address: str
    token: str | None
    process: "subprocess.Popen[str]"
    said: str = ""

    @property
    def code(self) -> int | None:
        return self.process.returncode


@contextmanager
def serving(*words: str, **variables: str) -> Iterator[Served]:
    """On a port that was free, until the block ends; then it is sent SIGTERM."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *words], cwd=ROOT, env=os.environ | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    found = ADDRESS.search(first)
    served = Served(f"http://{found[2]}" if found else "", found[1] if found else None, process)
    try:
        assert found, first + process.stdout.read()
        yield served
    finally:
        process.terminate()
        served.said = first + process.communicate(timeout=PATIENCE)[0]


def refused(*words: str, **variables: str) -> tuple[int, str]:
    """The exit code and the sentence of one that does not even begin."""
    ended = subprocess.run(
        [*COMMAND, *words], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


@contextmanager
def in_thread(config: uvicorn.Config) -> Iterator[uvicorn.Server]:
    """A server of this process, which has started."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        yield server
    finally:
        server.should_exit = True
        thread.join()
