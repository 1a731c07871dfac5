"""The demo's application: mail channels that are polled, and the messages that were fetched for them.

The Procfile's processes work for it on any database, yours too; its tables have a schema of their own:

    ticker db upgrade
    python -m ticker.demo.application create
    python -m ticker.demo.application add HOST PORT USER
"""

import argparse
from collections.abc import Sequence
from functools import cache

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.schema import CreateSchema

import ticker
from ticker import owners, settings
from ticker.schedules.duration import Duration

SCHEMA = "ticker_demo_mail"


class Base(DeclarativeBase):
    metadata = MetaData(schema=SCHEMA)


class MailChannel(Base):
    """A mailbox that is polled: the owner of its tasks."""

    __tablename__ = "mail_channels"

    id: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str]
    port: Mapped[int]
    user: Mapped[str]
    enabled: Mapped[bool] = mapped_column(default=True)


class Message(Base):
    """A message that was fetched. Nothing here is unique, on purpose: one that is fetched twice stands here twice."""

    __tablename__ = "messages"

    id: Mapped[int] = mapped_column(primary_key=True)
    mailbox: Mapped[str]
    uid: Mapped[int]
    subject: Mapped[str]


@cache
def sessions() -> sessionmaker[Session]:
    """Sessions on DATABASE_URL. First called in the work-horse: a connection does not survive a fork."""
    return sessionmaker(create_engine(settings.from_environment().require_database()), expire_on_commit=False)


def create() -> None:
    """The tables, with the triggers by which a channel's tasks follow its row. `ticker db upgrade` comes first."""
    owners.follow(MailChannel, active_when="enabled", schema=settings.from_environment().schema)
    with sessions().begin() as session:
        session.execute(CreateSchema(SCHEMA, if_not_exists=True))
        Base.metadata.create_all(session.connection())


def add_channel(
    session: Session, host: str, port: int, user: str, *, function: str = "mail.fetch",
    every: Duration = "1m", tolerance: Duration | None = None, box: Duration | None = None,
) -> tuple[MailChannel, ticker.Task]:  # fmt: skip
    """A channel and its task: both are there when the caller commits, or neither."""
    channel = MailChannel(host=host, port=port, user=user)
    session.add(channel)
    session.flush()
    task = ticker.register(
        session, function, owner=channel, kwargs={"channel_id": channel.id},
        every=every, tolerance=tolerance, box=box, subject=user,
    )  # fmt: skip
    return channel, task


def add_feeds(session: Session) -> list[ticker.Task]:
    """Tasks of nobody's: one that needs a retry, and one that is done in pieces."""
    return [
        ticker.register(session, "feeds.import", every="10s", retries=2, backoff="1s", subject="partner"),
        ticker.register(session, "feeds.refresh", every="10s", subject="feeds"),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ticker.demo.application", description="The demo's application.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create", help="create its tables")
    add = commands.add_parser("add", help="add a channel: a POP3 mailbox that is polled every minute")
    add.add_argument("host")
    add.add_argument("port", type=int)
    add.add_argument("user")
    chosen = parser.parse_args(arguments)
    if chosen.command == "create":
        create()
    else:
        with sessions().begin() as session:
            add_channel(session, chosen.host, chosen.port, chosen.user)


if __name__ == "__main__":
    main()
