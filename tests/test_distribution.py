"""The packages of a release, installed away from the repository: all files are there, and the commands start."""

import os
import shutil
import subprocess
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.documents.recipes import write
from tests.running import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


TESTS = {
    "foreign/ticker.py": "PRICE = 5\n",
    "foreign/test_price.py": "import ticker\n\ndef test_price():\n    assert ticker.PRICE == 5\n",
    "own/test_kit.py": "def test_kit(ticker_kit):\n    assert ticker_kit.run_due(until=0) == []\n",
}


def run(*command: str | Path, cwd: Path) -> str:
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=own, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout


def files(folder: Path) -> set[str]:
    found = (path for package in ("ticker", "wrappers") for path in (folder / package).rglob("*") if path.is_file())
    plugin = folder / "rq_ticker_pytest.py"
    return {
        str(path.relative_to(folder)) for path in (*found, plugin) if "__pycache__" not in path.parts and path.is_file()
    }


@pytest.fixture(scope="module")
def uv() -> str:
    uv = os.environ.get("UV") or shutil.which("uv")
    assert uv, "uv is not installed"
    return uv


@pytest.fixture(scope="module")
def packages(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that `.ci/release` built, or a new one: a source package, and the wheel that is built from it."""
    if built := os.environ.get("TICKER_TEST_DIST"):
        return Path(built)
    folder = tmp_path_factory.mktemp("dist")
    run(uv, "build", "-q", "--sdist", "-o", folder, cwd=ROOT)
    [source] = folder.glob("*.tar.gz")
    run(uv, "build", "-q", "--wheel", "-o", folder, source, cwd=folder)
    return folder


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_what_is_built_works_outside_the_repository(tmp_path, uv, packages, kind):
    [built] = packages.glob(f"*.{kind}")
    run(uv, "venv", "-q", "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    package = f"rq-ticker[binary,embedded,web] @ {built.as_uri()}"
    run(uv, "pip", "install", "-q", "--python", programs / "python", package, "pytest", cwd=tmp_path)
    code = "import ticker, wrappers; print(ticker.__file__)"
    [installed] = run(programs / "python", "-c", code, cwd=tmp_path).split()
    assert files(Path(installed).parent.parent) == files(ROOT) and tmp_path in Path(installed).parents
    for command in ([], ["demo"], ["run"], ["worker"], ["web"]):
        assert run(programs / "ticker", *command, "--help", cwd=tmp_path).startswith("Usage: ticker")
    assert run(programs / "ticker", "db", "upgrade", "--sql", cwd=tmp_path).startswith(
        'CREATE SCHEMA IF NOT EXISTS "ticker";'
    )
    write(tmp_path, **TESTS)
    for project in ("foreign", "own"):
        assert "1 passed" in run(programs / "python", "-m", "pytest", "-q", cwd=tmp_path / project)


def test_the_metadata_can_be_uploaded_and_the_changelog_names_the_version(uv, packages):
    run(uv, "tool", "run", "--quiet", "twine", "check", "--strict", *packages.glob("rq_ticker-*"), cwd=packages)
    [wheel] = packages.glob("*.whl")
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(name).decode("utf-8"))
    assert metadata["Name"] == "rq-ticker" and metadata["License-Expression"]
    assert f"\n## [{metadata['Version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
