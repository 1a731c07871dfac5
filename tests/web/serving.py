"""`ticker web` as a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.running import PATIENCE, ROOT

COMMAND = [sys.executable, "-m", "ticker", "web"]
ADDRESS = re.compile(r"http://\S+")


@dataclass
class Served:
    """Its address; once it has ended, its exit code and all that it said."""

    address: str
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
    served = Served(found[0] if found else "", process)
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
