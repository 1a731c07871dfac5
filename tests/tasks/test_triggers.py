"""Each rule of owners, on a real database: whom a task belongs to, and that tasks follow whatever happens to its row."""

import io
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.orm import Session

import ticker
from tests.elastic import soonest_due
from tests.factories import engine_on
from tests.followed import ACTIVE, ADD, Base, Channel, add, leftovers, put, states
from tests.running import until
from tests.sentences import sentence
from ticker import migrations, owners
from ticker.db.connections import connect
from ticker.errors import BadInput, UnknownOwner
from ticker.owners import NOBODY, Owner, identify
from ticker.tasks import owner_triggers as registered_triggers

pytestmark = pytest.mark.slow

UID = UUID("6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60")


def model(table, *columns, base=Base, **options):
    """A mapped class, in a line; with `options` of the mapper."""
    return type(table, (base,), {"__table__": sa.Table(table, Base.metadata, *columns), "__mapper_args__": options})


def key(name, *type_):
    return sa.Column(name, *type_, primary_key=True)


Imap = model("imap", key("channel_id", sa.ForeignKey(Channel.id)), base=Channel, polymorphic_identity="imap")
Pop = type("Pop", (Channel,), {"__mapper_args__": {"polymorphic_identity": "pop"}})
Plain = model("plain", key("id", sa.Integer))
Concrete = model("concrete", key("id", sa.Integer), base=Plain, concrete=True)
Seat = model("seats", key("room", sa.Integer), key("name", sa.Text))
Device = model("devices", key("id", sa.Uuid))
Hexed = model("hexed", key("id", sa.Uuid(as_uuid=False)))
Dated = model("dated", key("id", sa.DateTime(timezone=True)))
ODD = sa.Table(
    "Odd \"% Table's :name",
    sa.MetaData(),
    key('The "Key" %s', sa.Text(collation="C")),
    sa.Column("Is On", sa.Text),
    sa.Column("found", sa.Boolean, server_default="true"),  # a variable of PL/pgSQL, too
    schema="My Schema",
)


@pytest.fixture
def session(database_url):
    engine = engine_on(database_url)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session


# ------------------------------------------------------------------------------------------------- who owns a task


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        (None, NOBODY),
        (NOBODY, NOBODY),
        (Owner("mail_channels", "5"), Owner("mail_channels", "5")),
        (("mail_channels", "5"), Owner("mail_channels", "5")),
        (["crm.mail_channels", "ä:5 %s"], Owner("crm.mail_channels", "ä:5 %s")),
        ("mail_channels:5", Owner("mail_channels", "5")),
        ("urls:https://example.org/", Owner("urls", "https://example.org/")),
        ("x" * 200 + ":" + "y" * 200, Owner("x" * 200, "y" * 200)),
    ],
)
def test_an_owner_is_named_by_texts(given, owner):
    assert identify(given) == owner


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mail_channels", sentence("errors.names_no_owner", field="owner", value="'mail_channels'")),
        ("", sentence("errors.names_no_owner", field="owner", value="''")),
        (":", sentence("errors.is_empty")),
        (":5", sentence("errors.has_too_few_characters", field="owner_type", value="''", number=0, least=1, most=200)),
        (
            "mail_channels:",
            sentence("errors.has_too_few_characters", field="owner_id", value="''", number=0, least=1, most=200),
        ),
        (("", ""), sentence("errors.is_empty_none_stands_for_no_owner")),
        (("mail_channels", 5), sentence("errors.no_text_but", field="owner_id", value=5, type="int")),
        (("a", "b", "c"), sentence("errors.names_none")),
        (("mail_channels", "y" * 201), sentence("errors.has_too_many_characters", number=201, least=1, most=200)),
        (("mail_channels", "5\0"), sentence("errors.control_character")),
        (
            ("mail\nchannels", "5"),
            sentence("errors.field_has_a_control_character", field="owner_type", value="'mail\\nchannels'"),
        ),
        (("mail_channels", "\x85"), sentence("errors.control_character")),
        (("mail_channels", "\ud800"), sentence("errors.control_character")),
        (5, sentence("errors.names_none")),
        (Channel, sentence("errors.names_none")),
        (Channel(id=5), sentence("errors.no_key_yet", field="owner", value="'Channel'")),
    ],
)
def test_what_names_no_owner_is_refused_in_one_sentence(given, words):
    with pytest.raises(BadInput) as caught:
        identify(given)
    assert words.within(caught.value)


