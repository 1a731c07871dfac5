"""What elastic intervals save, and how long a mail waits for its poll: `python -m tests.bench elastic [--mailboxes N] [--active %]`.

A simulated day of 100,000 mailboxes, computed by the rules of `tests/elastic.py`, which are held to the statements. 5 % of the
mailboxes are active: ten conversations between 07:00 and 19:00, of one to six mails each, three minutes apart on average. The
others get one mail at any time. Polls take no time. Ticks are left
out: they add up to their period to each interval.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import mean, quantiles

from tests import elastic
from tests.bench.figures import parser, show
from ticker.model import Outcome
from ticker.schedules import duration
from ticker.schedules import interval as schedules

HOUR, DAY = 3_600_000, 86_400_000
CONVERSATIONS, MAILS, APART = 10, 6, 3 * duration.MINUTE
INTERVALS = ("1m", "5m", "15m", "1m..15m", "1m..30m", "5m..1h")
HEADS = (
    "every=",
    "polls",
    "times fewer",
    "active: mean wait (min)",
    "95 %",
    "max",
    "others: mean wait (min)",
    "95 %",
    "max",
)


@dataclass(slots=True)
class Mailbox:
    """What the rule `pace` reads of its task."""

    every_ms: int
    every_most_ms: int
    pace_ms: int | None = None


@dataclass(slots=True)
class Polls:
    """What the polls of all mailboxes found: how many there were, and how long each mail waited (ms)."""

    starts: int = 0
    waits: dict[bool, list[int]] = field(
        default_factory=lambda: {True: [], False: []}
    )  # of active mailboxes, and of others


def arrivals(draw: Random, *, is_active: bool) -> list[int]:
    """Returns the times of the mails of one mailbox, in milliseconds since midnight."""
    if not is_active:
        return [draw.randrange(DAY)]
    begins = [draw.randrange(7 * HOUR, 19 * HOUR) for _ in range(CONVERSATIONS)]
    return sorted(at for begin in begins for at in conversation(draw, begin))


def conversation(draw: Random, at: int) -> Iterator[int]:
    for _ in range(draw.randint(1, MAILS)):
        yield at
        at += round(draw.expovariate(1 / APART))


def poll(polls: Polls, box: Mailbox, mails: Sequence[int], at: int, *, is_active: bool) -> None:
    """Polls one mailbox from `at` until the day is over and all its mails are found. Only the day's polls count."""
    seen, waits = 0, polls.waits[is_active]
    while at < DAY or seen < len(mails):
        polls.starts += at < DAY
        outcome = Outcome.NOTHING_TO_DO
        while seen < len(mails) and mails[seen] <= at:
            waits.append(at - mails[seen])
            seen, outcome = seen + 1, Outcome.SUCCEEDED
        box.pace_ms = elastic.pace(box, outcome)
        at += box.pace_ms or box.every_ms


def day(every: str, mailboxes: int, percent: int) -> Polls:
    """Returns the polls of a day at this interval. The mails are the same for each."""
    interval = schedules.parse("every", every)
    polls, draw = Polls(), Random(1)
    for number in range(mailboxes):
        is_active = 100 * number < percent * mailboxes
        mails, first = arrivals(draw, is_active=is_active), round(draw.random() * interval.every_ms)
        if interval.most_ms is None:
            polls.starts += -(-(DAY - first) // interval.every_ms)
            polls.waits[is_active] += [(first - mail) % interval.every_ms for mail in mails]
        else:
            poll(polls, Mailbox(interval.every_ms, interval.most_ms), mails, first, is_active=is_active)
    return polls


def row(every: str, polls: Polls, most: int) -> tuple[str, ...]:
    waits = [cell for is_active in (True, False) for cell in spread(polls.waits[is_active])]
    return f"`{every}`", f"{polls.starts:,}", f"{most / polls.starts:.3g}", *waits


def spread(waits: Sequence[int]) -> Iterator[str]:
    """Yields the mean, the 95th percentile and the maximum, in minutes."""
    for wait in (mean(waits), quantiles(waits, n=20)[-1], max(waits)):
        yield f"{wait / duration.MINUTE:.1f}"


def main() -> None:
    chosen = parser(__doc__, mailboxes=100_000, active=5).parse_args()
    days = {every: day(every, chosen.mailboxes, chosen.active) for every in INTERVALS}
    most = max(polls.starts for polls in days.values())
    table = [HEADS, *(row(every, polls, most) for every, polls in days.items())]
    show([], chosen.json, {"mailboxes": chosen.mailboxes, "active": f"{chosen.active} %"}, {"polls of a day": table})


if __name__ == "__main__":
    main()
