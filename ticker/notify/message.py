"""Composes the content of a notice: one state change of one task, as a line for people and as JSON. Does no I/O.

Also defines the interface of channels, which deliver a notice or report why they could not.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from ticker.errors import escaped
from ticker.model import EventKind

NOTIFIED = (
    EventKind.FAILED,
    EventKind.RECOVERED,
    EventKind.AUTO_PAUSED,
    EventKind.DEAD_MAN,
    EventKind.UNKNOWN_FUNCTION,
    EventKind.EXPIRED,
    EventKind.HOST_LOST,
    EventKind.GROUP_TOO_LARGE,
)
"""The events that become notices; all others are only recorded."""

TEST = "test"  # `what` of the notice that `ticker notify --test` sends
PART_AT_MOST = 300  # characters of an error, a subject or a reason in a line for people


@dataclass(frozen=True, slots=True)
class Digest:
    """What a notice of a cause adds: how many tasks fail with it, or had failed, and how many the ticker has paused.

    `examples` has the name, the type and id of the owner, and the subject of up to three of them. `page` is the address of
    a list of failing tasks. `series` distinguishes the notices of a cause.
    """

    cause: str
    tasks: int
    paused: int
    series: str
    examples: Sequence[Sequence[str]] = ()
    page: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """One event, with what is known about its task when the notice is sent. Times are in UTC.

    `failures` is None if the task was deleted. `since` is when the task began to fail or, for `dead_man`, when it last
    succeeded. `words` is the text of the event in the journal. If the channel gets one notice for each cause, `digest`
    describes the tasks that fail with it, and the other fields describe one of them.
    """

    id: int
    what: str
    at: datetime
    host: str
    schema: str
    words: str
    task_id: int = 0
    task_name: str = ""
    function: str = ""
    owner_type: str = ""
    owner_id: str = ""
    subject: str = ""
    failures: int | None = None
    since: datetime | None = None
    error: str = ""
    run_id: int | None = None
    next_run: datetime | None = None
    digest: Digest | None = None

    @property
    def key(self) -> str:
        """A key that is the same each time this notice is sent, so that an endpoint can detect duplicates."""
        return f"{self.id}-{self.digest.series}-{self.what}" if self.digest else str(self.id)


class Channel(Protocol):
    """A way to send notices. It is used by one thread at a time.

    A built-in channel is a class in this package, made by its `__init__`. Your own is an entry point: see `EntryPoint`.
    """

    name: str

    def deliver(self, notice: Notice) -> str:
        """Delivers a notice and returns the answer.

        Any exception means that delivery failed. Its text must not contain secrets.
        """


class NotDelivered(Exception):
    """Raised if the other side did not accept the notice. The text contains the other side's answer."""


def text(notice: Notice) -> str:
    """Returns one printable line, such as `mail.fetch of channels:7 failed 3 times in a row since 09:00 UTC:
    TimeoutError`.
    """
    return printable(_of_many(notice, notice.digest) if notice.digest else _sentence(notice))


OF_TASK = ("task_id", "task_name", "function", "owner_type", "owner_id", "subject")


def data(notice: Notice) -> dict[str, Any]:
    """Returns the notice as JSON data: the body of a webhook request, and the argument of an entry point.

    Times are ISO 8601 in UTC with microseconds and a Z, as in the `--json` output of every command.
    """
    facts = {name: _instant(value) if isinstance(value, datetime) else value for name, value in asdict(notice).items()}
    task = {name.removeprefix("task_"): facts.pop(name) for name in OF_TASK}
    del facts["digest"]
    if digest := notice.digest:
        facts |= {**asdict(digest), "examples": [_named(*each) for each in digest.examples]}
    return {**facts, "task": task, "text": text(notice)}


def trial(at: datetime, host: str, schema: str) -> Notice:
    """Returns the test notice, which belongs to no task."""
    return Notice(id=0, what=TEST, at=at, words="a test notice", host=host, schema=schema)


def printable(line: str, at_most: int = 1000) -> str:
    """Returns one line, with control characters escaped as in Python."""
    line = escaped(" ".join(line.split()))
    return line if len(line) <= at_most else f"{line[: at_most - 1]}…"


def _sentence(notice: Notice) -> str:
    since = "" if notice.since is None else f" since {_moment(notice.since, notice.at)}"
    match notice.what:
        case EventKind.FAILED:
            often = f" {notice.failures} times in a row{since}" if (notice.failures or 0) > 1 else ""
            why = notice.error or notice.words.removeprefix("failed: ")
            return f"{_whose(notice)} failed{often}{_after_colon(why)}"
        case EventKind.RECOVERED:
            return f"{_whose(notice)} works again" + (f"; it had failed{since}" if since else "")
        case EventKind.AUTO_PAUSED:
            return f"{_whose(notice)} was paused by the ticker{_after_colon(notice.words)}{_after_colon(notice.error)}"
        case EventKind.DEAD_MAN:
            return f"{_whose(notice)} is late{_after_colon(notice.words or f'no success{since}')}"
        case EventKind.UNKNOWN_FUNCTION:
            return f"{_whose(notice)} cannot run{_after_colon(notice.words)}"
        case EventKind.EXPIRED:
            return f"tasks of the function {notice.function} did not start, three times in a row{_after_colon(notice.words)}"
        case EventKind.HOST_LOST:
            return _part(notice.words)
        case EventKind.GROUP_TOO_LARGE:
            return f"{notice.function}{_after_colon(notice.words)}"
    return f"test notice from the ticker on {notice.host}, schema {notice.schema}: this channel works"


def _of_many(notice: Notice, digest: Digest) -> str:
    since = "" if notice.since is None else f" since {_moment(notice.since, notice.at)}"
    one, cause = digest.tasks == 1, _part(digest.cause)
    paused = f"; {'it was' if one else f'{digest.paused} were'} paused by the ticker" if digest.paused else ""
    if notice.what == EventKind.RECOVERED:
        healthy = one and notice.failures == 0
        had = "1 task had" if one else f"{digest.tasks} tasks had"
        return _sentence(notice) if healthy else f"no task fails any more with {cause}; {had} failed{since}"
    if one:
        return _sentence(notice) + paused
    more = digest.tasks - len(digest.examples)
    names = ", ".join(_named(*each) for each in digest.examples) + (f" and {more} more" if more else "")
    return f"{digest.tasks} tasks fail{since} with {cause}: {names}{paused}"


def _whose(notice: Notice) -> str:
    return _named(notice.task_name, notice.owner_type, notice.owner_id, notice.subject)


def _named(name: str, owner_type: str, owner_id: str, subject: str) -> str:
    named = f"{name} of {owner_type}:{owner_id}" if owner_type else name
    return f"{_part(subject)} ({named})" if subject else named


def _after_colon(words: str) -> str:
    return f": {_part(words)}" if words else ""


def _part(words: str) -> str:
    return printable(words, PART_AT_MOST)


def _moment(instant: datetime, reference: datetime) -> str:
    """Returns the time of day, with the date if `reference` is on another day."""
    instant, reference = instant.astimezone(UTC), reference.astimezone(UTC)
    return instant.strftime("%H:%M UTC" if instant.date() == reference.date() else "%Y-%m-%d %H:%M UTC")


def _instant(instant: datetime) -> str:
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
