"""What the demo's workers run: `ticker worker --tasks ticker.demo.polls polling`."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import func, select

from ticker.demo.application import MailChannel, Message, sessions
from ticker.demo.mailbox import open_mailbox
from wrappers import Run, task


@task("mail.fetch")
def fetch_mail(run: Run, channel_id: int) -> dict[str, int]:
    """Fetches what is new, the oldest first. Stops where its quota ends; the next run goes on from there."""
    return fetch(run, channel_id)


@task("mail.fetch_stubbornly")
def fetch_stubbornly(run: Run, channel_id: int) -> None:
    """How not to do it: never looks at its quota, and swallows whatever interrupts it. Only a kill ends it."""
    while True:
        with suppress(BaseException):
            fetch(run, channel_id, heed_the_quota=False)
            time.sleep(0.2)


@task("mail.report")
def report(channel_id: int) -> int:
    """How many messages the channel has had."""
    with sessions().begin() as session:
        channel = session.get_one(MailChannel, channel_id)
        return session.scalar(select(func.count()).where(Message.mailbox == channel.user)) or 0


@task("feeds.import")
def import_feeds(run: Run) -> None:
    """The partner's server is overloaded at first; a retry gets through."""
    print("asking the partner for new feeds")
    if run.attempt == 1:
        print("the partner answers: 503 Service Unavailable", file=sys.stderr)
        raise ConnectionError("503 Service Unavailable")


@task("feeds.refresh")
class RefreshFeeds:
    """Each feed is a piece of work with a run of its own; one of them is gone."""

    def generate(self) -> Iterator[str]:
        yield from ("news", "weather", "sports", "comics", "horoscope")

    def process(self, piece: str) -> str:
        print(f"fetching {piece}")
        if piece == "horoscope":
            raise LookupError("410 Gone")
        return f"{piece}: 3 entries"


def fetch(run: Run, channel_id: int, heed_the_quota: bool = True) -> dict[str, int]:
    after = run.cursor or 0
    with sessions().begin() as session:
        channel = session.get_one(MailChannel, channel_id)
    with open_mailbox(channel.host, channel.port, channel.user) as mailbox:
        for uid in mailbox.uids(after=run.cursor):
            message = mailbox.read(uid)
            with sessions().begin() as session:  # message and cursor are committed together, or neither is
                session.add(Message(mailbox=channel.user, uid=uid, subject=message["Subject"]))
                run.checkpoint(uid, session=session)
            if heed_the_quota and run.quota.exceeded:
                break
    return {"after": after, "up_to": run.cursor or 0}
