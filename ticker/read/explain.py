"""Explains in one line what became of an occurrence, with the numbers that decided it. Pure: reads no clock.

Measured spans have one spelling, with three digits at most (`0.031 s`, `28.6 s`, `5 min 3 s`, `2 h`). Settings are written
as they were set (`1h30m`). Times of day are in UTC, with
milliseconds, and with their date if it differs from the date of the line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from ticker.engine import timing
from ticker.errors import load_function
from ticker.model import Outcome, Reason, RunKind
from ticker.schedules.duration import DAY, HOUR, MINUTE, SECOND, figure

if TYPE_CHECKING:
    from ticker.read.tasks import RunRecord

UNITS = {"d": DAY, "h": HOUR, "min": MINUTE, "s": SECOND}
ITEM_AT_MOST = 60  # characters of a piece of work in a line
WAITS_BECAUSE: Mapping[str, str] = {
    Reason.NO_ROOM: "one of its keys had no room",
    Reason.CLOSED: "the task was paused or disabled, or its owner was inactive",
    Reason.STILL_RUNNING: "another run held the task",
    Reason.UNKNOWN_HERE: "the worker that took its job does not know its function",
    Reason.NO_SLOT: "its group had no free slot, or its process started no further runs",
    Reason.TOO_EARLY: "it was requested by a run of the same task, and keeps the spacing",
}
"""Why an occurrence or a planned run went back to its row, by the stored reason. It is pushed again."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Counts of one run's pieces. A piece that is attempted again counts once."""

    done: int = 0
    failed: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """The values that a line needs besides its row: the time, the task's numbers, and why the job was not run."""

    now: datetime
    attempts: int = 1
    grace_ms: int | None = None
    pieces: Pieces | None = None
    because: str = ""


# ------------------------------------------------------------------------------------------------------ in figures


def span(duration: timedelta | int) -> str:
    """Formats a measured duration, given in milliseconds or as a timedelta, for people. Has three digits at most."""
    ms = duration if isinstance(duration, int) else round(duration / timedelta(milliseconds=1))
    if abs(ms) < 2 * MINUTE:
        return f"{ms / SECOND:.3g} s"
    unit, smaller = next(pair for pair in pairwise(UNITS) if abs(ms) >= UNITS[pair[0]])
    count, rest = divmod(abs(ms), UNITS[unit])
    fine = rest // UNITS[smaller] if count < 10 else 0
    return f"{'-' if ms < 0 else ''}{count} {unit}" + (f" {fine} {smaller}" if fine else "")


def elapsed(since: datetime, now: datetime) -> str:
    """Formats the time from an instant to `now`. A row that changed after `now` was read may be a moment ahead of it."""
    return span(max(now - since, timedelta(0)))