@pytest.mark.parametrize(
    ("owner", "type_", "text"),
    [
        (Channel(id=-5), "mail_channels", "id"),
        (Imap(id=6), "mail_channels", "id"),
        (Pop(id=7), "mail_channels", "id"),
        (Concrete(id=8), "concrete", "id"),
        (Device(id=UID), "devices", "id"),
        (Hexed(id=UID.hex.upper()), "hexed", "id"),
        (Seat(room=1, name="a"), "seats", "json_build_array(room, name)"),
        (Seat(room=-2, name='ä"\\/\n\x01€ %s'), "seats", "json_build_array(room, name)"),
    ],
)
def test_a_mapped_object_is_named_as_postgresql_prints_its_key(session, owner, type_, text):
    session.add(owner)
    named = identify(owner)
    assert named == Owner(type_, session.scalar(sa.text(f"SELECT {text}::text FROM {type_}")))
    session.commit()
    session.close()
    assert identify(owner) == named  # detached, too


def test_an_object_that_goes_is_no_owner_and_an_object_that_stays_is(session):
    channel = Channel(id=1)
    session.add(channel)
    session.commit()
    session.delete(channel)
    for step in (lambda: None, session.flush, session.commit):
        step()
        with pytest.raises(
            BadInput, check=sentence("errors.object_is_deleted", field="owner", value="'Channel'").within
        ):
            identify(channel)
    again = Channel(id=2)
    session.add(again)
    session.commit()
    session.delete(again)
    session.rollback()
    assert identify(again).id == "2"


def test_an_object_with_an_odd_key_is_refused(session):
    session.add(dated := Dated(id=datetime(2026, 1, 1, tzinfo=UTC)))
    with pytest.raises(BadInput, check=sentence("errors.odd_key").within):
        identify(dated)


# ------------------------------------------------------------------------------------------------ tasks follow rows


@pytest.mark.parametrize(
    "delete",
    [
        lambda session: session.delete(session.get_one(Channel, 2)),
        lambda session: session.execute(sa.delete(Channel).where(Channel.id == 2)),
        lambda session: session.execute(sa.text("DELETE FROM mail_channels WHERE id = 2")),
        lambda session: session.execute(sa.text("MERGE INTO mail_channels USING (SELECT 2) s(n) ON id = n WHEN MATCHED THEN DELETE")),
    ],
    ids=["orm", "bulk", "sql", "merge"],
)  # fmt: skip
@pytest.mark.smoke
def test_tasks_go_with_their_owner_however_it_is_deleted_and_stay_if_that_is_undone(channels, session, db, delete):
    delete(session)
    session.rollback()
    assert len(states(db)) == 3
    delete(session)
    session.commit()
    assert states(db) == {"1": True, "3": True}
    assert states(db, "phones") == {"2": True}


def test_an_emptied_table_takes_the_tasks_of_its_owners_and_no_others(channels, db):
    db.execute("TRUNCATE mail_channels")
    assert (states(db), states(db, "phones")) == ({}, {"2": True})


