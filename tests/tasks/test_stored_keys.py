"""A key is written as its column stores it, whatever value Python has for it: an owner is found, and its tasks go with it."""

import asyncio
import enum
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

import ticker
from tests.drivers.doors import of_driver
from ticker import aio, owners

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

UID = UUID("6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60")


class Colour(enum.Enum):
    RED = "r"


class Prefixed(sa.TypeDecorator[str]):
    impl, cache_ok = sa.String, True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return value and f"ch_{value}"

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return value and value.removeprefix("ch_")


class Guid(sa.TypeDecorator[UUID]):
    """As in SQLAlchemy's documentation of types for all databases, made to store CHAR(32) everywhere."""

    impl, cache_ok = sa.CHAR(32), True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return value and value.hex

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return value and UUID(value)


class Counted(sa.TypeDecorator[str]):
    """A number that Python writes as text."""

    impl, cache_ok = sa.Integer, True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return value and int(value.removeprefix("n"))

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return value and f"n{value}"


class Wrapped(sa.TypeDecorator[UUID]):
    impl, cache_ok = sa.Uuid, True


KEYS = {
    "hex digits": (sa.Uuid(native_uuid=False), UID, UID.hex),
    "hex digits of text": (sa.Uuid(native_uuid=False, as_uuid=False), str(UID), UID.hex),
    "native": (sa.Uuid(), UID, str(UID)),
    "native of text": (sa.Uuid(as_uuid=False), str(UID).upper(), str(UID)),
    "of the dialect": (postgresql.UUID(as_uuid=True), UID, str(UID)),
    "native elsewhere only": (sa.Uuid().with_variant(sa.Uuid(native_uuid=False), "postgresql"), UID, UID.hex),
    "decorated": (Guid(), UID, UID.hex),
    "decorated, native": (Wrapped(), UID, str(UID)),
    "decorated text": (Prefixed(), "5", "ch_5"),
    "decorated number": (Counted(), "n7", "7"),
    "enum": (sa.Enum(Colour), Colour.RED, "RED"),
    "enum of text": (sa.Enum(Colour, native_enum=False), Colour.RED, "RED"),
}


def mapped(type_: Any, *further: Any) -> tuple[Any, Any]:
    class Base(DeclarativeBase): ...

    columns = [sa.Column("id", type_, primary_key=True), *further]
    return Base, type("Device", (Base,), {"__table__": sa.Table("devices", Base.metadata, *columns)})


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_task_has_the_key_of_its_owner_and_goes_with_it(kind: str, driver: str, db: Any, database_url: str) -> None:
    type_, value, text = KEYS[kind]
    base, device = mapped(type_)
    owners.follow(device)
    engine = sa.create_engine(of_driver(driver, database_url), poolclass=sa.NullPool)
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(new := device(id=value))
        assert ticker.register(session, "poll", owner=new, every="1m").owner == f"devices:{text}"
        session.commit()
        session.expunge_all()
        found = session.get(device, value)
        assert [task.owner_id for task in ticker.list_tasks(session, owner=found)] == [text]
        session.delete(found)
        session.commit()
    assert ticker.list_tasks(db) == []


@pytest.mark.parametrize("kind", ["hex digits", "native of text", "decorated text", "decorated number", "enum"])
def test_so_it_is_on_asyncpg(kind: str, db: Any, database_url: str) -> None:
    type_, value, text = KEYS[kind]
    base, device = mapped(type_)
    owners.follow(device)

    async def register() -> None:
        engine = create_async_engine(of_driver("asyncpg", database_url), poolclass=sa.NullPool)
        async with engine.begin() as connection:
            await connection.run_sync(base.metadata.create_all)
        async with AsyncSession(engine) as session, session.begin():
            session.add(new := device(id=value))
            await aio.register(session, "poll", owner=new, every="1m")

    asyncio.run(register())
    assert [task.owner_id for task in ticker.list_tasks(db)] == [text]
    db.execute("DELETE FROM devices")
    assert ticker.list_tasks(db) == []


def test_so_it_is_in_a_key_of_several_columns(db: Any, database_url: str) -> None:
    base, device = mapped(sa.Uuid(native_uuid=False), sa.Column("name", Prefixed(), primary_key=True))
    owners.follow(device)
    engine = sa.create_engine(of_driver("psycopg", database_url), poolclass=sa.NullPool)
    base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(new := device(id=UID, name="a"))
        assert ticker.register(session, "poll", owner=new, every="1m").owner_id == f'["{UID.hex}", "ch_a"]'
    db.execute("DELETE FROM devices")
    assert ticker.list_tasks(db) == []
