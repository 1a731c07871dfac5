"""The task functions of the demo: `ticker worker --tasks ticker.demo.polls polling`."""

import poplib
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from email import message_from_bytes
from email.policy import default

from sqlalchemy import func, select

from ticker.demo.application import MailChannel, Message, sessions
from wrappers import Run, task

TIMEOUT = 60.0  # seconds that a client waits for the server's next byte


@task("mail.fetch")
def fetch_mail(run: Run, channel_id: int) -> dict[str, int]:
    """Fetches new messages, oldest first. Stops when its quota is used up; the next run continues from there."""
    return fetch(run, channel_id)


@task("mail.fetch_stubbornly")
def fetch_stubbornly(run: Run, channel_id: int) -> None:
    """A bad example: ignores its quota and swallows every exception, so that only a kill ends it."""
    while True:
        with suppress(BaseException):
            fetch(run, channel_id, heed_the_quota=False)
            time.sleep(0.2)


@task("mail.report")
def report(channel_id: int) -> int:
    """Returns how many messages were fetched from the channel."""
    with sessions().begin() as session:
        channel = session.get_one(MailChannel, channel_id)
        return session.scalar(select(func.count()).where(Message.mailbox == channel.user)) or 0


@task("feeds.import")
def import_feeds(run: Run) -> None:
    """Fails at first, because the partner's server is overloaded; a retry succeeds."""
    print("asking the partner for new feeds")
    if run.attempt == 1:
        print("the partner answers: 503 Service Unavailable", file=sys.stderr)
        raise ConnectionError("503 Service Unavailable")


@task("feeds.refresh")
class RefreshFeeds:
    """Refreshes each feed as a piece of work with its own run. One feed is gone."""

    def generate(self) -> Iterator[str]:
        yield from ("news", "weather", "sports", "comics", "horoscope")

    def process(self, piece: str) -> str:
        print(f"fetching {piece}")
        if piece == "horoscope":
            raise LookupError("410 Gone")
        return f"{piece}: 3 entries"


def fetch(run: Run, channel_id: int, heed_the_quota: bool = True) -> dict[str, int]:
    """Stores each new message together with the cursor. Returns where this run began and ended."""
    after = run.cursor or 0
    with sessions().begin() as session:
        channel = session.get_one(MailChannel, channel_id)
    with closing(new_messages(channel, after)) as messages:
        for uid, subject in messages:
            with sessions().begin() as session:  # message and cursor are committed together, or neither is
                session.add(Message(mailbox=channel.user, uid=uid, subject=subject))
                run.checkpoint(uid, session=session)
            if heed_the_quota and run.quota.exceeded:
                break
    return {"after": after, "up_to": run.cursor or 0}


def new_messages(channel: MailChannel, after: int) -> Generator[tuple[int, str], None, None]:
    """Polls a POP3 mailbox. Yields the UID and subject of each message above `after`, oldest first."""
    with closing(poplib.POP3(channel.host, channel.port, timeout=TIMEOUT)) as pop:
        pop.user(channel.user)
        pop.pass_("secret")
        numbers = {int(uid): number.decode() for number, uid in (line.split() for line in pop.uidl()[1])}
        for uid in sorted(uid for uid in numbers if uid > after):
            lines = pop.retr(numbers[uid])[1]
            yield uid, message_from_bytes(b"\n".join(lines), policy=default)["Subject"]
        pop.quit()
