"""What all charts share: round steps of a time axis, rows for what overlaps, and text that XML may hold. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from xml.sax.saxutils import escape

STEPS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 6, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600,
         43_200, 86_400)  # seconds  # fmt: skip
LONGER = 2  # above them, twice as much each time
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

P = TypeVar("P")


def packed(pieces: Iterable[tuple[float, float, P]]) -> list[tuple[int, P]]:
    """Each with the first row in which the place from its begin to its end is free; in the order of their begins."""
    free: list[float] = []
    found = []
    for begin, end, piece in sorted(pieces, key=lambda piece: piece[0]):
        row = next((number for number, since in enumerate(free) if since <= begin), len(free))
        free[row : row + 1] = [end]
        found.append((row, piece))
    return found


def step(total: timedelta, most: int) -> timedelta:
    """A round span, of which at most `most` make up the total."""
    seconds = next((seconds for seconds in STEPS if total <= most * seconds * SECOND), float(STEPS[-1]))
    while total > most * seconds * SECOND:
        seconds *= LONGER
    return seconds * SECOND


def marked(begin: datetime, end: datetime, every: timedelta) -> list[datetime]:
    """The instants of a time axis that bear a label: from begin to end, those that are round in UTC."""
    first = EPOCH + -(-(begin - EPOCH) // every) * every
    return [first + number * every for number in range((end - first) // every + 1)]


def label(instant: datetime, every: timedelta) -> str:
    """Of an axis with a label at each `every`: as little of the instant as tells two of them apart."""
    utc = instant.astimezone(UTC)
    if every >= DAY or (every >= MINUTE and utc.time() == EPOCH.time()):
        return f"{utc:%d %b}"
    text = f"{utc:%H:%M}" if every >= MINUTE else f"{utc:%H:%M:%S}"
    return text if every >= SECOND else f"{text}.{utc.microsecond // 100_000}"


def safe(text: str) -> str:
    """As XML may hold it: no control characters, whatever a name has."""
    return escape("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))
