"""The application of the demo and of the Procfile: mail channels, and functions that poll their simulated mailboxes."""

import time
from contextlib import suppress
from functools import cache
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import ticker
from ticker import Task, owners, settings
from wrappers import Run, task


class Base(DeclarativeBase):
    pass


class MailChannel(Base):
    """A mailbox to poll; the owner of its task. It has `mails` messages, and its server takes `seconds` for each."""

    __tablename__ = "demo_mail_channels"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    mails: Mapped[int]
    seconds: Mapped[float]
    enabled: Mapped[bool] = mapped_column(default=True)


class Message(Base):
    """A fetched message. Only the id is unique, so a message that is stored twice has two rows."""

    __tablename__ = "demo_messages"

    id: Mapped[int] = mapped_column(primary_key=True)
    mailbox: Mapped[str]
    uid: Mapped[int]


@cache
def sessions() -> sessionmaker[Session]:
    """Returns a session factory on DATABASE_URL. Workers call it after the fork, which connections do not survive."""
    url = settings.from_environment().require_database().replace("postgresql://", "postgresql+psycopg://", 1)
    return sessionmaker(create_engine(url), expire_on_commit=False)


def create() -> None:
    """Creates the tables, and the triggers by which tasks follow their channel. Run `ticker db upgrade` first."""
    schema = settings.from_environment().schema
    owners.follow(MailChannel, active_when="enabled", subject_from="name", schema=schema)
    with sessions().begin() as session:
        Base.metadata.create_all(session.connection())


def add(session: Session, name: str, mails: int, seconds: float, function: str = "mail.fetch", **fields: Any) -> Task:
    """Adds a channel and the task that polls it. The caller's commit saves both or neither."""
    channel = MailChannel(name=name, mails=mails, seconds=seconds)
    session.add(channel)
    session.flush()
    return ticker.register(session, function, owner=channel, kwargs={"channel_id": channel.id}, **fields)


@task("mail.fetch")
def fetch(run: Run, channel_id: int) -> dict[str, int]:
    """Stores new messages, oldest first, until its quota is used up. Returns where this run began and ended."""
    after = run.cursor or 0
    with sessions()() as session:
        channel = session.get_one(MailChannel, channel_id)
    for uid in range(after + 1, channel.mails + 1):
        time.sleep(channel.seconds)  # in place of a request to the server
        with sessions().begin() as session:  # message and cursor are committed together, or neither is
            session.add(Message(mailbox=channel.name, uid=uid))
            run.checkpoint(uid, session=session)
        if run.quota.exceeded:
            break
    return {"after": after, "up_to": run.cursor or 0}


@task("mail.fetch_stubbornly")
def fetch_stubbornly(run: Run, channel_id: int) -> None:
    """A bad example: swallows every exception and ignores its quota, so that only a kill ends it."""
    while True:
        with suppress(BaseException):
            fetch(run, channel_id)


if __name__ == "__main__":
    create()
    with sessions().begin() as db:
        if db.get(MailChannel, 1) is None:
            add(db, "support", 1000, 0.5, every="10s")
