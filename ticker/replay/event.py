"""Reads the events that a row of a timing table may name, and times on the table's own clock."""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from ticker.errors import BadInput
from ticker.model import Reason

HOW = (
    "initial state, tick enqueues A1, tick enqueues nothing, A1 begins, A1 ends, A1 is dropped, A1 is dropped: too_early, "
    "A1 is forced to end, run now, M1 begins"
)
_NAME = r"[AM][1-9][0-9]{0,3}"
_TIME = re.compile(r"(?:([0-9]{1,5}):([0-5][0-9])|([0-9]{1,4})):([0-5][0-9])(?:\.([0-9]{1,3}))?")


class Step(StrEnum):
    """The kinds of events, in the words of a row."""

    INITIAL = "initial state"
    TICK = "tick enqueues"
    BEGINS = "begins"
    ENDS = "ends"
    DROPPED = "is dropped"
    FORCED = "is forced to end"
    RUN_NOW = "run now"


_FORMS = {
    Step.INITIAL: re.compile(r"initial state"),
    Step.TICK: re.compile(rf"tick enqueues (nothing|{_NAME}(?:(?:, | and ){_NAME})*)"),
    Step.BEGINS: re.compile(rf"({_NAME}) begins"),
    Step.ENDS: re.compile(rf"({_NAME}) ends"),
    Step.DROPPED: re.compile(rf"({_NAME}) is dropped(?:: ?([a-z_]+))?"),
    Step.FORCED: re.compile(rf"({_NAME}) is forced to end"),
    Step.RUN_NOW: re.compile(r"run now"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event. A1, A2, … are the scheduled jobs and M1, M2, … the requested ones, in the order of their pushes or requests."""

    what: Step
    names: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        match self.what:
            case Step.INITIAL | Step.RUN_NOW:
                return str(self.what)
            case Step.TICK:
                return f"{self.what} {', '.join(self.names) or 'nothing'}"
        return f"{self.names[0]} {self.what}" + (f": {self.reason}" if self.reason else "")

    def allows(self, actual: "Event") -> bool:
        """Returns whether `actual` is this event. A drop without a reason allows any reason."""
        return (self.what, self.names) == (actual.what, actual.names) and self.reason in ("", actual.reason)


def read_event(field: str, text: str) -> Event:
    """Returns the event that a text names. Raises BadInput with the events that exist."""
    plain = " ".join(text.split())
    for what, form in _FORMS.items():
        if match := form.fullmatch(plain):
            names, reason = (*match.groups(), None, None)[:2]
            if reason and reason not in list(Reason):
                raise BadInput(field, reason, f"is not a reason for a drop; the reasons are {', '.join(Reason)}")
            return Event(what, tuple(re.findall(_NAME, names or "")), reason or "")
    raise BadInput(field, text, f"is not an event; write one of: {HOW}")


def read_time(field: str, text: str) -> timedelta:
    """Parses a time since the table's 00:00: MM:SS or HH:MM:SS, with up to three decimals."""
    match = _TIME.fullmatch(text)
    if not match:
        raise BadInput(field, text, "is not a time; write MM:SS or HH:MM:SS, such as 01:30")
    hours, minutes, only_minutes, seconds, decimals = match.groups()
    return timedelta(
        hours=int(hours or 0),
        minutes=int(minutes or only_minutes),
        seconds=int(seconds),
        milliseconds=int((decimals or "").ljust(3, "0")),
    )


def clock(at: timedelta | None, hours: bool) -> str:
    """Formats a time the way `read_time` reads it; `-` for None."""
    if at is None:
        return "-"
    seconds, rest = divmod(at, timedelta(seconds=1))
    minutes, second = divmod(seconds, 60)
    decimals = f".{rest // timedelta(milliseconds=1):03}".rstrip("0") if rest else ""
    head = f"{minutes // 60:02}:{minutes % 60:02}" if hours else f"{minutes:02}"
    return f"{head}:{second:02}{decimals}"
