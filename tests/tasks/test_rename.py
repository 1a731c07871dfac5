"""A followed table that is renamed or moved: `ticker db upgrade --check` says so, and `ticker owners --rename` brings everything along."""

from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.followed import ACTIVE, add, put, states
from tests.sentences import sentence
from ticker import Wanted, owners
from ticker.db.connections import connect
from ticker.tasks import owner_rename

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

RENAME = ("owners", "--rename", "mail_channels", "mailboxes")


def renamed(table="public.mailboxes", new="mailboxes"):
    return sentence(
        "doctor.renamed", type="mail_channels", table=table, remedy=f"ticker owners --rename mail_channels {new}"
    )


@pytest.fixture
def mailboxes(channels, db):
    """The table of owners 1 to 3, renamed, with a cursor and a default task."""
    ticker.defaults(db, "mail_channels", [Wanted(function="clean", every="1h")])
    db.execute("UPDATE ticker.tasks SET cursor = '7' WHERE owner_type = 'mail_channels'")
    db.execute('ALTER TABLE mail_channels RENAME TO mailboxes; ALTER TABLE mailboxes RENAME id TO "box Id"')


def test_the_application_goes_on_after_a_rename_and_check_names_it(mailboxes, db):
    db.execute('INSERT INTO mailboxes ("box Id") VALUES (4); DELETE FROM mailboxes WHERE "box Id" = 2')
    db.execute('UPDATE mailboxes SET enabled = false WHERE "box Id" = 3')
    assert states(db) == {"1": True, "3": False, "4": True}
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [renamed()]
    assert renamed() in [note["sentence"] for note in answer("doctor", code=1)["notes"]]


def test_tasks_cursors_default_tasks_pauses_and_triggers_come_along(mailboxes, db):
    ticker.pause_all(db, owner_type="mail_channels", by="ann")
    assert answer(*RENAME) == {"moved": 3}
    assert (states(db), states(db, "mailboxes")) == ({}, {"1": True, "2": True, "3": True})
    assert db.execute("SELECT DISTINCT cursor FROM ticker.tasks WHERE owner_type = 'mailboxes'").fetchall() == [(7,)]
    assert db.execute("SELECT mark FROM ticker.pauses").fetchall() == [("owner_type mailboxes",)]
    db.execute('INSERT INTO mailboxes ("box Id") VALUES (4); DELETE FROM mailboxes WHERE "box Id" = 2')
    db.execute('UPDATE mailboxes SET paused = true WHERE "box Id" = 3')
    assert states(db, "mailboxes") == {"1": True, "3": False, "4": True}
    assert answer("db", "upgrade", "--check")["problems"] == []
    assert [
        name for name, _ in db.execute("SELECT proname, 1 FROM pg_proc WHERE proname LIKE 'owner%mail\\_channels'")
    ] == []
    assert answer(*RENAME) == {"moved": 0}


def test_a_table_of_another_schema_is_followed_there(channels, db):
    db.execute(
        "CREATE SCHEMA crm; ALTER TABLE mail_channels SET SCHEMA crm; INSERT INTO crm.mail_channels (id) VALUES (4)"
    )
    assert add(db, "mail_channels", "4") == [(True,)]
    assert answer("db", "upgrade", "--check")["problems"] == []  # an application may still name it without its schema
    assert answer("owners", "--rename", "mail_channels", "crm.mail_channels") == {"moved": 4}
    db.execute("DELETE FROM crm.mail_channels WHERE id > 1")
    assert states(db, "crm.mail_channels") == {"1": True}
    db.execute("ALTER TABLE crm.mail_channels SET SCHEMA public")
    moved = sentence("doctor.renamed", type="crm.mail_channels", table="public.mail_channels",
                     remedy="ticker owners --rename crm.mail_channels mail_channels")  # fmt: skip
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [moved]


def test_a_table_that_was_followed_under_its_new_name_gets_the_tasks_of_the_old(channels, db):
    put(db, owners.drop_triggers("mail_channels"))
    db.execute("ALTER TABLE mail_channels RENAME TO mailboxes; DELETE FROM mailboxes WHERE id = 3")
    put(db, owners.triggers("mailboxes", active_when=ACTIVE))
    remedy = "ticker owners --rename mail_channels NEW"
    external = sentence("doctor.external", type="mail_channels", remedy=remedy)
    assert external in [note["sentence"] for note in answer("doctor", code=1)["notes"]]
    db.execute("INSERT INTO ticker.templates VALUES ('mail_channels', 'clean', '{}')")
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [
        sentence("doctor.defaults_of_no_table", type="mail_channels", remedy=remedy)
    ]
    assert answer(*RENAME) == {"moved": 2}
    assert (states(db), states(db, "mailboxes")) == ({"3": True}, {"1": True, "2": True})


