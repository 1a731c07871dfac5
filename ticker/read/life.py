"""Draws the life of runs as bars, which share an axis of time: due, pushed, started, ended, and the limits. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ticker.model import Outcome
from ticker.read import explain
from ticker.read.explain import span
from ticker.read.tasks import RunRecord

LONG, THIN = 1000, 4  # of the axis, and of the thinnest part
FAR = 2  # limits are drawn up to so many times the span that was lived, and all while the run is at work


class Part(NamedTuple):
    """A part of a life from `begin` to `end`. Its kind is `planned`, `queue`, the outcome or the state. `d` is its path."""

    kind: str
    begin: datetime
    end: datetime
    words: str
    d: str = ""


class Life(NamedTuple):
    """The parts of one run's life, in order, and its limits. Those after the end of the axis have no path."""

    parts: Sequence[Part]
    limits: Sequence[Part]


class Lives(NamedTuple):
    """Lives below each other, from `begin` to `end`."""

    begin: datetime
    end: datetime
    lives: Sequence[Life]


def drawn(
    runs: Iterable[RunRecord], now: datetime, *, grace_ms: int | None = None, with_limits: bool = False
) -> Lives | None:
    """Returns the lives of these runs on one axis, or None if no time has passed in any. A run at work goes on until now.

    `grace_ms` is the task's.
    """
    known = [(run, [*parts(run, now)], [*limits(run, grace_ms)] if with_limits else []) for run in runs]
    begin = min((part.begin for _, lived, _ in known for part in lived), default=now)
    end = max((part.end for _, lived, _ in known for part in lived), default=now)
    for run, _, limit in known:
        ends = [one.end for one in limit if run.state == "running" or one.end <= begin + FAR * (end - begin)]
        end = max([end, *ends])
    if begin == end:
        return None

    def x(at: datetime) -> float:
        return round(LONG * ((at - begin) / (end - begin)), 1)

    def bar(part: Part) -> Part:
        width = max(round(x(part.end) - x(part.begin), 1), THIN)
        return part._replace(d=f"M{min(x(part.begin), LONG - width)} 4h{width}v12h-{width}z")

    def line(part: Part) -> Part:
        return part._replace(d=f"M{x(part.end)} 0v20")

    return Lives(
        begin, end,
        [Life([*map(bar, lived)], [line(one) if one.end <= end else one for one in limit]) for _, lived, limit in known],
    )  # fmt: skip


def parts(run: RunRecord, now: datetime) -> Iterator[Part]:
    """Yields what the run spent its time with. Of a job that was not taken, only the wait is known."""
    due, taken = explain.planned_for(run), run.started_at or run.checked_at or run.ended_at or now
    pushed = run.pushed_at or (taken if run.state == "planned" else due)
    if due < (to := min(pushed, taken)):
        words = "until its push" if run.pushed_at else "since it was due, and not pushed yet"
        yield Part("planned", due, to, f"{span(to - due)} {words}")
    if pushed < taken:
        yield Part(
            "queue",
            pushed,
            taken,
            f"{span(taken - pushed)} {'in its queue' if run.pushed_at else 'from its due time until a worker took it'}",
        )
    if begin := run.started_at or run.ended_at:
        end = run.ended_at or now
        yield Part(explain.what(run), begin, max(end, begin), ended(run, end - begin))


def ended(run: RunRecord, lasted: timedelta) -> str:
    what = explain.what(run).replace("_", " ")
    if run.started_at is None or run.outcome == Outcome.DROPPED:
        return f"not run: {what}"
    if run.outcome == Outcome.LOST:
        return f"declared lost after {span(lasted)}"
    return f"{span(lasted)} at work{' with its pieces' if run.pieces is not None else ''}: {what}"


def limits(run: RunRecord, grace_ms: int | None) -> Iterator[Part]:
    """Yields when the quota is exhausted, when the function is interrupted, and when the process is killed."""
    end = explain.end_of_box(run, grace_ms)
    if run.started_at is None or run.until is None or end is None or run.pieces is not None:
        return
    for kind, at in (("quota", end), ("soft limit", end + (run.until - end) / 2), ("hard limit", run.until)):
        yield Part(kind, run.started_at, at, f"{kind} {span(at - run.started_at)} after its start")
