"""What runs without Linux, as far as Linux can show it: `sys.platform` is another name, and what only Linux has is gone."""

import subprocess
import sys

import pytest

from tests.running import PATIENCE, ROOT
from tests.sentences import sentence

MAC = """
import asyncio, os, pkgutil, select, signal, sys, time
import alembic, click, django, freezegun, psycopg, redis, rq, sqlalchemy, starlette.testclient, uvicorn
for module, names in {
    os: ("memfd_create", "pidfd_open", "sched_getaffinity", "setresuid"),
    select: ("epoll",),
    signal: ("SIGRTMIN", "SIGRTMAX", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    time: ("CLOCK_BOOTTIME",),
}.items():
    for name in names:
        vars(module).pop(name, None)
sys.platform = "darwin"
"""
IMPORTS = """
import rq_ticker_pytest, ticker, wrappers
for package in (ticker, wrappers):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__") and not found.name.startswith(("ticker.django.", "ticker.migrations.")):
            __import__(found.name)
"""


def on_a_mac(code: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", MAC + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.slow
def test_no_module_needs_linux_to_be_imported() -> None:
    assert on_a_mac(IMPORTS).stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "sys.argv[1:] = ['--tasks', 'tests.sample_tasks']; from wrappers.__main__ import main; main()",
        "from wrappers.sandbox import supervisor; supervisor.fork_worker(print); from wrappers.__main__ import main; main()",
        "sys.argv = ['ticker', 'demo']; from ticker.cli import main; main()",
    ],
    ids=["worker", "supervised worker", "demo"],
)
def test_a_worker_requires_linux_in_one_sentence(start: str) -> None:
    done = on_a_mac(start)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == sentence("cli.error_requires_linux", system="darwin")
