"""What the README shows works as it stands there."""

import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import ticker
from tests.running import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")

MAIL = """
from contextlib import contextmanager
STORED = []
class Mailbox:
    def uids(self, after): return [uid for uid in (1, 2, 3) if uid > (after or 0)]
    def read(self, uid): return f"message {uid}"
@contextmanager
def open_mailbox(channel_id): yield Mailbox()
def store(message): STORED.append(message)
def feeds(): return ["https://example.org/feed"]
def fetch(feed): return 1
"""

USE = """
import os
from sqlalchemy.orm import Session
from myapp.channels import add_channel
from myapp.models import Base
from tests.factories import engine_on
engine = engine_on(os.environ["DATABASE_URL"])
Base.metadata.create_all(engine)
with Session(engine) as session, session.begin():
    add_channel(session, "mail.example.org", "support")
"""


@pytest.fixture
def application(tmp_path):
    """The README's example as files of a package `myapp`."""
    package = tmp_path / "myapp"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mail.py").write_text(MAIL)
    for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        name = re.match(r"# myapp/(\w+\.py)", block)
        assert name, block
        (package / name[1]).write_text(block)
    return tmp_path


def run(command, folder):
    environ = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
@pytest.mark.smoke
def test_what_the_example_declares_is_brought_into_step_and_what_it_registers_is_there(environ, db, application):
    sync = re.search(r"`ticker (sync --tasks [\w.,]+)`", README)
    assert sync
    run([sys.executable, "-m", "ticker", *sync[1].split()], application)
    begin = (
        "import os; from tests.factories import engine_on; from sqlalchemy.orm import Session; from myapp.trials import begin_trial\n"
        "with Session(engine_on(os.environ['DATABASE_URL'])) as session, session.begin():\n"
        "    begin_trial(session, '2199-01-31T00:00:00Z')"
    )
    run([sys.executable, "-c", begin], application)
    kinds = {task.name: str(task.kind) for task in ticker.list_tasks(db)}
    assert kinds == {
        "reports.daily": "cron", "reports.weekly": "cron", "billing.close": "calendar", "trial.ends": "once",
        "feeds.refresh": "interval",
    }  # fmt: skip


@pytest.mark.promise("S6")
@pytest.mark.smoke
def test_the_example_polls_a_mailbox_and_its_task_goes_with_the_channel(environ, db, application):
    run([sys.executable, "-c", USE], application)
    run([sys.executable, "-m", "ticker", "tick"], application)
    run([sys.executable, "-m", *procfile()["worker"].split(), "--burst"], application)
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.cursor, task.last_outcome) == ("mail_channels:1", 3, "succeeded")
    assert ticker.list_runs(db)[0].result == 3
    db.execute("DELETE FROM mail_channels")
    assert ticker.list_tasks(db) == []


def procfile():
    return dict(re.findall(r"^(ticker|worker): (.+)$", README, flags=re.MULTILINE))


def test_the_procfile_names_commands_that_exist_and_every_module_with_a_function():
    blocks = re.findall(r"```python\n# myapp/(\w+)\.py(.*?)```", README, flags=re.DOTALL)
    modules = ",".join(f"myapp.{name}" for name, text in blocks if "@task(" in text)
    assert procfile() == {"ticker": "ticker run", "worker": f"ticker worker --tasks {modules} polling"}


def test_the_sample_of_why_is_that_of_its_own_page():
    [sample] = re.findall(r"```\n\$ ticker why.*?```", README, flags=re.DOTALL)
    assert sample in (ROOT / "docs/why.md").read_text(encoding="utf-8")


def test_every_command_of_the_table_is_there():
    from ticker.cli import main

    table = README[README.index("## Commands") : README.index("## Settings")]
    named = {
        word
        for cell in re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
        for word in re.findall(r"`(?:ticker )?(?:db )?([a-z-]+)", cell)
    }
    commands = set(main.commands) | set(main.commands["db"].load().commands)
    assert commands - {"db"} <= named
    assert named <= commands | {"db"}


def test_every_setting_of_the_table_is_read_and_every_one_read_is_in_the_table():
    table = README[README.index("## Settings") : README.index("## Tests")]
    read = set(re.findall(r'"((?:DATABASE|REDIS|TICKER)_[A-Z_]+)"', (ROOT / "ticker/settings.py").read_text()))
    former = {"TICKER_TELL"}  # until 1.0
    assert set(re.findall(r"^\| `([A-Z_]+)`", table, flags=re.MULTILINE)) == read - former


def test_the_links_lead_somewhere():
    for document in [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), (document.name, target)


def test_help_is_there_without_any_setting(monkeypatch):
    from ticker.cli import main

    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0
