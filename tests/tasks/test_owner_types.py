"""The first task of a type of owner that no trigger follows: a warning, or an error, that says what to do."""

import psycopg
import pytest

import ticker
from tests.followed import put, states
from tests.sentences import sentence
from ticker import aio, owners
from ticker.errors import BadInput
from ticker.tasks import owner_types

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]


@pytest.fixture(autouse=True)
def nothing_is_declared(monkeypatch):
    monkeypatch.setattr(owner_types, "_external", set())


def warnings(db, owner, name="fetch"):
    return ticker.register(db, "fetch", name=name, every="1m", owner=owner).warnings


def unknown(type_, near=""):
    return (
        sentence("warnings.unknown_owner_type", type=f"'{type_}'", near=near, external=f'owners.external("{type_}")'),
    )


def test_the_first_task_of_a_table_without_triggers_is_warned_about_with_the_statement_that_installs_them(db):
    db.execute("CREATE TABLE feeds (id int PRIMARY KEY); INSERT INTO feeds VALUES (1), (2)")
    warning = sentence("warnings.owner_without_trigger", type="'feeds'", remedy='owners.install(op, "feeds")')
    assert warnings(db, "feeds:1") == (warning,)
    assert warnings(db, "feeds:1") == warnings(db, "feeds:2") == ()  # once for each type
    put(db, owners.triggers("feeds"))
    db.execute("DELETE FROM feeds WHERE id = 1")
    assert states(db, "feeds") == {"2": True}


def test_a_misspelt_type_names_the_nearest_table_that_is_followed(channels, db):
    assert warnings(db, "mail_channel:1") == unknown("mail_channel", " (did you mean 'mail_channels'?)")
    assert warnings(db, "customers:7") == unknown("customers")


def test_followed_and_declared_types_and_tasks_without_an_owner_are_not_warned_about(channels, db):
    db.execute("DELETE FROM ticker.tasks")
    owners.external("crm", "sim")
    assert [warnings(db, owner) for owner in ("mail_channels:1", "crm:5", "sim:5", None)] == [(), (), (), ()]
    with pytest.raises(BadInput, match="owner_type"):
        owners.external("")


def test_all_tasks_of_a_list_are_registered_with_one_warning(db):
    given = [{"function": "fetch", "every": "1m", "name": name} for name in ("a", "b")]
    assert [task.warnings for task in ticker.reconcile(db, "crm:5", given)] == [unknown("crm"), ()]


def test_an_asynchronous_connection_gets_the_same_warning(database_url, channels):
    import asyncio

    async def first():
        async with await psycopg.AsyncConnection.connect(database_url) as db:
            return (await aio.register(db, "fetch", every="1m", owner="mail_channel:1")).warnings

    assert asyncio.run(first()) == unknown("mail_channel", " (did you mean 'mail_channels'?)")


@pytest.mark.parametrize("type_", ["mail_channel", "feeds"])
def test_strict_owners_make_it_an_error_and_nothing_is_written(channels, db, monkeypatch, type_):
    db.execute("CREATE TABLE feeds (id int PRIMARY KEY)")
    monkeypatch.setenv("TICKER_STRICT_OWNERS", "on")
    with pytest.raises(BadInput, match=f"owner: '{type_}' is "):
        warnings(db, f"{type_}:1")
    assert states(db, type_) == {}
    owners.external(type_)
    assert warnings(db, f"{type_}:1") == ()
    owner_types._external.clear()
    assert warnings(db, f"{type_}:2") == ()  # the application has declared it: the command line may go on
