"""What `uv build` makes, installed away from the repository: all files are there, and the commands start."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.running import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def run(*command: str | Path, cwd: Path) -> str:
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=own, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def files(folder: Path) -> set[str]:
    found = (path for package in ("ticker", "wrappers") for path in (folder / package).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in found if "__pycache__" not in path.parts}


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_what_is_built_works_outside_the_repository(tmp_path, kind):
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv, "uv is not installed"
    run(uv, "build", "-q", "-o", tmp_path / "dist", cwd=ROOT)
    [built] = (tmp_path / "dist").glob(f"*.{kind}")
    run(uv, "venv", "-q", "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    run(
        uv,
        "pip",
        "install",
        "-q",
        "--python",
        programs / "python",
        f"rq-ticker[binary,web] @ {built.as_uri()}",
        cwd=tmp_path,
    )
    [installed] = run(
        programs / "python", "-c", "import ticker, wrappers; print(ticker.__file__)", cwd=tmp_path
    ).split()
    assert files(Path(installed).parent.parent) == files(ROOT) and tmp_path in Path(installed).parents
    for command in ([], ["demo"], ["run"], ["worker"], ["web"]):
        assert run(programs / "ticker", *command, "--help", cwd=tmp_path).startswith("Usage: ticker")
    assert run(programs / "ticker", "db", "sql", cwd=tmp_path).startswith('CREATE SCHEMA IF NOT EXISTS "ticker";')