@pytest.mark.parametrize("change", ["enabled = false", "enabled = NULL", "paused = true", "paused = NULL"])
def test_tasks_rest_while_the_condition_does_not_hold_and_are_due_when_it_does_again(channels, db, change):
    db.execute(f"UPDATE mail_channels SET {change} WHERE id = 2")
    assert states(db) == {"1": True, "2": False, "3": True}
    db.execute("UPDATE mail_channels SET enabled = true, paused = false")
    assert states(db) == {"1": True, "2": True, "3": True}
    due = "SELECT owner_id FROM ticker.tasks WHERE next_run <= clock_timestamp() AND resumed_at IS NOT NULL"
    assert db.execute(due).fetchall() == [("2",)]


def test_a_new_task_is_as_active_as_its_owner(channels, db):
    db.execute("INSERT INTO mail_channels (id, paused) VALUES (4, true), (5, false), (6, NULL)")
    assert [add(db, "mail_channels", id_) for id_ in "456"] == [[(False,)], [(True,)], [(False,)]]


def test_an_owner_that_becomes_active_again_revives_no_task_after_its_end(channels, db):
    task = ticker.register(db, "poll", every="1h", owner="mail_channels:1")
    db.execute("UPDATE mail_channels SET enabled = false WHERE id = 1")
    db.execute(
        "UPDATE ticker.tasks SET next_run = now() - interval '2 hours', ends_at = now() - interval '1 hour' WHERE id = %s",
        [task.id],
    )
    db.execute("UPDATE mail_channels SET enabled = true WHERE id = 1")
    assert (ticker.get(db, task).owner_active, ticker.get(db, task).next_run) == (True, None)


def test_a_task_whose_owner_becomes_active_again_is_due_as_one_that_is_resumed(channels, db):
    [(last_run,)] = db.execute(
        "UPDATE ticker.tasks SET last_run = clock_timestamp(), tolerance_ms = 5000, next_run = clock_timestamp() + interval '1 day'"
        " WHERE owner_type = 'mail_channels' AND owner_id = '1' RETURNING last_run"
    ).fetchall()
    for enabled in (False, True):
        db.execute("UPDATE mail_channels SET enabled = %s WHERE id = 1", [enabled])
    [task] = ticker.list_tasks(db, owner="mail_channels:1")
    assert task.next_run == soonest_due(last_run, task.every_ms, task.tolerance_ms)


def test_unrelated_updates_touch_no_task(channels, db):
    db.execute("UPDATE mail_channels SET paused = true WHERE id = 2")
    versions = "SELECT id, xmin, ctid FROM ticker.tasks ORDER BY id"
    before = db.execute(versions).fetchall()
    db.execute("UPDATE mail_channels SET note = 'x', enabled = enabled, id = id")
    db.execute("UPDATE mail_channels SET paused = NULL WHERE id = 2")  # as false as before
    assert db.execute(versions).fetchall() == before


def test_tasks_follow_a_changed_key_even_when_the_condition_changes_with_it(channels, db):
    db.execute("UPDATE mail_channels SET id = id + 100, enabled = id <> 2 WHERE id > 1")
    assert states(db) == {"1": True, "102": False, "103": True}
    db.execute("DELETE FROM mail_channels WHERE id = 102")
    assert states(db) == {"1": True, "103": True}
    assert states(db, "phones") == {"2": True}


@pytest.mark.parametrize("id_", ["4", "02", " 2", "2.0", "x", "9" * 30, "[2]", "true"])
def test_no_task_is_written_for_an_owner_that_is_not_there_by_this_very_id(channels, db, id_):
    assert add(db, "mail_channels", id_) == []
    with db.transaction():
        with pytest.raises(UnknownOwner):
            ticker.register(db, "mail.fetch", every="1m", owner=("mail_channels", id_))
        ticker.register(db, "mail.fetch", every="1m", owner=("mail_channels", "2"))  # the transaction goes on
    assert db.execute("UPDATE ticker.tasks SET owner_id = %s WHERE owner_type = 'mail_channels'", [id_]).rowcount == 0


