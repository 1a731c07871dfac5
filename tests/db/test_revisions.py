"""A frozen revision never changes, and a database of one becomes by an upgrade what an empty one becomes."""

import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

import ticker
from tests import next_release
from tests.cli.answers import answer
from tests.db.freeze import FOLDER, digest, dump
from tests.db.look import TABLES, behaviour, look
from tests.harness import command
from tests.running import Ticking, until, working
from tests.sentences import sentence
from ticker import migrations
from ticker.cli import main
from ticker.db import checks
from ticker.db.connections import connect
from ticker.errors import ConfigurationError, RowLocked
from ticker.migrations import plan

NOTE = "ALTER TABLE tasks ADD COLUMN note text DEFAULT '' NOT NULL;"
FILES = sorted(checks.VERSIONS.glob("0*.py"))
LAST, NEXT = FILES[-1].stem[:4], f"{len(FILES) + 1:04}"
"""The numbers of the newest revision, and of the first one of a next release."""


@pytest.fixture
def versions(tmp_path, monkeypatch) -> Path:
    """A copy of the folder, which this process takes for its own."""
    shutil.copytree(checks.VERSIONS.parent, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(checks, "VERSIONS", tmp_path / "migrations" / "versions")
    return checks.VERSIONS


@pytest.fixture
def add_revisions(versions, monkeypatch) -> Callable[..., None]:
    """Freezes the revisions of this release. The function adds those of a next one to the copy."""
    monkeypatch.setattr(checks, "FROZEN", {file.stem[:4]: "" for file in FILES} | checks.FROZEN)
    return partial(next_release.add, versions)


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


def test_each_frozen_revision_has_a_dump_and_still_its_sql():
    assert {file.stem for file in FOLDER.glob("*.sql")} == checks.FROZEN.keys()
    folders = [file.stem for file in sorted(checks.VERSIONS.glob("0*.py")) if file.stem[:4] in checks.FROZEN]
    for folder in folders:
        dumped = (FOLDER / f"{folder[:4]}.sql").read_text(encoding="utf-8")
        assert dumped.startswith(digest(folder)), f"{folder} is frozen: add a revision"


@pytest.mark.slow
def test_a_database_of_each_frozen_revision_becomes_what_an_empty_one_becomes(new_database, db):
    """Online as `ticker db upgrade` does it, and with the SQL of a Django migration."""
    for file in FOLDER.glob("*.sql"):
        online, offline = new_database(), new_database()
        for url in (online, offline):
            restore(file.read_text(encoding="utf-8"), url)
        with connect(online) as dumped:
            assert checks.shape(dumped, "ticker") == checks.FROZEN[file.stem]
        migrations.upgrade(online)
        restore(migrations.script("ticker", file.stem), offline)
        with connect(online) as one, connect(offline) as other:
            check_equal(one, db)
            check_equal(other, db)


@pytest.mark.slow
def test_the_next_revision_upgrades_a_dump_of_the_one_before(new_database, add_revisions):
    """Online as `ticker db upgrade` does it, and with the SQL of a Django migration."""
    first = dump(new_database())
    assert f"INSERT INTO ticker.ticker_version VALUES ('{LAST}', '0001');" in first
    add_revisions()
    created, online, offline = new_database(), new_database(), new_database()
    migrations.upgrade(created)
    restore(first, online)
    assert migrations.problems(online) == [
        sentence(
            "errors.old_tables",
            schema="'ticker'",
            revision=LAST,
            needed=migrations.newest(),
            remedy="ticker db upgrade",
        )
    ]
    migrations.upgrade(online)
    restore(first, offline)
    restore(migrations.script("ticker", LAST), offline)
    with connect(created) as new, connect(online) as one, connect(offline) as other:
        check_equal(one, new)
        check_equal(other, new)
        assert one.execute("SELECT note FROM ticker.tasks").fetchall() == [("",), ("",)]
    second = dump(new_database(), first)
    assert f"VALUES ('{migrations.newest()}', '0001');" in second and second.count("INSERT INTO ticker.tasks") == 2


@pytest.mark.slow
def test_an_edit_of_a_frozen_revision_does_not_become_what_its_dump_becomes(new_database, add_revisions):
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
def test_an_edit_of_a_revision_that_is_not_frozen_makes_another_revision(new_database, add_revisions):
    add_revisions(note="CREATE DOMAIN ticker_new AS text;")
    url, before = new_database(), migrations.newest()
    migrations.upgrade(url)
    (checks.VERSIONS / f"{NEXT}_note" / "changes.sql").write_text(NOTE)
    with pytest.raises(ConfigurationError, check=sentence("errors.is_at_revision", revision=f"'{before}'").within):
        migrations.upgrade(url)


# ------------------------------------------------------------------------------------------------ while others work


POLL = """
from wrappers import task

@task("busy")
def busy(run):
    pass
"""


@pytest.mark.slow
def test_the_first_revision_is_upgraded_while_a_ticker_and_a_worker_go_on(new_database, environ, monkeypatch, versions):
    """To the newest one before its tables are used, then to those of a next release."""
    url = new_database()
    monkeypatch.setenv("DATABASE_URL", url)
    restore(min(FOLDER.glob("*.sql")).read_text(encoding="utf-8"), url)
    migrations.upgrade(url)
    command("db", "adopt", "--resume")
    with connect(url) as db, Ticking(), working(patch=POLL):
        tasks = [ticker.register(db, "busy", name=f"busy {number}", every="30s").id for number in range(5)]

        def run_all():
            """Makes all due, and waits for their runs."""
            due = "UPDATE ticker.tasks SET next_run = clock_timestamp(), last_run = NULL WHERE function = 'busy' RETURNING next_run"
            since = min(db.execute(due).fetchall())
            ended = "SELECT count(DISTINCT task_id) FROM ticker.runs WHERE outcome = 'succeeded' AND occurrence >= %s"
            until(lambda: db.execute(ended, since).fetchone() == (len(tasks),), "the runs")

        run_all()
        next_release.add(versions)
        upgraded = threading.Thread(target=migrations.upgrade, args=[url])
        upgraded.start()
        run_all()
        upgraded.join()
        run_all()
        assert checks.revision(db, "ticker").name == migrations.newest()
        assert {run.outcome for task in tasks for run in ticker.list_runs(db, task=task)} == {"succeeded"}


@pytest.mark.slow
def test_an_upgrade_gives_way_to_a_transaction_that_keeps_a_lock(new_database, add_revisions, monkeypatch):
    """Each attempt ends after a while, so that what has queued behind it is not blocked for as long as the lock."""
    monkeypatch.setattr(migrations, "LOCK_WAIT", 0.05)
    monkeypatch.setattr(migrations, "TRIES", 3)
    url = new_database()
    migrations.upgrade(url)
    add_revisions()
    refusal = sentence("errors.upgrade_waited", schema="ticker", tries=3, wait=0.05, remedy="ticker db upgrade")
    with connect(url) as reader:
        with reader.transaction():
            reader.execute("SELECT count(*) FROM ticker.tasks")
            with pytest.raises(RowLocked, check=refusal.__eq__):
                migrations.upgrade(url)
            assert checks.revision(reader, "ticker") == (LAST, "0001")
        assert migrations.upgrade(url) == migrations.newest()
        assert reader.execute("SELECT note FROM ticker.tasks").fetchall() == []


@pytest.mark.slow
def test_an_upgrade_names_the_session_that_holds_its_lock_and_does_not_wait_for_ever(database_url, monkeypatch, caplog):
    for name, value in {"LOCK_WAIT": 0.05, "TRIES": 2, "WAITS": 4}.items():
        monkeypatch.setattr(migrations, name, value)
    with connect(database_url) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [migrations.UPGRADE_LOCK])
        remedy = f"SELECT pg_terminate_backend({other.info.backend_pid})"
        gave_up = sentence("errors.upgrade_gave_up", tries=4, wait=0.05, remedy=remedy)
        with pytest.raises(RowLocked, check=gave_up.__eq__):
            migrations.upgrade(database_url)
    assert caplog.messages == [sentence("logs.upgrade_waits", tries=2, wait=0.05, remedy=remedy)]
    assert migrations.upgrade(database_url) == migrations.newest()


