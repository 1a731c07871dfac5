"""One task through each driver, by real processes: registered for its owner, pushed, run, explained, and gone with the owner."""

import subprocess
import sys
from typing import Any

import pytest

import ticker
from tests.drivers.doors import DOORS
from tests.running import PATIENCE, ROOT
from ticker import owners

SMOKE = ("psycopg2", "Session, psycopg2", "Django, psycopg2", "asyncpg", "AsyncSession, asyncpg")


def run(*words: str) -> None:
    subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.smoke] if name in SMOKE else []) for name in DOORS]
)
def test_a_task_goes_its_whole_way(name: str, traced: Any, db: Any, database_url: str) -> None:
    door = DOORS[name](database_url)
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY, enabled bool NOT NULL DEFAULT true)")
    db.execute("\n".join(owners.triggers("mail_channels", active_when="enabled")))
    db.execute("INSERT INTO mail_channels VALUES (1)")
    door("defaults", "mail_channels", [ticker.Wanted(function="plain", name="other", every="1h")], existing=True)
    task = door("register", "plain", owner="mail_channels:1", every="1m", kwargs={"a": 1})
    run("ticker", "tick")
    run("wrappers", "--tasks", "tests.sample_tasks", "--burst", "polling")
    assert [run.outcome for run in door("list_runs", task=task)] == ["succeeded"]
    assert [line.what for line in door("why", task).lines if line.run] == ["succeeded"]
    assert len(door("journal", owner="mail_channels:1", outcome="succeeded")) == 2
    db.execute("DELETE FROM mail_channels")
    assert door("list_tasks") == []