@pytest.mark.parametrize(
    ("owner", "table", "columns"),
    [
        (Device(id=UID), "devices", "id"),
        (Seat(room=1, name='ä"\\\n\x01 %s'), "seats", ("room", "name")),
        (Seat(room=1, name="a"), Seat, None),
    ],
)
def test_keys_of_other_types_and_of_several_columns_are_followed_too(session, db, owner, table, columns):
    put(db, owners.triggers(table, key=columns, active_when="true"))
    session.add(owner)
    ticker.register(session, "mail.fetch", every="1m", owner=owner)
    session.commit()
    named = identify(owner)
    assert states(db, named.type) == {named.id: True}
    for missing in ("x", "[1]", '[1,"a"]', '["1", "a"]', '[1, "\\u0000"]', "{}", "5", str(UID).upper()):
        assert add(db, named.type, missing) == []
    session.delete(owner)
    session.commit()
    assert states(db, named.type) == {}


def test_names_with_quotes_capitals_spaces_and_percent_signs_are_followed(database_url, db):
    db.execute('CREATE SCHEMA "My Schema"')
    owners.follow(ODD, active_when=""" found AND "Is On" LIKE '100%' AND "Is On" <> E'\\'"Is On"' """)
    engine = engine_on(database_url)
    ODD.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(ODD.insert().values(["it's", "100 %", True]))
        connection.execute(ODD.insert().values(["It's", "50 %", True]))
        ticker.register(connection, "mail.fetch", every="1m", owner=(ODD.fullname, "it's"))
        ticker.register(connection, "mail.fetch", every="1m", owner=(ODD.fullname, "It's"))
    assert states(db, ODD.fullname) == {"it's": True, "It's": False}
    with engine.begin() as connection:
        connection.execute(ODD.update().values({'The "Key" %s': "b's", "Is On": "100"}).where(ODD.c[0] == "It's"))
        connection.execute(ODD.delete().where(ODD.c[0] == "it's"))
    assert states(db, ODD.fullname) == {"b's": True}
    ODD.metadata.drop_all(engine)
    assert leftovers(db) == []


def test_who_may_not_touch_tasks_may_delete_owners_and_cannot_borrow_the_rights(channels, db, database_url):
    db.execute("CREATE FUNCTION public.evil(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS"
               " $$ BEGIN DELETE FROM ticker.tasks; RETURN true; END $$;"
               " GRANT SELECT, UPDATE, DELETE ON mail_channels TO pg_monitor; GRANT USAGE, CREATE ON SCHEMA public TO pg_monitor;"
               " GRANT USAGE ON SCHEMA ticker TO pg_monitor")  # fmt: skip
    put(db, owners.triggers(Channel, active_when="note::text <> 'off'"))
    with connect(database_url) as app:
        app.execute("SET ROLE pg_monitor")  # any role that no superuser is; it has no rights of its own here
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("DELETE FROM ticker.tasks")
        app.execute("CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (public.evil(value))")
        app.execute("UPDATE mail_channels SET note = 'off' WHERE id = 1")
        app.execute("DELETE FROM mail_channels WHERE id = 2")
        assert states(db) == {"1": False, "3": True}
        app.execute("CREATE TABLE public.mine (id int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute(
                "CREATE TRIGGER t AFTER TRUNCATE ON public.mine EXECUTE FUNCTION ticker.owner_truncated_mail_channels()"
            )


# ---------------------------------------------------------------------------------------------------------- races

REGISTER = (ADD, ("mail_channels", "4"))
DISABLE = ("UPDATE public.mail_channels SET enabled = false WHERE id = 4", ())
DELETE = ("DELETE FROM public.mail_channels WHERE id = 4", ())
TRUNCATE = ("TRUNCATE public.mail_channels", ())