@pytest.mark.slow
def test_each_revision_is_committed_before_the_next_one(new_database, add_revisions):
    url = new_database()
    migrations.upgrade(url)
    add_revisions(note=NOTE, broken="ALTER TABLE nothing ADD COLUMN note text;")
    with pytest.raises(ConfigurationError, match="nothing"):
        migrations.upgrade(url)
    with connect(url) as db:
        assert checks.revision(db, "ticker").name.startswith(f"{NEXT}.")


@pytest.mark.slow
def test_an_index_that_was_left_half_built_is_built_again(new_database, add_revisions):
    url = new_database()
    migrations.upgrade(url)
    add_revisions()
    with connect(url) as db:
        db.execute("CREATE INDEX runs_note ON ticker.runs (id)")
        migrations.upgrade(url)
        [(index,)] = db.execute("SELECT pg_get_indexdef('ticker.runs_note'::regclass)").fetchall()
    assert index.endswith("(task_id, note)")


@pytest.mark.slow
def test_upgrades_that_wait_do_not_keep_an_index_from_being_built(new_database, add_revisions):
    url = new_database()
    migrations.upgrade(url)
    add_revisions()
    with ThreadPoolExecutor(3) as pool:
        assert {*pool.map(migrations.upgrade, [url] * 3)} == {migrations.newest()}
    assert migrations.problems(url) == []


