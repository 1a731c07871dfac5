"""Sessions with several databases: a task is written where its owner is, or the call says which connection to pass."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.sql import Delete, Update

import ticker
from tests.conftest import admin, copy_of
from tests.drivers.doors import DOORS, of_driver
from tests.sentences import sentence
from ticker import aio, embedded, migrations, owners
from ticker.db.connections import connect
from ticker.embedded import Postgres
from ticker.embedded.programs import account_of_server, new_folder, postgres_programs
from ticker.errors import BadInput, DatabaseUnavailable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]


class Base(DeclarativeBase): ...


class Channel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(primary_key=True)


class Other(DeclarativeBase): ...


class Elsewhere(Other):
    __tablename__ = "elsewhere"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def elsewhere(servers: Any, template: str, database_url: str) -> Iterator[str]:
    """The URL of another database, which has tables of ours, too."""
    name = f"{template}_elsewhere"
    yield copy_of(servers, template, name)
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def channel(db: Any) -> None:
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("mail_channels")))
    db.execute("INSERT INTO mail_channels VALUES (1)")


def engine(driver: str, url: str) -> Any:
    return create_engine(of_driver(driver, url), poolclass=NullPool)


def bindings(driver: str, url: str, elsewhere: str) -> dict[str, Any]:
    here, there = engine(driver, url), engine(driver, elsewhere)

    class Routing(Session):
        """As in SQLAlchemy's documentation: writes go to the leader, and reads to a follower."""

        def get_bind(self, mapper: Any = None, clause: Any = None, **_: Any) -> Any:
            if mapper and issubclass(mapper.class_, Elsewhere):
                return there
            return here if self._flushing or isinstance(clause, Update | Delete) else random.choice([there, there])

    return {
        "by base": sessionmaker(binds={Base: here, Other: there}), "by class": sessionmaker(binds={Channel: here, Elsewhere: there}),
        "by table": sessionmaker(binds={Channel.__table__: here, Elsewhere.__table__: there}),
        "scoped": scoped_session(sessionmaker(binds={Base: here, Other: there})), "routing": Routing,
    }  # fmt: skip


KINDS = ["by base", "by class", "by table", "scoped", "routing"]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_written_to_its_owners_database(
    kind: str, driver: str, channel: None, db: Any, database_url: str, elsewhere: str
) -> None:
    session = bindings(driver, database_url, elsewhere)[kind]()
    new = Channel(id=2)
    session.add(new)
    ticker.defaults(session, Channel, [ticker.Wanted(function="sum", every="1h")])
    task = ticker.register(session, "poll", owner=new, every="1m")
    assert ticker.reconcile(session, new, [{"function": "poll", "every": "1m"}]) == [task]
    assert [found.id for found in ticker.pause(session, "poll", owner=new)] == [task.id]
    session.commit()
    session.close()
    assert [task.owner for task in ticker.list_tasks(db)] == ["mail_channels:2"]
    with closing(connect(elsewhere)) as there:
        assert ticker.list_tasks(there) == []


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_mapped_owner_a_session_is_asked_where_it_writes_or_refused(
    kind: str, driver: str, channel: None, db: Any, database_url: str, elsewhere: str
) -> None:
    session = bindings(driver, database_url, elsewhere)[kind]()
    if kind == "routing":
        ticker.register(session, "poll", owner="mail_channels:1", every="1m")
    else:
        words = sentence("errors.no_engine", session=type(session).__name__)
        with pytest.raises(BadInput, check=lambda error: words == error):
            ticker.register(session, "poll", owner="mail_channels:1", every="1m")
        connection = session.connection(bind_arguments={"mapper": Channel})
        ticker.register(connection, "poll", owner="mail_channels:1", every="1m")
    session.commit()
    session.close()
    assert [task.owner for task in ticker.list_tasks(db)] == ["mail_channels:1"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_async_session_with_several_databases_does_so_too(
    driver: str, channel: None, db: Any, database_url: str, elsewhere: str
) -> None:
    async def register() -> None:
        here, there = (
            create_async_engine(of_driver(driver, url), poolclass=NullPool) for url in (database_url, elsewhere)
        )
        async with AsyncSession(binds={Base: here, Other: there}) as session, session.begin():
            session.add(new := Channel(id=2))
            await aio.register(session, "poll", owner=new, every="1m")
            with pytest.raises(BadInput, check=lambda error: sentence("errors.no_engine", session="Session") == error):
                await aio.register(session, "poll", owner="mail_channels:1", every="1m")

    asyncio.run(register())
    assert [task.owner for task in ticker.list_tasks(db)] == ["mail_channels:2"]


# ------------------------------------------------------------------------------------------------------------ replicas


@pytest.fixture(scope="module")
def standby() -> Iterator[str]:
    """The URL of a hot standby, whose primary has one task."""
    with embedded.postgres({}) as primary:
        migrations.upgrade(primary.url)
        with closing(connect(primary.url)) as db:
            ticker.register(db, "kept", every="1m")
        account = account_of_server()
        with closing(Postgres(new_folder(account), account, postgres_programs({}))) as server:
            server._create_command = [
                str(Path(server._command[0]).with_name("pg_basebackup")), f"-D{server.folder}/data", f"-h{primary.folder}", "-p5432",
                "-Upostgres", "-R", "-cfast", "--no-sync",
            ]  # fmt: skip
            server.create()
            server.start()
            yield server.url


@pytest.mark.parametrize("name", DOORS)
def test_a_hot_standby_reads_and_says_where_to_write(name: str, standby: str) -> None:
    door = DOORS[name](standby)
    assert [task.name for task in door("list_tasks")] == ["kept"]
    assert door("register", "kept", every="1m").name == "kept"
    words = sentence(
        "errors.write_on_read_only", error="cannot execute SELECT FOR NO KEY UPDATE in a read-only transaction"
    )
    with pytest.raises(DatabaseUnavailable, check=lambda error: words == error):
        door("register", "poll", every="1m")