@pytest.mark.parametrize(
    ("condition", "first", "second", "left"),
    [
        (None, REGISTER, DELETE, {}),
        (None, DELETE, REGISTER, {}),
        (None, REGISTER, TRUNCATE, {}),
        (ACTIVE, REGISTER, DELETE, {}),
        (ACTIVE, DELETE, REGISTER, {}),
        (ACTIVE, REGISTER, DISABLE, {"4": False}),
        (ACTIVE, DISABLE, REGISTER, {"4": False}),
    ],
)
def test_the_second_of_two_that_race_waits_for_the_first_and_sees_it(
    db, database_url, channels, condition, first, second, left
):
    put(db, owners.triggers("mail_channels", active_when=condition))
    db.execute("DELETE FROM mail_channels; INSERT INTO mail_channels (id) VALUES (4)")
    with connect(database_url) as one, connect(database_url) as two, ThreadPoolExecutor() as pool:
        with one.transaction():
            one.execute(*first)
            waiting = pool.submit(two.execute, *second)
            blockers, pids = "SELECT pg_blocking_pids(%s)", ([one.info.backend_pid],)
            until(lambda: db.execute(blockers, [two.info.backend_pid]).fetchone() == pids, "the second waits")
        waiting.result()
    assert states(db) == left


# --------------------------------------------------------------------------------------- installed, changed, removed


@pytest.mark.parametrize(
    "text",
    [
        "R.enabled and not R.paused",
        "R.NOTE = 'it''s note' OR R.\"note\" IS DISTINCT FROM E'\\' note'",
        "lower(R.note)::text IN ('note') AND public.f(R.note) AND R.id > 1e5",
        "cast(R.note as date) > date '2026-01-01'",
        "CASE WHEN R.enabled THEN R.note COLLATE \"C\" ~ 'x' ELSE false END",
    ],
)
def test_a_condition_is_read_over_the_rows_of_the_trigger(text):
    condition, columns = text.replace("R.", ""), frozenset(column.name for column in Channel.__table__.columns)
    read = registered_triggers._over
    assert read(condition, columns, "R") == read(condition, None, "R") == f"(({text}) IS TRUE)"
    assert read('zone AND "Odd"', frozenset({"zone"}), "R") == '((R.zone AND "Odd") IS TRUE)'
    assert read('zone AND "Odd"', None, "R") == '((zone AND R."Odd") IS TRUE)'


def test_a_deparsed_condition_is_read_over_the_rows_of_the_trigger():
    condition = """(((o)."a b" = '(o).x') AND ((o).c.d = 1) IS TRUE)"""
    assert registered_triggers.deparsed(condition, "R") == """(((R)."a b" = '(o).x') AND ((R).c.d = 1) IS TRUE)"""


@pytest.mark.parametrize(
    "condition", ["true; DROP TABLE x", "a -- b", "a /* b", "$$a$$", "note = 'x", 'a "b', "", " ", 5]
)
def test_what_is_no_condition_is_refused(condition):
    with pytest.raises(BadInput, match="active_when"):
        owners.triggers("mail_channels", active_when=condition)


@pytest.mark.parametrize(
    ("field", "table", "options"),
    [
        ("table", "a$ticker$b", {}),
        ("table", "a$ticker$.b", {}),
        ("key", "a", {"key": ("id", "x$ticker$")}),
        ("table_schema", "a", {"table_schema": "$ticker$"}),
    ],
)
def test_a_name_that_would_end_the_body_of_a_function_is_refused(field, table, options):
    with pytest.raises(BadInput, match=rf"^{field}: '.*' has '\$ticker', which "):
        owners.triggers(table, **options)


def test_the_dollar_signs_of_a_name_end_no_body(db):
    name = "$$; $tick; ticker$ $"
    db.execute(f'CREATE TABLE "{name}" ("$$" int PRIMARY KEY); INSERT INTO "{name}" VALUES (1)')
    put(db, owners.triggers(name, key="$$"))
    assert (add(db, name, "1"), add(db, name, "2")) == ([(True,)], [])
    db.execute(f'DELETE FROM "{name}"')
    assert states(db, name) == {}