# -------------------------------------------------------------------------------------------------------- the plan


STATEMENTS = (
    "ALTER TABLE tasks ADD COLUMN note text DEFAULT '' NOT NULL",
    "ALTER TABLE tasks ADD COLUMN note bigint",
    "ALTER TABLE tasks ADD COLUMN note ticker_prose DEFAULT '' NOT NULL",
    "ALTER TABLE tasks ADD COLUMN note timestamptz DEFAULT clock_timestamp()",
    "ALTER TABLE tasks ADD CONSTRAINT tasks_new CHECK (length(name) <= 2000) NOT VALID",
    "ALTER TABLE tasks VALIDATE CONSTRAINT tasks_owner",
    "ALTER TABLE tasks ALTER COLUMN subject SET DEFAULT 'x'",
    "ALTER TABLE tasks ALTER COLUMN push_error TYPE text",
    "ALTER TABLE tasks DROP COLUMN declared_in",
    "CREATE INDEX tasks_new ON tasks (queue)",
    "CREATE TRIGGER tasks_new BEFORE UPDATE OF name, kwargs ON tasks FOR EACH ROW EXECUTE FUNCTION note_change()",
    "DROP TRIGGER tasks_note_edit ON tasks",
    "UPDATE tasks SET subject = ''",
    "CREATE DOMAIN ticker_new AS text",
    "ALTER DOMAIN ticker_prose ADD CONSTRAINT new CHECK (length(VALUE) <= 10) NOT VALID",
    "CREATE OR REPLACE FUNCTION micros(at timestamptz) RETURNS text LANGUAGE sql STABLE RETURN 'a'",
)


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_plan_names_the_locks_that_postgresql_takes(statement, db):
    """A table that is written anew gets another file; the plan then expects a time that depends on its rows."""
    [*planned] = plan.locks(NEXT, statement, dict.fromkeys(TABLES, 1_000_000))
    with db.transaction(force_rollback=True):
        db.execute("SET LOCAL search_path TO ticker")
        [before] = db.execute(FILE).fetchall()
        db.execute(statement)
        [after] = db.execute(FILE).fetchall()
        taken = {(table, in_words(mode)) for table, mode in db.execute(TAKEN)}
    assert {(one.table, one.lock) for one in planned} == {
        (table, min((lock for other, lock in taken if other == table), key=plan.LOCKS.index)) for table, _ in taken
    }
    assert before == after or (planned[0].blocks, planned[0].seconds > 0) == ("reads and writes", True)


FILE = "SELECT pg_relation_filenode('ticker.tasks')"
TAKEN = """
SELECT relname, mode FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE pid = pg_backend_pid() AND relkind = 'r'
    AND relnamespace = 'ticker'::regnamespace AND mode <> 'AccessShareLock'"""


def in_words(mode):
    """AccessExclusiveLock: ACCESS EXCLUSIVE."""
    return re.sub(r"\B(?=[A-Z])", " ", mode.removesuffix("Lock")).upper()


@pytest.mark.slow
def test_the_plan_names_the_lock_of_an_index_that_is_built_while_others_write(new_database, add_revisions):
    url = new_database()
    migrations.upgrade(url)
    add_revisions(note_index="CREATE INDEX CONCURRENTLY runs_note ON {schema}.runs (task_id);")
    [planned] = plan.plan(url, "ticker")[2]
    with ThreadPoolExecutor(1) as pool, connect(url) as writer, connect(url) as other:
        with writer.transaction():
            writer.execute("LOCK TABLE ticker.runs IN ROW EXCLUSIVE MODE")
            upgrade = pool.submit(migrations.upgrade, url)
            mode = "SELECT mode FROM pg_locks WHERE relation = 'ticker.runs'::regclass AND mode LIKE 'ShareUpdate%' AND granted"
            [found] = until(lambda: upgrade.done() or other.execute(mode).fetchone(), "the index is being built")
            assert (planned.table, planned.lock, planned.blocks) == ("runs", in_words(found), "")
        upgrade.result(timeout=60)