def ago(age_ms: int) -> str:
    """Returns how long ago something was, in whole seconds. An age is negative if the clock was set back since then."""
    text = span(abs(age_ms) // SECOND * SECOND)
    return f"{text} ago" if age_ms >= 0 else f"{text} ahead of the database's clock"


def counted(number: int, word: str) -> str:
    """Returns a number of things: `1 task`, `2 tasks`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def time_of_day(instant: datetime, other: datetime) -> str:
    """Formats the time of day with milliseconds, and with the date if the other instant is on another day."""
    utc = instant.astimezone(UTC)
    text = utc.time().isoformat(timespec="milliseconds").removesuffix(".000")
    return text if utc.date() == other.astimezone(UTC).date() else f"{utc:%Y-%m-%d} {text}"


# -------------------------------------------------------------------------------------------------------- the line


def due(run: "RunRecord") -> datetime:
    """Returns the instant for which the run was meant."""
    return run.occurrence or run.due_at or run.created_at


def planned_for(run: "RunRecord") -> datetime:
    """Returns when the run was to start. A further attempt of an occurrence has its own time."""
    return due(run) if run.kind == RunKind.SCHEDULED else run.due_at or due(run)


def at(run: "RunRecord") -> datetime:
    """Returns when the run's outcome was decided: its start or its drop, or else its last known step."""
    return run.started_at or run.checked_at or run.ended_at or run.pushed_at or run.due_at or run.created_at


def what(run: "RunRecord") -> str:
    return str(run.outcome or run.state)


def line(run: "RunRecord", context: ExplainContext) -> str:
    """Returns the text that follows the time and the outcome."""
    if run.outcome == Outcome.DROPPED:
        return f"{run.reason}: {dropped(run, context.because)}"
    parts = [identity(run, context.attempts), progress(run, context), pieces(context.pieces, run.pieces), stopping(run)]
    text = "; ".join(part for part in parts if part)
    return f"{text}: {reason(run)}" if run.reason else text


def stopping(run: "RunRecord") -> str:
    """Says who has asked to stop a run that has not ended."""
    if run.stop_requested_at is None or run.ended_at is not None:
        return ""
    return f"{run.stop_requested_by} asked to stop it at {time_of_day(run.stop_requested_at, run.created_at)}"


def reason(run: "RunRecord") -> str:
    """Returns the reason of a run that was not dropped. A planned run says what it waits for, or why its push failed."""
    cause = WAITS_BECAUSE.get(run.reason)
    return f"it waits because {cause}" if cause and run.state == "planned" else run.reason


def identity(run: "RunRecord", attempts: int) -> str:
    """Says which piece or attempt the run is, or that it was requested by hand. The text is empty for an ordinary run."""
    of_kind = {RunKind.MANUAL: "requested by hand", RunKind.PIECE: f"piece {item(run)} of run {run.parent_id}"}
    parts = [of_kind.get(run.kind, ""), attempt(run, attempts), "attempted again" if run.retried else ""]
    return ", ".join(part for part in parts if part)


def attempt(run: "RunRecord", attempts: int) -> str:
    """Says which attempt the run is, and how many the task now allows. The text is empty if it was the only one and has
    ended.
    """
    if run.attempt == 1 and not run.retried and run.state == "ended":
        return ""
    most = max(attempts, run.attempt)
    return f"attempt {run.attempt} of {most}" if attempts > 1 else f"attempt {run.attempt}" if run.attempt > 1 else ""


def item(run: "RunRecord") -> str:
    text = json.dumps(run.item, ensure_ascii=False)
    return text if len(text) <= ITEM_AT_MOST else f"{text[:ITEM_AT_MOST]}…"


def progress(run: "RunRecord", context: ExplainContext) -> str:
    """Says when the run started, compared with when it was due, and how long it took."""
    if run.started_at is None:
        return unstarted(run, context.now)
    began = f"started {lateness(run.started_at, planned_for(run))}"
    if run.outcome == Outcome.LOST:  # its end is not known
        return began
    end = run.ended_at or context.now
    lasted = f"took {span(end - run.started_at)}" if run.ended_at else f"for {elapsed(run.started_at, end)} now"
    extent = " with its pieces" if run.pieces is not None else of_its_box(run, context.grace_ms)
    return f"{began}, {lasted}{extent}"


def lateness(instant: datetime, due: datetime) -> str:
    when = time_of_day(due, instant)
    if instant == due:
        return "when it was due"
    if instant < due:
        return f"{span(due - instant)} before it was due at {when}"
    return f"{span(instant - due)} after it was due at {when}"


def of_its_box(run: "RunRecord", grace_ms: int | None) -> str:
    """Says how long the run's box is."""
    end = end_of_box(run, grace_ms)
    if end is None or run.started_at is None:
        return ""
    return f" of its {figure(round((end - run.started_at) / timing.span(1)))}"


def end_of_box(run: "RunRecord", grace_ms: int | None = None) -> datetime | None:
    """Returns when the run's box is over. `until` includes the grace, which depends on the run's interval, or else on the
    task.
    """
    if run.until is None or run.started_at is None:
        return None
    grace = timing.grace(run.every_ms) if run.every_ms else SECOND if grace_ms is None else grace_ms
    return run.until - timing.span(grace)


def unstarted(run: "RunRecord", now: datetime) -> str:
    when = time_of_day(planned_for(run), now)
    if run.ended_at is not None:
        return f"never started; it was due at {when}"
    if run.pushed_at is not None:
        return f"pushed {elapsed(run.pushed_at, now)} ago, not started yet"
    later = planned_for(run) - now
    return f"planned for {when}" + (f", in {span(later)}" if later > timedelta(0) else "; it is due")


def pieces(count: Pieces | None, made: int | None = None) -> str:
    """Says how many pieces are done. The total is `made` if that is more, as records of pieces may have been pruned."""
    if count is None and not made:
        return ""
    count = count or Pieces()
    kept = count.done + count.failed + count.open
    total = max(kept, made or 0)
    parts = [f"{count.done} done", f"{count.failed} failed"] if kept or not total else []
    parts += [f"{count.open} to come"] * bool(count.open) + [f"{total - kept} no longer kept"] * (kept < total)
    return f"{counted(total, 'piece')}: {', '.join(parts)}"


def waiting(occurrence: datetime, now: datetime) -> str:
    """Describes an occurrence that was pushed, but that no worker has taken yet."""
    return f"its job was pushed and has not started, {elapsed(occurrence, now)} after it was due"


# ------------------------------------------------------------------------------------------------------------ drops


def dropped(run: "RunRecord", because: str = "") -> str:
    """Explains the drop, with the numbers that decided it. `because` is the cause, if other rows contain it."""
    match run.reason:
        case Reason.TOO_EARLY:
            return too_early(run)
        case Reason.CLOCK:
            return "the database's clock has been set back since the last start" + set_back_by(run)
        case Reason.EXPIRED:
            return expired(run)
        case Reason.MISSED:
            return f"{passed(run)}, when a later occurrence was already due; the task skips late runs (catch_up none)"
        case Reason.NO_TIME:
            return no_time(run)
        case Reason.STILL_RUNNING:
            return because or "another run held the task"
        case Reason.PAUSED:
            return because or "the task was disabled, or its owner was inactive"
        case Reason.DUPLICATE:
            return duplicate(run)
        case Reason.SUPERSEDED:
            kept = "it was kept waiting until the task was due at another time, or not at all"
            return kept + (f"; {because}" if because else last_start(run))
        case Reason.ADOPTED:
            return "its job belonged to another installation when these tables were adopted"
        case Reason.STOPPED:
            return f"{run.stop_requested_by or 'somebody'} stopped it before it started"
        case Reason.GONE:
            return "the task was deleted before its job was taken"
        case Reason.DONE:
            return "the task has had all its runs"
        case Reason.UNKNOWN_FUNCTION:
            if run.worker:
                here = f"worker {run.worker} on {run.host or '?'} does not know the function {run.function!r}"
                return f"{here}; {load_function(run.queue)}"
            return f"for ten minutes, no worker started the function {run.function!r}; {load_function(run.queue)}"
    return "the job was taken, but not run"


def duplicate(run: "RunRecord") -> str:
    if run.kind in (RunKind.RETRY, RunKind.PIECE):
        return "the attempt before it had succeeded, which was recorded late"
    return "a newer occurrence had started before" + last_start(run)


def too_early(run: "RunRecord") -> str:
    last, now, earliest = run.checked_last_run, run.checked_at, run.earliest
    if last is None or now is None or earliest is None:
        return "its numbers were not recorded"
    return (
        f"{span(now - last)} after the last start at {time_of_day(last, now)}, {span(earliest - now)} too early"
        f" ({figure(run.every_ms or 0)} interval, {figure(run.tolerance_ms or 0)} tolerance:"
        f" not before {time_of_day(earliest, now)})"
    )


def set_back_by(run: "RunRecord") -> str:
    if run.checked_last_run is None or run.checked_at is None:
        return ""
    return f", by {span(run.checked_last_run - run.checked_at)} or more"


def expired(run: "RunRecord") -> str:
    age = (run.checked_at or run.ended_at or due(run)) - due(run)
    limit = timing.expiry(run.every_ms or 0)
    if age > timing.span(limit):
        return f"it had waited {span(age)} since it was due, over the limit of {figure(limit)}, and a newer occurrence was waiting"
    return f"its job was gone {span(age)} after it was due, and a newer occurrence was waiting"


def passed(run: "RunRecord") -> str:
    return f"it was checked {span((run.checked_at or run.ended_at or due(run)) - due(run))} after it was due"


def no_time(run: "RunRecord") -> str:
    """Explains that a retry or a piece of an interval task must end, with its grace, before the earliest next start."""
    sentence = "it could not have ended before the next start"
    if run.checked_last_run is None or run.checked_at is None or not run.every_ms or run.tolerance_ms is None:
        return sentence
    if run.occurrence is None:  # a piece of a manual run is bounded by the task's next due time instead
        return sentence
    end = timing.last_end(run.checked_last_run, run.every_ms, run.tolerance_ms, timing.grace(run.every_ms))
    left = max(end - run.checked_at, timedelta(0))
    limit = timing.span(timing.LEAST_RETRY)
    when = time_of_day(end, run.checked_at)
    if left >= limit:
        return sentence
    return f"{sentence}: {span(left)} were left until {when}, below the minimum of {figure(timing.LEAST_RETRY)}"


def last_start(run: "RunRecord") -> str:
    if run.checked_last_run is None or run.checked_at is None:
        return ""
    return f"; the last start was at {time_of_day(run.checked_last_run, run.checked_at)}"
