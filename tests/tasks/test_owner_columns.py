"""Owners' tables whose columns change: PostgreSQL follows a rename in the key and the condition, and refuses a drop."""

import psycopg
import pytest

import ticker
from tests.followed import ACTIVE, add, put, states
from ticker import owners
from ticker.errors import UnknownOwner

pytestmark = pytest.mark.slow


@pytest.mark.smoke
def test_the_application_goes_on_writing_after_its_columns_were_renamed(channels, db):
    db.execute(
        "UPDATE mail_channels SET note = 'x'; DELETE FROM mail_channels WHERE id = 3"
    )  # this session has their plans
    db.execute("ALTER TABLE mail_channels RENAME id TO channel_id; ALTER TABLE mail_channels RENAME enabled TO is_on")
    db.execute("INSERT INTO mail_channels (channel_id) VALUES (4), (5)")
    ticker.register(db, "fetch", every="1m", owner="mail_channels:4")
    with pytest.raises(UnknownOwner):
        ticker.register(db, "fetch", every="1m", owner="mail_channels:6")
    db.execute("UPDATE mail_channels SET is_on = false WHERE channel_id = 2")
    db.execute("UPDATE mail_channels SET channel_id = 14 WHERE channel_id = 4")
    assert states(db) == {"1": True, "2": False, "14": True}
    db.execute("DELETE FROM mail_channels WHERE channel_id = 14")
    assert states(db) == {"1": True, "2": False}


def test_a_renamed_column_of_a_key_of_several_is_followed(db):
    db.execute(
        "CREATE TABLE seats (room int, name text, PRIMARY KEY (room, name)); INSERT INTO seats VALUES (1, 'a'), (2, 'b')"
    )
    put(db, owners.triggers("seats", key=("room", "name")))
    db.execute("ALTER TABLE seats RENAME name TO label")
    assert (add(db, "seats", '[1, "a"]'), add(db, "seats", '[2, "a"]')) == ([(True,)], [])
    db.execute("UPDATE seats SET label = 'c' WHERE room = 1")
    assert states(db, "seats") == {'[1, "c"]': True}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("DROP COLUMN id", psycopg.errors.DependentObjectsStillExist),
        ("DROP COLUMN paused", psycopg.errors.DependentObjectsStillExist),
        ("ALTER COLUMN id TYPE int", psycopg.errors.FeatureNotSupported),
        ("ALTER COLUMN enabled TYPE text", psycopg.errors.FeatureNotSupported),
    ],
)
def test_a_change_that_the_triggers_could_not_follow_is_refused_and_names_a_function(channels, db, change, error):
    with pytest.raises(error, match=r"ticker\.owner_|trigger ticker_changed"):
        db.execute(f"ALTER TABLE mail_channels {change}")
    db.execute("ALTER TABLE mail_channels DROP note, ALTER kind TYPE varchar(9)")  # other columns are free
    assert states(db) == {"1": True, "2": True, "3": True}


def test_a_table_with_triggers_is_not_dropped_by_accident(channels, db):
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="owner_id_mail_channels"):
        db.execute("DROP TABLE mail_channels")


def test_another_type_of_the_key_needs_a_new_installation(channels, db):
    put(db, owners.drop_triggers("mail_channels"))
    db.execute("ALTER TABLE mail_channels ALTER id TYPE text")
    put(db, owners.triggers("mail_channels", active_when=ACTIVE))
    db.execute("DELETE FROM mail_channels WHERE id = '2'")
    assert states(db) == {"1": True, "3": True}


def test_an_error_of_the_condition_reaches_the_application(channels, db):
    put(db, owners.triggers("mail_channels", active_when="1 / (id - 7) < 9"))
    for statement in (
        "INSERT INTO public.mail_channels (id) VALUES (7)",
        "UPDATE public.mail_channels SET id = 7 WHERE id = 2",
    ):
        with pytest.raises(psycopg.errors.DivisionByZero), db.transaction():
            db.execute(statement)
            add(db, "mail_channels", "7")
    assert states(db) == {"1": True, "2": True, "3": True}