def test_a_condition_that_postgresql_cannot_read_is_refused_when_it_is_installed(channels, db):
    before = leftovers(db)
    for condition in ("enabledd", "id", "now() >"):
        with pytest.raises(psycopg.errors.ProgrammingError), db.transaction():
            put(db, owners.triggers("mail_channels", active_when=condition))
    assert leftovers(db) == before


def test_installing_again_changes_nothing_and_another_condition_takes_effect_at_once(channels, db):
    before = leftovers(db)
    put(db, owners.triggers(Channel, active_when=ACTIVE))
    assert leftovers(db) == before
    assert len(before) == 14
    put(db, owners.triggers("mail_channels", active_when="id <> 2"))
    assert states(db) == {"1": True, "2": False, "3": True}
    put(db, owners.triggers("mail_channels"))
    assert states(db) == {"1": True, "2": True, "3": True}


@pytest.mark.parametrize("before", ["SELECT 1", "DROP TABLE mail_channels CASCADE"])
def test_dropping_removes_all_of_it_even_when_the_table_is_gone_and_twice(channels, db, before):
    db.execute(before)
    for _ in range(2):
        put(db, owners.drop_triggers("mail_channels"))
    assert leftovers(db) == []
    assert add(db, "mail_channels", "99") == [(True,)]


def test_long_names_are_told_apart_in_63_bytes_and_the_table_may_be_elsewhere(db):
    names = ["ä" * 30 + "1", "ä" * 30 + "2"]
    db.execute("CREATE SCHEMA crm")
    for name in names:
        db.execute(f'CREATE TABLE crm."{name}" (key text PRIMARY KEY); INSERT INTO crm."{name}" VALUES (\'x\')')
        put(db, owners.triggers(name, key="key", table_schema="crm"))
    assert len({name for name, _ in leftovers(db)}) == len(names) * 14
    for name in names:
        assert (add(db, name, "x"), add(db, name, "y")) == ([(True,)], [])
        db.execute(f'DELETE FROM crm."{name}"')
        assert states(db, name) == {}


def test_an_alembic_revision_installs_and_removes_them_online_and_as_sql(channels, db, database_url):
    put(db, owners.drop_triggers("mail_channels"))
    with engine_on(database_url).begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        owners.install(op, "mail_channels", active_when="enabled AND note NOT LIKE ':x%'")
        installed = leftovers(connection.connection.driver_connection)
        owners.uninstall(op, "mail_channels")
        assert leftovers(connection.connection.driver_connection) == []
    out = io.StringIO()
    offline = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": out})
    owners.install(Operations(offline), "mail_channels", active_when="enabled AND note NOT LIKE ':x%'")
    db.execute(out.getvalue())
    assert leftovers(db) == installed


def test_they_follow_into_the_schema_of_the_settings(database_url, db, monkeypatch):
    monkeypatch.setenv("TICKER_SCHEMA", "east")
    migrations.upgrade(database_url, "east")
    table = sa.Table("phones", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    owners.follow(table)
    table.metadata.create_all(engine_on(database_url))
    db.execute("INSERT INTO phones VALUES (1)")
    ticker.register(db, "mail.fetch", every="1m", owner=("phones", "1"))
    db.execute("DELETE FROM phones")
    assert ticker.list_tasks(db) == []
    table.metadata.drop_all(engine_on(database_url))
    assert leftovers(db) == []


@pytest.mark.smoke
def test_create_all_installs_them_and_another_database_is_left_alone(database_url, db):
    table = sa.Table("phones", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    owners.follow(table, active_when="id % 2 = 0")
    table.metadata.create_all(sa.create_engine("sqlite://"))
    table.metadata.create_all(engine_on(database_url))
    db.execute("INSERT INTO phones VALUES (1), (2)")
    assert [add(db, "phones", id_) for id_ in "123"] == [[(False,)], [(True,)], []]
    table.metadata.drop_all(engine_on(database_url))
    assert leftovers(db) == []
