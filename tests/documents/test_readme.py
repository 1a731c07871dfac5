"""What the README shows works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ticker
from tests.running import PATIENCE, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROCFILE = dict(re.findall(r"^(ticker|worker): (.+)$", README, flags=re.MULTILINE))
COMPARISON = ROOT / "docs" / "concepts" / "comparison.md"


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A folder with the README's files."""
    for name, block in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", README, flags=re.DOTALL):
        (tmp_path / name).write_text(block, encoding="utf-8")
    return tmp_path


def run(folder: Path, *words: str) -> str:
    environ = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE
    ).stdout


@pytest.mark.slow
def test_the_quickstart_registers_once_and_runs(environ, db, application):
    for _ in range(2):
        run(application, "polls.py")
    run(application, "-m", "ticker", "tick")
    run(application, "-m", *PROCFILE["worker"].split(), "--burst")
    [task] = ticker.list_tasks(db)
    assert (task.every_ms, task.last_outcome) == (60_000, "succeeded")
    [record] = ticker.list_runs(db)
    assert record.id == 1
    assert "polling mail.example.org for up to 30 s" in run(application, "-m", "ticker", "runs", "--id", "1")


@pytest.mark.promise("S6")
def test_the_task_of_a_channel_runs_and_goes_with_the_channel(environ, db, application):
    run(application, "channels.py")
    run(application, "-m", "ticker", "tick")
    run(application, "-m", *PROCFILE["worker"].split(), "--burst")
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.last_outcome) == ("mail_channels:1", "succeeded")
    db.execute("UPDATE mail_channels SET enabled = false")
    assert not ticker.get(db, task).owner_active
    db.execute("DELETE FROM mail_channels")
    assert ticker.list_tasks(db) == []


def test_the_procfile_starts_a_ticker_and_a_worker_with_the_module_of_the_quickstart():
    assert PROCFILE == {"ticker": "ticker run", "worker": "ticker worker --tasks polls polling"}


def test_the_sample_of_why_is_that_of_its_own_page():
    [sample] = re.findall(r"```\n\$ ticker why.*?```", README, flags=re.DOTALL)
    assert sample in (ROOT / "docs/guides/why.md").read_text(encoding="utf-8")


def test_a_stranger_can_read_it_in_a_minute():
    assert len(README.splitlines()) <= 155


def test_its_comparison_is_a_part_of_the_whole_one():
    """A plain yes or no is the same there, and the names of the rows are."""
    whole, here = (rows(text) for text in (COMPARISON.read_text(encoding="utf-8"), README))
    for name, cells in here.items():
        assert len(cells) == len(whole[name]) == 6
        for cell, full in zip(cells, whole[name], strict=True):
            assert cell not in ("yes", "**yes**", "no") or re.match(r"\W*(\w+)", full)[1] == cell.strip("*"), (
                name,
                full,
            )


def rows(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if re.match(r"\| [A-Z]", line)]
    return {
        name.strip(): [cell.strip() for cell in cells]
        for name, *cells in (line.strip("|").split("|") for line in lines)
    }


def test_the_links_lead_somewhere():
    pages = [
        ROOT / "README.md",
        ROOT / "tests" / "README.md",
        *(ROOT / ".github").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_help_is_there_without_any_setting(monkeypatch):
    from ticker.cli import main

    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0
