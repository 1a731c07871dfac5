"""The tables for applications: an application joins them with its own, in its schema."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import ticker
from ticker import migrations
from ticker.db import tables

OWNERS = Path(__file__).parents[2] / "docs/concepts/owners.md"


class Base(DeclarativeBase):
    pass


class MailChannel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    host: Mapped[str]


@pytest.fixture
def session(database_url):
    with Session(migrations.engine(database_url)) as session:
        yield session


def test_the_example_of_the_documentation_finds_the_owners_whose_tasks_fail(session, db):
    text = OWNERS.read_text(encoding="utf-8").partition("## Joins with your own tables")[2]
    names = {"MailChannel": MailChannel}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)  # the example, as it stands
    Base.metadata.create_all(session.connection())
    for channel in (MailChannel(id=5, host="a"), MailChannel(id=6, host="b")):
        session.add(channel)
        ticker.register(session, "mail.fetch", every="1m", owner=channel)
    session.execute(sa.text("UPDATE ticker.tasks SET failures = 2 WHERE owner_id = '6'"))
    [(channel, name, failures, next_run)] = session.execute(names["failing"]).all()
    assert (channel.host, name, failures) == ("b", "mail.fetch", 2) and next_run.tzinfo


def test_columns_take_the_operators_of_their_types(session, db):
    ticker.register(db, "poll", every="1m", kwargs={"channel_id": 7}, metadata={"team": "mail"})
    task = tables.tasks.c
    row = session.execute(
        sa.select(task.kwargs, task.metadata["team"].astext, task.next_run + timedelta(minutes=1) - task.next_run)
        .where(task.every_ms >= 60_000, task.kind.in_(["interval"]), task.last_outcome.is_(None))
        .where(task.next_run <= sa.func.clock_timestamp())
    ).one()
    assert tuple(row) == ({"channel_id": 7}, "mail", timedelta(minutes=1))


@pytest.mark.slow
def test_the_tables_in_another_schema_are_found_there(session, database_url):
    migrations.upgrade(database_url, "jobs")
    session.execute(
        sa.text("INSERT INTO jobs.tickers (id, pid, started_at) SELECT gen_random_uuid(), 7, clock_timestamp()")
    )
    assert session.scalars(sa.select(tables.define("jobs").tables["jobs.tickers"].c.pid)).all() == [7]
    assert session.scalars(sa.select(tables.tickers.c.pid)).all() == []
