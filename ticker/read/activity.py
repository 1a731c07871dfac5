"""Reads what ended over time, from the counts of minutes and hours, and draws it. So it costs the same for any number of tasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from ticker.db.sql import Row
from ticker.db.steps import Steps, reads
from ticker.errors import BadInput
from ticker.model import Outcome
from ticker.read.entries import instant
from ticker.read.explain import span as figure
from ticker.schedules.duration import SECOND
from ticker.schedules.once import EPOCH
from ticker.tasks.rows import query

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SPANS = {"2h": (2 * HOUR, MINUTE), "24h": (DAY, HOUR), "7d": (7 * DAY, 2 * HOUR), "30d": (30 * DAY, 6 * HOUR)}
"""The spans that can be read, each with the step of its points."""
KEPT = {MINUTE: 30 * DAY, HOUR: 400 * DAY}  # the counts of each step; a ticker deletes older ones
STEPS = {60_000: "a minute", 3_600_000: "an hour", 7_200_000: "in 2 hours", 21_600_000: "in 6 hours"}


@dataclass(frozen=True, slots=True)
class ActivityPoint:
    """What ended from `at` until the next point: runs by outcome, and drops by reason.

    Half of the runs that had started were at most `late_p50_ms` late, and 95% at most `late_p95_ms`, which are ends of
    buckets: 1 s, 2 s, 4 s and so on. `busy` is the share of the listening workers that were busy, summed over queues.
    None means that nothing started, or that no ticker saw a worker.
    """

    at: datetime
    outcomes: Mapping[str, int]
    drops: Mapping[str, int]
    late_p50_ms: int | None
    late_p95_ms: int | None
    busy: float | None


@dataclass(frozen=True, slots=True)
class Activity:
    """The points of a span, oldest first. Those from `counted_until` on are not counted yet."""

    span: str
    step_ms: int
    counted_until: datetime | None
    points: tuple[ActivityPoint, ...]


@reads
def activity(span: str = "2h", *, at: datetime | None = None) -> Steps[Activity]:
    """Returns what ended in the last two hours (`2h`), by minute, or in `24h`, `7d` or `30d`.

    The last point is that of `at`, by default now. Minutes that are no longer kept are read as hours.
    """
    if span not in SPANS:
        raise BadInput("span", span, f"is not one of: {', '.join(SPANS)}")
    (length, step), now = SPANS[span], (yield from instant.steps())
    end = _end(at or now, step)
    if step == MINUTE and end - length < now - KEPT[MINUTE]:
        end, step = _end(at or now, HOUR), HOUR
    times = [end - length + step * number for number in range(length // step)]
    rows: dict[datetime, list[Row]] = {at: [] for at in times}
    for row in (yield query("activity", since=times[0], until=end, step=step, by_minute=step == MINUTE)):
        if row["at"] in rows:
            rows[row["at"]].append(row)
    counted = yield query("counted_until")
    points = tuple(_point(at, of_step) for at, of_step in rows.items())
    return Activity(span, step // timedelta(milliseconds=1), counted[0]["counted_until"] if counted else None, points)


def _end(at: datetime, step: timedelta) -> datetime:
    """Returns the end of the step that holds a time."""
    return EPOCH + (at - EPOCH) // step * step + step


def _point(at: datetime, rows: Sequence[Row]) -> ActivityPoint:
    outcomes = {row["outcome"]: row["count"] for row in rows if row["outcome"] not in ("", Outcome.DROPPED)}
    drops = {row["reason"]: row["count"] for row in rows if row["outcome"] == Outcome.DROPPED}
    buckets = [sum(count or 0 for count in counts) for counts in zip(*(row["late"] for row in rows), strict=True)]
    listening = sum(row["listening"] for row in rows)
    busy = round(sum(row["busy"] for row in rows) / listening, 3) if listening else None
    return ActivityPoint(at, outcomes, drops, within(buckets, 0.5), within(buckets, 0.95), busy)


def within(buckets: Sequence[int], share: float) -> int | None:
    """Returns the end of the bucket, in milliseconds, that this share of the values does not exceed."""
    left = share * sum(buckets)
    for number, count in enumerate(buckets):
        left -= count
        if count and left <= 0:
            return SECOND << number
    return None


# ------------------------------------------------------------------------------------------------------- the picture

HEIGHT, WIDTH = 100, 0.84  # of a track, and of a bar, whose place in the picture is its number
RANKS = 4  # reasons of drops with a colour of their own; the last one stands for all others


class Track(NamedTuple):
    """A row of the chart. `note` says how high it is. `bars` has one path for each kind of bar."""

    name: str
    note: str
    bars: Mapping[str, str]


class Total(NamedTuple):
    """How many of a kind there were in the whole span."""

    kind: str
    word: str
    number: int


def words(point: ActivityPoint) -> tuple[str, str, str, str]:
    """Returns what ended, what was dropped, how late runs started, and how busy workers were. Each may be empty."""
    late = point.late_p50_ms and point.late_p95_ms
    return (
        ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in _ordered(point.outcomes)),
        ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in sorted(point.drops.items())),
        f"half within {figure(point.late_p50_ms or 0)}, 95% within {figure(point.late_p95_ms or 0)}" if late else "",
        "" if point.busy is None else f"{point.busy:.0%}",
    )


def title(point: ActivityPoint) -> str:
    named = zip(("ended", "dropped", "started", "busy"), words(point), strict=True)
    said = "; ".join(f"{name}: {text}" for name, text in named if text)
    return f"{point.at:%d %b %H:%M} UTC, {said or 'nothing'}"


def totals(seen: Activity) -> list[Total]:
    """Returns the totals of the outcomes, and of the reasons of drops, those with most drops first."""
    ended = [(str(word), sum(point.outcomes.get(word, 0) for point in seen.points)) for word in Outcome]
    dropped = {word: 0 for point in seen.points for word in point.drops}
    for word in dropped:
        dropped[word] = sum(point.drops.get(word, 0) for point in seen.points)
    ranked = sorted(dropped.items(), key=lambda one: (-one[1], one[0]))
    return [
        *(Total(word, word, count) for word, count in ended if count),
        *(Total(f"drop-{min(rank, RANKS)}", word, count) for rank, (word, count) in enumerate(ranked, 1)),
    ]


def tracks(seen: Activity) -> list[Track]:
    """Returns the rows of the chart."""
    points, kinds = seen.points, {one.word: one.kind for one in totals(seen) if one.kind.startswith("drop-")}
    ended, drops = [_ordered(point.outcomes) for point in points], list[list[tuple[str, int]]]()
    for point in points:
        drops.append(sorted((kinds[word], count) for word, count in point.drops.items()))
    late = [[("late-p95", point.late_p95_ms or 0)] for point in points]
    half = [[("late-p50", point.late_p50_ms or 0)] for point in points]
    busy = [[("busy", point.busy or 0)] for point in points]
    slowest, per = _most(late), STEPS[seen.step_ms]
    return [
        Track("Ended", f"up to {_most(ended):,.0f} {per}", paths(ended, _most(ended))),
        Track(
            "Late",
            f"95% within {figure(int(slowest))}" if slowest else "",
            paths(late, slowest) | paths(half, slowest),
        ),
        Track("Dropped", f"up to {_most(drops):,.0f} {per}", paths(drops, _most(drops))),
        Track("Busy", f"up to {_most(busy):.0%}", paths(busy, 1)),
    ]


def labels(seen: Activity) -> list[str]:
    """Returns up to four times below the chart, at equal distances."""
    parts, form = min(4, len(seen.points)), "%H:%M" if SPANS[seen.span][0] <= DAY else "%d %b"
    return [f"{seen.points[len(seen.points) * part // parts].at:{form}}" for part in range(parts)]


def _ordered(outcomes: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(str(word), outcomes[word]) for word in Outcome if word in outcomes]


def _most(columns: Iterable[Sequence[tuple[str, float]]]) -> float:
    return max((sum(size for _, size in column) for column in columns), default=0)


def paths(columns: Iterable[Sequence[tuple[str, float]]], most: float) -> dict[str, str]:
    """Returns one path for each kind, with a bar for each column. The parts of a column are stacked from below."""
    paths: dict[str, str] = {}
    for x, column in enumerate(columns):
        for kind, bar in _bars(x, column, most):
            paths[kind] = paths.get(kind, "") + bar
    return paths


def _bars(x: int, column: Sequence[tuple[str, float]], most: float) -> Iterator[tuple[str, str]]:
    y = float(HEIGHT)
    for kind, size in column:
        if size:
            height = HEIGHT * size / most
            y -= height
            yield kind, f"M{x} {y:.1f}h{WIDTH}v{height:.1f}h-{WIDTH}z"
