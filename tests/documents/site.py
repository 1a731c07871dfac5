"""Builds the documentation site."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import PATIENCE, ROOT


def built(folder: Path) -> Path:
    """Returns the folder with the site; the build is strict, so that a broken link or anchor fails it."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: uv sync --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
