"""Defines the demo's application: mail channels to poll, and the messages fetched from them.

The processes of the Procfile can run it on any database, including yours. Its tables have their own schema:

    ticker db upgrade
    python -m ticker.demo.application create
    python -m ticker.demo.application add HOST PORT USER
"""

import argparse
from collections.abc import Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any

from sqlalchemy import MetaData, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.schema import CreateSchema

import ticker
from ticker import Task, owners, settings

SCHEMA = "ticker_demo_mail"


class Base(DeclarativeBase):
    metadata = MetaData(schema=SCHEMA)


class MailChannel(Base):
    """A mailbox to poll; the owner of its tasks."""

    __tablename__ = "mail_channels"

    id: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str]
    port: Mapped[int]
    user: Mapped[str]
    enabled: Mapped[bool] = mapped_column(default=True)


class Message(Base):
    """A fetched message. Only the id is unique, so a message that is stored twice has two rows."""

    __tablename__ = "messages"

    id: Mapped[int] = mapped_column(primary_key=True)
    mailbox: Mapped[str]
    uid: Mapped[int]
    subject: Mapped[str]


REPORTED, UNATTENDED = (
    ("support", "shop"),
    "reports",
)  # channels with a second task, on a queue that has no worker at first


@cache
def sessions() -> sessionmaker[Session]:
    """Returns a session factory on DATABASE_URL. Workers call it in the work-horse: connections do not survive a fork."""
    url = settings.from_environment().require_database().replace("postgresql://", "postgresql+psycopg://", 1)
    return sessionmaker(create_engine(url), expire_on_commit=False)


def create() -> None:
    """Creates the tables, and the triggers by which tasks follow their channel. Run `ticker db upgrade` first."""
    owners.follow(MailChannel, active_when="enabled", schema=settings.from_environment().schema)
    with sessions().begin() as session:
        session.execute(CreateSchema(SCHEMA, if_not_exists=True))
        Base.metadata.create_all(session.connection())


def add_channel(session: Session, host: str, port: int, user: str, function: str = "mail.fetch", **limits: Any) -> Task:
    """Adds a channel and its task. The caller's commit saves both or neither."""
    channel = MailChannel(host=host, port=port, user=user)
    session.add(channel)
    session.flush()
    arguments = {"channel_id": channel.id}
    return ticker.register(session, function, owner=channel, kwargs=arguments, subject=user, **limits)


def register_all(port: int, pace: float) -> tuple[dict[str, Task], dict[str, Task], list[Task]]:
    """Registers all tasks in one transaction. Returns polls and reports by mailbox, and the tasks of the feeds."""

    def span(seconds: float) -> timedelta:
        return timedelta(milliseconds=round(1000 * seconds * pace))

    with sessions().begin() as session:
        add = partial(add_channel, session, "127.0.0.1", port)
        polls = {name: add(name, every=span(3)) for name in ("support", "sales", "shop")}
        # More mail than one box can hold: its runs stop at their quota.
        polls["archive"] = add("archive", every=span(5), tolerance=span(2), box=span(2))
        # Its first message never ends, and its function ignores its quota: its runs are killed.
        polls["legacy"] = add("legacy", "mail.fetch_stubbornly", every=span(5), tolerance=span(2), box=span(1.5))
        report = partial(ticker.register, session, "mail.report", every=span(5), tolerance=span(2.5), box=span(0.8))
        reports = {
            name: report(owner=polls[name].owner, kwargs=polls[name].kwargs, subject=name, queue=UNATTENDED)
            for name in REPORTED
        }
        feeds = [
            ticker.register(session, "feeds.import", every=span(10), retries=2, backoff=span(1), subject="partner"),
            ticker.register(session, "feeds.refresh", every=span(10), subject="feeds"),
        ]
    return polls, reports, feeds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ticker.demo.application")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create", help="create the tables")
    add = commands.add_parser("add", help="add a channel: a POP3 mailbox that is polled every minute")
    for name, kind in (("host", str), ("port", int), ("user", str)):
        add.add_argument(name, type=kind)
    chosen = parser.parse_args(arguments)
    if chosen.command == "create":
        create()
    else:
        with sessions().begin() as session:
            add_channel(session, chosen.host, chosen.port, chosen.user, every="1m")


if __name__ == "__main__":
    main()