def test_a_task_that_was_registered_under_the_new_name_gives_way_and_nothing_runs_earlier(mailboxes, db):
    put(db, owners.triggers("mailboxes", key="box Id", active_when=ACTIVE))
    db.execute("UPDATE ticker.tasks SET next_run = '2026-01-01Z' WHERE owner_type = 'mail_channels'")
    new = ticker.register(db, "fetch", every="1m", owner="mailboxes:1")
    db.execute(
        "UPDATE ticker.tasks SET last_run = clock_timestamp(), next_run = clock_timestamp() + interval '1 min' WHERE id = %s",
        [new.id],
    )
    before = ticker.get(db, new)
    assert answer(*RENAME) == {"moved": 3}
    [task] = ticker.list_tasks(db, owner="mailboxes:1")
    assert (task.last_run, task.next_run, task.cursor) == (before.last_run, before.next_run, 7)


def test_an_interrupted_rename_loses_no_owner_and_is_repeated(mailboxes, db, database_url, monkeypatch):
    monkeypatch.setattr(owner_rename, "TASKS_AT_A_TIME", 1)

    class Killed(Exception): ...

    @contextmanager
    def connecting():
        if next(lives, None) is None:
            raise Killed
        with closing(connect(database_url)) as connection, connection.transaction():
            yield connection

    for times in range(6):
        lives = iter(range(times))
        with suppress(Killed):
            list(owner_rename.rename(connecting, "ticker", "mail_channels", "mailboxes", "me"))
        if times == 3:
            db.execute('DELETE FROM mailboxes WHERE "box Id" = 2')
    assert (states(db), states(db, "mailboxes")) == ({}, {"1": True, "3": True})


def test_what_is_no_name_of_the_table_is_refused_and_nothing_is_written(channels, db):
    before = states(db)
    said = refused(*RENAME)
    assert sentence(
        "errors.not_the_table", new="'mailboxes'", old="mail_channels", table="public.mail_channels"
    ).within(said)
    assert sentence("errors.neither_followed", new="'b'", old="a").within(refused("owners", "--rename", "a", "b"))
    assert sentence("errors.renamed_to_itself", new="'mail_channels'").within(
        refused("owners", "--rename", "mail_channels", "mail_channels")
    )
    assert sentence("cli.rename_alone").within(refused(*RENAME, "--orphans"))
    assert states(db) == before
    with pytest.raises(psycopg.errors.UndefinedTable):
        db.execute("SELECT FROM ticker.owner_rows_mailboxes")


@pytest.mark.parametrize("is_followed", [True, False])
def test_the_tasks_of_two_living_tables_are_never_mixed(channels, db, is_followed):
    db.execute("CREATE TABLE phones_2 (id int PRIMARY KEY); INSERT INTO phones_2 VALUES (1)")
    if is_followed:
        put(db, owners.triggers("phones_2"))
    add(db, "phones_2", "1")
    said = sentence("errors.types_of_two_tables", old="'phones_2'", new="mail_channels", other="public.mail_channels",
                    table="public.phones_2" if is_followed else "phones_2")  # fmt: skip
    assert said.within(refused("owners", "--rename", "phones_2", "mail_channels"))
    assert (states(db), states(db, "phones_2")) == ({"1": True, "2": True, "3": True}, {"1": True})


def test_a_condition_comes_along_to_the_letter(db):
    db.execute(
        "CREATE TYPE public.address AS (city text); CREATE TABLE mail_channels (id int PRIMARY KEY, a public.address, s text);"
        " INSERT INTO mail_channels VALUES (1, ROW('x'), '(o).x'), (2, ROW('y'), '(o).x')"
    )
    put(db, owners.triggers("mail_channels", active_when="(a).city = 'x' AND s = '(o).x'"))
    assert [add(db, "mail_channels", id_) for id_ in "12"] == [[(True,)], [(False,)]]
    db.execute("ALTER TABLE mail_channels RENAME TO mailboxes")
    assert answer(*RENAME) == {"moved": 2}
    db.execute("UPDATE mailboxes SET a = ROW('x')")
    assert states(db, "mailboxes") == {"1": True, "2": True}
