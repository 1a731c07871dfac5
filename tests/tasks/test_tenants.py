"""Owners in tables that exist once in each tenant's schema: `owners.per_schema`."""

import asyncio
import io

import psycopg
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

import ticker
from tests.cli.answers import answer
from tests.factories import engine_on
from tests.followed import add, leftovers, put
from tests.sentences import sentence
from ticker import Wanted, aio, owners
from ticker.errors import BadInput, UnknownOwner
from ticker.owners import Owner
from ticker.tasks.mapped import PER_SCHEMA

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ", "nothing_is_declared")]

A, B = TENANTS = ("tenant_a", "Tenant-B")


class Plain(DeclarativeBase):
    pass


class Channel(Plain):
    __tablename__ = "channels"
    id: Mapped[int] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(default=True)


class Tokens(DeclarativeBase):
    metadata = sa.MetaData(schema="tenant")


class Marked(Tokens):
    __tablename__ = "channels"
    id: Mapped[int] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(default=True)


@pytest.fixture
def nothing_is_declared():
    yield
    PER_SCHEMA.clear()


def mapped(url, tenant, key=None):
    return engine_on(url).execution_options(schema_translate_map={key: tenant})


def searched(url, tenant):
    """An engine whose connections find the table in the second schema of their search_path."""
    engine = engine_on(url)

    @sa.event.listens_for(engine, "connect")
    def set_path(connection, _):
        connection.execute(f'SET search_path = ticker, "{tenant}", public')
        connection.commit()

    return engine


WAYS = {
    "map": (Channel, mapped),
    "token": (Marked, lambda url, tenant: mapped(url, tenant, "tenant")),
    "search_path": (Channel, searched),
}


@pytest.fixture(params=WAYS)
def tenancy(request, database_url, db):
    """A declared class and each tenant's engine. Its schema has the table, without triggers."""
    model, engine_of = WAYS[request.param]
    owners.per_schema(model)
    for tenant in TENANTS:
        create_channels(db, tenant)
    return model, {tenant: engine_of(database_url, tenant) for tenant in TENANTS}


