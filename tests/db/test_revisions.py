"""A frozen revision never changes, and a database of one becomes by an upgrade what an empty one becomes."""

import shutil
from collections.abc import Callable

import psycopg
import pytest

import ticker
from tests.db.dump import FOLDER, dump
from tests.db.look import behaviour, look
from tests.sentences import sentence
from ticker import migrations
from ticker.db import checks
from ticker.db.connections import connect
from ticker.errors import ConfigurationError

NOTE = "ALTER TABLE tasks ADD COLUMN note ticker_prose DEFAULT '' NOT NULL;"


@pytest.fixture
def add_revision(tmp_path, monkeypatch) -> Callable[[], None]:
    """Freezes the first revision in a copy of the folder. The function adds an artificial next one."""
    shutil.copytree(checks.VERSIONS.parent, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(checks, "VERSIONS", tmp_path / "migrations" / "versions")
    monkeypatch.setattr(checks, "FROZEN", frozenset({"0001"}))

    def add() -> None:
        source = (checks.VERSIONS / "0001_tables.py").read_text()
        source = source.replace("0001_tables", "0002_note").replace("down_revision = None", 'down_revision = "0001"')
        (checks.VERSIONS / "0002_note.py").write_text(source)
        (checks.VERSIONS / "0002_note").mkdir()
        (checks.VERSIONS / "0002_note" / "note.sql").write_text(NOTE)

    return add


def restore(dumped: str, url: str) -> None:
    with connect(url) as connection:
        connection.execute(dumped)


def check_equal(upgraded: psycopg.Connection, created: psycopg.Connection) -> None:
    """The upgrade made the tables of a new database, and kept the rows."""
    assert look(upgraded, "ticker") == look(created, "ticker")
    assert behaviour(upgraded) == behaviour(created)
    assert {task.name: task.paused_by for task in ticker.list_tasks(upgraded)} == {"poll": None, "report": "anna"}
    runs = [(run.task_name, run.state) for run in ticker.list_runs(upgraded)]
    assert runs == [("report", "planned"), ("poll", "ended")]


def test_each_frozen_revision_has_a_dump():
    assert {file.stem for file in FOLDER.glob("*.sql")} == checks.FROZEN


@pytest.mark.slow
def test_a_database_of_each_frozen_revision_becomes_what_an_empty_one_becomes(new_database, db):
    for file in FOLDER.glob("*.sql"):
        url = new_database()
        restore(file.read_text(encoding="utf-8"), url)
        migrations.upgrade(url)
        with connect(url) as upgraded:
            check_equal(upgraded, db)


@pytest.mark.slow
def test_the_next_revision_upgrades_a_dump_of_the_one_before(new_database, add_revision):
    """Online as `ticker db upgrade` does it, and with the SQL of a Django migration."""
    first = dump(new_database())
    assert "INSERT INTO ticker.ticker_version VALUES ('0001');" in first
    add_revision()
    created, online, offline = new_database(), new_database(), new_database()
    migrations.upgrade(created)
    restore(first, online)
    assert migrations.problems(online) == [
        sentence(
            "errors.old_tables",
            schema="'ticker'",
            revision="0001",
            needed=migrations.newest(),
            remedy="ticker db upgrade",
        )
    ]
    migrations.upgrade(online)
    restore(first, offline)
    restore(migrations.script("ticker", "0001"), offline)
    with connect(created) as new, connect(online) as one, connect(offline) as other:
        check_equal(one, new)
        check_equal(other, new)
        assert one.execute("SELECT note FROM ticker.tasks").fetchall() == [("",), ("",)]
    second = dump(new_database(), first)
    assert f"VALUES ('{migrations.newest()}');" in second and second.count("INSERT INTO ticker.tasks") == 2


@pytest.mark.slow
def test_an_edit_of_a_frozen_revision_does_not_become_what_its_dump_becomes(new_database, add_revision):
    first = dump(new_database())
    tables = checks.VERSIONS / "0001_tables" / "2_tables.sql"
    tables.write_text(tables.read_text() + NOTE)
    edited, upgraded = new_database(), new_database()
    migrations.upgrade(edited)
    restore(first, upgraded)
    migrations.upgrade(upgraded)
    with connect(edited) as new, connect(upgraded) as old:
        assert look(new, "ticker") != look(old, "ticker")


@pytest.mark.slow
def test_an_edit_of_a_revision_that_is_not_frozen_makes_another_revision(new_database, add_revision):
    add_revision()
    url, before = new_database(), migrations.newest()
    migrations.upgrade(url)
    (checks.VERSIONS / "0002_note" / "note.sql").write_text(NOTE.replace("prose", "words"))
    with pytest.raises(ConfigurationError, check=sentence("errors.is_at_revision", revision=f"'{before}'").within):
        migrations.upgrade(url)
