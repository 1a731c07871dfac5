"""What a task module does to its process when it is imported: patches of the standard library, and logging."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from logging.config import dictConfig
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT
from ticker import logs

TASK = """
from wrappers import task

@task("modest")
def modest():
    print("function called")
"""
FAKE = """
PATCHED = set()

def {test}(name):
    return name in PATCHED
"""


@pytest.fixture
def start(
    environ: dict[str, str], db: Any, store: Any, queue: Any, tmp_path: Path
) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """Starts a worker whose task module begins with these lines, until its queue is empty."""

    def run(lines: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "patching.py").write_text(lines + TASK)
        return subprocess.run(
            [sys.executable, "-m", "wrappers", "--burst", "--tasks", "patching"], cwd=ROOT, capture_output=True, text=True,
            env=os.environ | environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, timeout=60,
        )  # fmt: skip

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "test", "name"),
    [
        ("gevent.monkey", "is_module_patched", "select"),
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "socket"),
    ],
)
def test_a_patched_standard_library_is_refused_at_the_start(
    start: Callable[..., Any], tmp_path: Path, module: str, test: str, name: str
) -> None:
    library, _, file = module.partition(".")
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").touch()
    (tmp_path / library / f"{file}.py").write_text(FAKE.format(test=test))
    done = start(f"import {module}\n{module}.PATCHED.add({name!r})\n")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith(f"error: --tasks (TICKER_TASKS): {library} has patched")
    assert start(f"import {module}\n").returncode == 0


@pytest.mark.slow
def test_gevent_itself_is_refused(start: Callable[..., Any]) -> None:
    pytest.importorskip("gevent")
    done = start("from gevent import monkey\nmonkey.patch_all()\n")
    assert done.returncode == 78
    assert "error: --tasks (TICKER_TASKS): gevent has patched" in done.stderr


def test_dict_config_leaves_our_loggers_enabled() -> None:
    logs.keep_enabled()
    other = logging.getLogger("of.another.library")
    dictConfig({"version": 1})
    ours = [logging.getLogger(name) for name in logs.OURS]
    assert other.disabled
    assert all(logger.isEnabledFor(logging.ERROR) for logger in ours)
    other.disabled = False


@pytest.mark.slow
def test_a_task_module_that_configures_logging_does_not_silence_the_worker(start: Callable[..., Any]) -> None:
    done = start("from logging.config import dictConfig\ndictConfig({'version': 1})\n")
    assert "INFO rq.worker" in done.stdout