def create_channels(db, schema):
    db.execute(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".channels (id serial PRIMARY KEY, enabled boolean)')


@pytest.fixture
def followed(tenancy):
    model, engines = tenancy
    for engine in engines.values():
        with engine.begin() as connection:
            owners.install(operations(connection), model, active_when="enabled")
    return tenancy


def operations(connection):
    return Operations(MigrationContext.configure(connection))


def states(db):
    return {task.owner: task.owner_active for task in ticker.list_tasks(db)}


# ------------------------------------------------------------------------------------------------------ two tenants


def test_owners_of_two_tenants_with_the_same_key_are_two_and_what_happens_to_one_leaves_the_other_alone(followed, db):
    model, engines = followed
    for tenant, engine in engines.items():
        with Session(engine) as session, session.begin():
            session.add(channel := model(id=5, enabled=True))
            assert ticker.register(session, "fetch", every="1m", owner=channel).owner == f"{tenant}.channels:5"
            assert len(ticker.list_tasks(session, owner=channel)) == 1
    a, b = (f"{tenant}.channels:5" for tenant in TENANTS)
    with Session(engines[A]) as session, session.begin():
        session.get_one(model, 5).enabled = False
    assert states(db) == {a: False, b: True}
    with Session(engines[B]) as session, session.begin():
        session.delete(session.get_one(model, 5))
    assert states(db) == {a: False}
    with pytest.raises(UnknownOwner):
        ticker.register(db, "fetch", every="1m", owner=b)
    with engines[A].begin() as connection:
        connection.execute(sa.update(model).values(id=6))
    assert ticker.register(db, "fetch", every="1m", owner=f"{A}.channels:6").id  # a string says the same
    assert states(db) == {f"{A}.channels:6": False}
    db.execute(f'TRUNCATE "{A}".channels')
    assert states(db) == {}


def test_default_tasks_are_those_of_one_tenant(followed, db):
    model, wanted = followed[0], [Wanted(function="fetch", every="1m")]
    insert = "; ".join(f'INSERT INTO "{tenant}".channels (enabled) VALUES (true)' for tenant in TENANTS)
    db.execute(insert)
    with pytest.raises(BadInput, match="pass table_schema="):
        ticker.defaults(db, model, wanted)
    assert ticker.defaults(db, model, wanted, table_schema=A, existing=True) == 1
    db.execute(insert)
    assert sorted(states(db)) == [f"{A}.channels:1", f"{A}.channels:2"]


def test_each_tenant_gets_its_triggers_and_loses_them_alone(followed, db):
    model, engines = followed
    both = leftovers(db)
    with engines[A].begin() as connection:
        owners.uninstall(operations(connection), model)
    rest = leftovers(db)
    assert (len(both), len(rest), {A in text for _, text in rest}) == (28, 14, {False})
    put(db, owners.drop_triggers(model, table_schema=B))
    assert leftovers(db) == []


def test_a_name_with_its_schema_installs_what_the_class_does(followed, db):
    model, _ = followed
    both = leftovers(db)
    declared = owners.type_of(model, B) == f"{B}.{model.__table__.fullname}"  # not by the token of a schema
    for table, options in [("channels", {"table_schema": B}), (f"{B}.channels", {})][not declared :]:
        put(db, owners.triggers(table, active_when="enabled", **options))
    assert leftovers(db) == both
    assert owners.type_of(model, B) == f"{B}.channels"


@pytest.mark.parametrize("way", WAYS)
def test_create_all_and_drop_all_follow_the_table_that_they_create(database_url, db, way):
    columns = [sa.Column("id", sa.Integer, primary_key=True)]
    table = sa.Table("phones", sa.MetaData(schema={"token": "tenant"}.get(way)), *columns)
    with pytest.raises(BadInput, match="active_when"):
        owners.follow(table, active_when=";")
    owners.follow(table, active_when="id % 2 = 0")
    owners.per_schema(table)
    if way != "token":
        table.metadata.create_all(sa.create_engine("sqlite://"))
    engines = {tenant: WAYS[way][1](database_url, tenant) for tenant in TENANTS}
    for tenant, engine in engines.items():
        db.execute(f'CREATE SCHEMA "{tenant}"')
        with engine.begin() as connection:
            if way == "search_path":
                connection.execute(sa.text(f'SET LOCAL search_path = "{tenant}"'))
            table.metadata.create_all(connection)
    db.execute(f'INSERT INTO "{A}".phones VALUES (1), (2); INSERT INTO "{B}".phones VALUES (2)')
    assert [add(db, f"{A}.phones", id_) for id_ in "123"] == [[(False,)], [(True,)], []]
    assert [add(db, f"{B}.phones", id_) for id_ in "123"] == [[], [(True,)], []]
    with engines[A].begin() as connection:
        if way == "search_path":
            connection.execute(sa.text(f'SET LOCAL search_path = "{A}"'))
        table.metadata.drop_all(connection)
    assert {A in text for _, text in leftovers(db)} == {False}


def test_a_dropped_schema_is_named_with_what_to_do_and_other_tenants_go_on(followed, db):
    for tenant in TENANTS:
        db.execute(f'INSERT INTO "{tenant}".channels VALUES (5, true)')
        add(db, f"{tenant}.channels", "5")
    db.execute(f'DROP SCHEMA {A} CASCADE; DELETE FROM "{B}".channels; INSERT INTO "{B}".channels VALUES (6, true)')
    assert (states(db), add(db, f"{B}.channels", "6")) == ({f"{A}.channels:5": True}, [(True,)])
    [told] = answer("db", "upgrade", "--check", code=1)["problems"]
    assert f"ticker owners --type {A}.channels --orphans --remove" in told
    assert f'owners.drop_triggers("{A}.channels")' in told
    answer("owners", "--type", f"{A}.channels", "--orphans", "--remove")
    put(db, owners.drop_triggers(f"{A}.channels"))
    assert states(db) == {f"{B}.channels:6": True}
    assert answer("db", "upgrade", "--check")["problems"] == []


def test_a_schema_of_the_same_name_can_be_followed_again(followed, db):
    model, engines = followed
    db.execute(f"DROP SCHEMA {A} CASCADE")
    create_channels(db, A)
    with engines[A].begin() as connection:
        owners.install(operations(connection), model, active_when="enabled")
    db.execute(f"INSERT INTO {A}.channels VALUES (5, false)")
    assert add(db, f"{A}.channels", "5") == [(False,)]


# --------------------------------------------------------------------------------------------------- no tenant, no type


def test_without_a_schema_a_declared_table_has_no_type(database_url):
    owners.per_schema(Channel)
    for call in (owners.type_of, owners.triggers, owners.drop_triggers):
        with pytest.raises(BadInput, check=sentence("errors.table_of_each_tenant", table="'channels'").within):
            call(Channel)
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": io.StringIO()}
    )
    with pytest.raises(BadInput, match="pass table_schema="):
        owners.install(Operations(context), Channel)
    owners.install(Operations(context), Channel, table_schema=A)
    unfound = pytest.raises(BadInput, check=sentence("errors.in_no_schema", table="'channels'").within)
    with engine_on(database_url).connect() as connection, unfound:
        owners.install(operations(connection), Channel)
    for wrong in ("", 5, None, Channel(id=5)):
        with pytest.raises(BadInput, match="table: "):
            owners.per_schema(wrong)


