"""Reads a single time: ISO 8601 with an offset, or seconds or milliseconds since 1970."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules.duration import milliseconds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)
MILLISECONDS_FROM = 10**11  # in seconds, this is the year 5138; in milliseconds, it is March 1973
_HOW = "is not a time; write 2026-05-01T09:00:00+02:00, or seconds or milliseconds since 1970"
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Once:
    """A schedule that fires once, at `at`, which is in UTC."""

    at: datetime
    zone: ZoneInfo
    kind: Kind = field(default=Kind.ONCE, init=False)

    @property
    def text(self) -> str:
        return self.at.isoformat().replace("+00:00", "Z")

    def next_after(self, instant: datetime) -> datetime | None:
        return self.at if self.at > instant else None

    def words(self) -> str:
        return f"Once, on {self.at.astimezone(self.zone):%-d %B %Y at %H:%M:%S}"


def parse(value: object, zone: ZoneInfo, field: str = "at") -> Once:
    """Reads a single time, or a datetime with a zone. Raises BadInput."""
    at = _read(field, value)
    if not EPOCH <= at <= LAST:
        raise BadInput(field, value, "is not between the years 1970 and 2199")
    return Once(at.astimezone(UTC), zone)


def instant(field: str, text: str, now: Callable[[], datetime]) -> datetime:
    """Reads ISO 8601 with a zone, or a duration from now. Raises BadInput."""
    if not _DATE.match(text):
        try:
            return now() + timedelta(milliseconds=milliseconds(field, text))
        except BadInput as error:
            raise BadInput(field, text, f"{error.problem}; or write a time such as 2026-07-01T12:00:00Z") from None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(field, text, "is not a time; write 2026-07-01T12:00:00Z, or a duration such as 2h") from None
    if read.tzinfo is None:
        raise BadInput(field, text, "has no zone; append Z for UTC, as in 2026-07-01T12:00:00Z")
    try:
        return read.astimezone(UTC)
    except OverflowError:
        raise BadInput(field, text, "is not a time between the years 1 and 9999") from None


def _read(field: str, value: object) -> datetime:
    if isinstance(value, datetime):
        return _with_offset(field, value, value)
    if isinstance(value, str) and len(value) < 40 and _NUMBER.fullmatch(text := value.strip()):
        value = float(text) if "." in text else int(text)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(field, value, _HOW)
    if isinstance(value, int | float):
        return _since_1970(field, value)
    try:
        return _with_offset(field, value, datetime.fromisoformat(value.strip()) if len(value) <= 60 else None)
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(field, value, _HOW) from None


def _with_offset(field: str, value: object, at: datetime | None) -> datetime:
    if at is None:
        raise BadInput(field, value, _HOW)
    if at.utcoffset() is None:
        raise BadInput(
            field,
            value,
            "has no offset from UTC; write 2026-05-01T09:00:00+02:00, or Z for UTC; a datetime needs a tzinfo",
        )
    return at


def _since_1970(field: str, number: float) -> datetime:
    milliseconds = number if abs(number) >= MILLISECONDS_FROM else 1000 * number
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except (OverflowError, ValueError):  # infinite, or no number
        raise BadInput(field, number, "is not between the years 1970 and 2199") from None
