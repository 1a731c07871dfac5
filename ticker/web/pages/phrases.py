"""Provides the words of the page. Each function is a filter of the templates."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib import parse

from ticker.model import Outcome
from ticker.read import activity, formatting
from ticker.read.entries import JournalEntry
from ticker.read.explain import span, time_of_day
from ticker.read.overview import OccurrenceStatus
from ticker.read.tasks import TickerStatus
from ticker.schedules.duration import SECOND
from ticker.tasks.fields import Task

MARKS = {
    Outcome.SUCCEEDED: "●", Outcome.PARTIAL: "◐", Outcome.NOTHING_TO_DO: "○", Outcome.FAILED: "✖", Outcome.TIMED_OUT: "■",
    Outcome.KILLED: "✖", Outcome.LOST: "?", Outcome.INTERRUPTED: "◌", Outcome.SLOWED_DOWN: "◇",
    Outcome.DROPPED: "↷",
}  # fmt: skip
OPEN = {"planned": "·", "pushed": "…", "running": "▶", "processing": "▶"}


def mark(what: str) -> str:
    """Returns one character for an outcome or a state. All events have the same character."""
    return MARKS.get(what) or OPEN.get(what, "◆")  # type: ignore[call-overload]


def silent(ticker: TickerStatus, most_ms: int | None) -> str:
    """Returns how long the ticker has been silent, or an empty text."""
    silence = ticker.silent_ms(most_ms) // SECOND * SECOND
    return span(silence) if silence else ""


def plain(word: str | None) -> str:
    return (word or "").replace("_", " ")


def ago(instant: datetime | None, now: datetime) -> str:
    """Returns how far the instant is from now, in words."""
    if instant is None:
        return "never"
    seconds = round((instant - now).total_seconds())
    if not seconds:
        return "now"
    return f"in {span(seconds * SECOND)}" if seconds > 0 else f"{span(-seconds * SECOND)} ago"


def lateness(task: Task) -> str:
    """Returns how late the last run started."""
    if task.last_run is None or task.last_occurrence is None or task.last_run < task.last_occurrence:
        return ""
    return span(task.last_run - task.last_occurrence)


def schedule(task: Task) -> str:
    """Returns the schedule in words, with its zone unless that is UTC."""
    words = formatting.in_words(task) or formatting.schedule_now(task)
    return words if task.zone in ("UTC", "") or task.zone in words else f"{words}, {task.zone}"


def sentence(entry: JournalEntry) -> str:
    """Returns the words of an entry of the journal, without the word that stands before them, and a drop's reason in words."""
    reason, colon, rest = entry.words.removeprefix(f"{entry.what}: ").partition(":")
    return (plain(reason) if entry.what == Outcome.DROPPED else reason) + colon + rest


def strip(statuses: Sequence[OccurrenceStatus]) -> str:
    """Describes the marks for screen readers."""
    counted = Counter(plain(status.outcome or status.state) for status in statuses)
    counts = ", ".join(f"{count} {word}" for word, count in counted.most_common())
    return f"the last {len(statuses)}: {counts}" if statuses else "no occurrence is recorded"


def status(one: OccurrenceStatus, now: datetime) -> str:
    """Returns the label of a mark: when the occurrence was due, and what became of it."""
    label = f"{time_of_day(one.due.replace(microsecond=0), now)} {plain(one.outcome or one.state)}"
    return f"{label}: {first_line(plain(one.reason))}" if one.reason else label


def first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def iso(instant: datetime | None) -> str:
    return instant.astimezone(UTC).isoformat(timespec="seconds") if instant else ""


def label(at: datetime, span: timedelta) -> str:
    """Returns the label of an axis of this length."""
    return f"{at:%d %b}" if span > 2 * activity.DAY else f"{at:%H:%M}" if span > activity.HOUR / 6 else f"{at:%H:%M:%S}"


def span_of(begin: datetime, step: timedelta, now: datetime) -> str:
    """Returns the filter of the runs that ended in a step. It has no end if that is to come."""
    return in_address({"since": begin, "until": begin + step if begin + step <= now else None})


def in_address(values: Mapping[str, str | datetime | None]) -> str:
    """Returns the values that are not empty as the query of an address."""
    exact = {name: formatting.plain_data(value) for name, value in values.items() if value}
    return parse.urlencode({name: text.replace(".000000Z", "Z") for name, text in exact.items()})


def text(value: Any) -> str:
    """Returns any value as text."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def kind(schema: Mapping[str, Any]) -> str:
    """Returns what a schema of the API allows, in words."""
    match schema:
        case {"$ref": ref}:
            return str(ref).rpartition("/")[2]
        case {"enum": values}:
            return " | ".join(values)
        case {"anyOf": parts} | {"allOf": parts}:
            return (" | " if "anyOf" in schema else " & ").join(kind(part) for part in parts)
        case {"type": "array", "items": items}:
            return f"list of {kind(items)}"
        case {"format": form}:
            return "time" if form == "date-time" else str(form)
        case {"type": name}:
            return str(name)
    return "any value"


def apart(ahead: timedelta | None) -> str:
    if ahead is None:
        return "not known to differ from"
    if abs(ahead) < timedelta(seconds=1):
        return "within a second of"
    return f"{span(abs(ahead))} {'ahead of' if ahead > timedelta() else 'behind'}"