def test_an_object_without_a_session_has_no_type(database_url):
    owners.per_schema(Channel)
    with mapped(database_url, "pg_temp").connect() as connection, Session(connection) as session:
        connection.execute(sa.text("CREATE TEMP TABLE channels (id int PRIMARY KEY, enabled boolean)"))
        session.add(channel := Channel(id=5))
        assert owners.identify(channel) == Owner("pg_temp.channels", "5")
        session.expunge(channel)
        for owner in (channel, Channel(id=5)):
            with pytest.raises(BadInput, check=sentence("errors.in_no_session", owner="'Channel'").within):
                owners.identify(owner)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("options", [{"schema_translate_map": {None: A}}, {}], ids=["map", "search_path"])
def test_an_owner_of_an_async_session_is_named_by_its_schema(database_url, db, driver, options):
    owners.per_schema(Channel)
    create_channels(db, A)

    async def register():
        url = engine_on(database_url).url.set(drivername=f"postgresql+{driver}")
        engine = create_async_engine(url, poolclass=NullPool, execution_options=options)
        async with AsyncSession(engine) as session, await psycopg.AsyncConnection.connect(database_url) as other:
            await session.execute(sa.text(f"SET search_path = {A}"))
            session.add(channel := Channel(id=5))
            task = await aio.register(session, "fetch", every="1m", owner=channel)
            for ended in (False, True):
                if ended:
                    await session.commit()
                if ended or not options:  # otherwise, nothing is asked of the session
                    with pytest.raises(BadInput, match="'Channel' is in an AsyncSession; pass that session"):
                        await aio.list_tasks(other, owner=channel)
            return task.owner

    assert asyncio.run(register()) == f"{A}.channels:5"


def test_tables_that_are_not_declared_are_named_as_before(database_url, db):
    owners.per_schema("mail_channels", "tenant.phones")
    db.execute(f"CREATE SCHEMA {A}")
    with mapped(database_url, A).connect() as connection, Session(connection) as session:
        Plain.metadata.create_all(connection)
        session.add(channel := Channel(id=5))
        assert owners.identify(channel) == Owner("channels", "5")
        session.expunge(channel)
        assert owners.identify(channel) == Owner("channels", "5")
    assert [owners.type_of(table, A) for table in (Channel, Marked, "crm.phones")] == [
        "channels", "tenant.channels", "crm.phones",
    ]  # fmt: skip
    assert '"public"."channels"' in "".join(owners.triggers(Channel))
    assert f'"{A}"."channels"' in "".join(owners.triggers(Channel, table_schema=A))


def test_a_declared_table_changes_no_other_of_its_name():
    class App(DeclarativeBase): ...

    class Elsewhere(App):
        __tablename__ = "channels"
        __table_args__ = {"schema": "app"}  # noqa: RUF012 - SQLAlchemy's own way
        id: Mapped[int] = mapped_column(primary_key=True)

    owners.per_schema(Elsewhere)
    assert owners.type_of("channels") == owners.type_of("channels", "crm") == "channels"
    assert owners.type_of(Elsewhere, B) == f"{B}.channels"