@pytest.mark.slow
def test_a_plan_is_printed_and_changes_nothing(new_database, environ, add_revisions, monkeypatch):
    """Uses a new database, because the statistics of a shared one may still count rows of earlier tests."""
    monkeypatch.setenv("DATABASE_URL", url := new_database())
    migrations.upgrade(url)
    with connect(url) as db:
        check_the_plan_of_one_task(db, add_revisions)


def check_the_plan_of_one_task(db, add_revisions):
    db.execute("UPDATE ticker.ticker_version SET version_num = %s", [LAST])
    ticker.register(db, "poll", every="1m")
    db.execute("ANALYZE ticker.tasks")
    add_revisions()
    note, checked, index = checks.revisions()[-3:]
    before = look(db, "ticker")
    planned = answer("db", "upgrade", "--plan")
    assert (planned["revision"], planned["pending"]) == (LAST, [note, checked, index])
    assert [(one["revision"], one["lock"], one["table"], one["rows"]) for one in planned["locks"]] == [
        (note, "ACCESS EXCLUSIVE", "tasks", 1), (note, "ACCESS EXCLUSIVE", "runs", 0),
        (checked, "SHARE UPDATE EXCLUSIVE", "tasks", 1), (index, "SHARE UPDATE EXCLUSIVE", "runs", 0),
    ]  # fmt: skip
    lines = CliRunner().invoke(main, ["db", "upgrade", "--plan"]).output.splitlines()
    assert [re.split(" {2,}", line) for line in lines[2:4]] == [
        [note, "tasks", "1", "ACCESS EXCLUSIVE", "reads and writes", "0.1 s"],
        [note, "runs", "0", "ACCESS EXCLUSIVE", "reads and writes", "0.1 s"],
    ]
    assert look(db, "ticker") == before and checks.revision(db, "ticker") == (LAST, "0001")


@pytest.mark.slow
def test_a_plan_of_an_empty_database_locks_nothing(new_database, environ, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", new_database())
    assert answer("db", "upgrade", "--plan") == {"revision": "", "pending": checks.revisions(), "locks": []}
    assert "--check or --plan" in command("db", "upgrade", "--plan", "--sql", code=2)[1]


# ------------------------------------------------------------------------------------------------------- the policy


def broken_rules(sql):
    """What docs/reference/stability.md forbids in a revision: a lock that blocks others for as long as a table is long."""
    created = re.findall(r"CREATE TABLE (\w+)", sql)
    rows = {table: 10_000_000 for table in TABLES if table not in created}
    held = {one.table for one in plan.locks("", sql, rows) if one.blocks and (one.seconds or one.table == "?")}
    is_mixed = "CONCURRENTLY" in sql and not all("INDEX CONCURRENTLY" in one for one in migrations.statements(sql))
    removes = (
        re.search(r"\b(DROP (TABLE|COLUMN|DOMAIN)|RENAME)\b", sql) and "UPDATE ticker_version SET oldest" not in sql
    )
    return [*sorted(held), *["mixed"] * is_mixed, *["oldest"] * bool(removes)]


def test_each_later_revision_keeps_the_rules():
    for folder in sorted(file.stem for file in checks.VERSIONS.glob("0*.py"))[1:]:
        assert broken_rules(migrations.sql_of(folder)) == [], folder
    assert [broken_rules(sql) for sql in next_release.ADDED.values()] == [[], [], []]


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        ("ALTER TABLE runs ADD COLUMN note ticker_prose DEFAULT '' NOT NULL;", ["runs"]),
        ("CREATE INDEX runs_note ON runs (task_id);", ["runs"]),
        ("ALTER TABLE tasks ADD CONSTRAINT tasks_note CHECK (name <> 'x');", ["tasks"]),
        ("CREATE TABLE notes (id bigint); CREATE INDEX notes_id ON notes (id);", []),
        ("DO $$ BEGIN; END $$;", ["?"]),
        ("CREATE INDEX CONCURRENTLY a ON {schema}.runs (id); UPDATE tasks SET subject = '';", ["tasks", "mixed"]),
        ("ALTER TABLE tasks DROP COLUMN declared_in;", ["oldest"]),
        ("ALTER TABLE tasks DROP COLUMN declared_in; UPDATE ticker_version SET oldest = '0002';", []),
    ],
)
def test_a_revision_that_breaks_a_rule_is_found(sql, broken):
    assert broken_rules(sql) == broken
