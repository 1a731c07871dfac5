"""Decides what the end of a run leads to: a retry, a longer interval, a pause, or a notice. Each pass does this.

An end that leads to nothing, such as a success of a healthy task, is not handled here. A pass judges the present state
of a task, not each change. A task that failed and succeeded between two passes is healthy, and no notice is sent.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from ticker.engine import timing
from ticker.engine.passes import Followed
from ticker.engine.ports import Store
from ticker.engine.timing import Backoff
from ticker.errors import BadInput, cause, load_function, not_announced, quoted
from ticker.model import GOOD, Alarm, Ended, EventKind, Health, Kind, Note, Outcome, RunKind
from ticker.schedules import hours, kinds
from ticker.schedules.duration import DAY, HOUR, words
from ticker.schedules.interval import MILLISECOND

PROBE = HOUR  # how long an automatic pause lasts by default
LONGEST_PROBE = DAY
DOUBLED_AT_MOST = 40  # after this many doublings, every limit is reached
TIMES_AT_MOST = 5  # of a schedule, computed for one alarm: for 29 February, each takes half a millisecond
ALARMS_AT_MOST = 100  # checked in one transaction, with their rows locked
ALARM_BATCHES = 50  # in one pass: all due tasks wait until it has checked the alarms
ASK_AGAIN = timing.span(DAY)  # for a task that is done: it may be given more to do


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one end: a retry at `due`, or a note that explains why there is no retry."""

    run: Ended
    due: datetime | None = None
    note: str = ""


def follow_up(store: Store, now: datetime, limit: int) -> Followed:
    """Handles all open ends, and those of runs whose pieces are done. Then checks for missing successes and unknown
    functions.
    """
    total = follow_ends(store, now, limit) + ask_for_successes(store, now, limit)
    return total + Followed(events=report_unknown(store, now))


def follow_ends(store: Store, now: datetime, limit: int) -> Followed:
    total = Followed()
    while True:
        followed = follow_batch(store, now, limit)
        total += followed
        if followed.ended < limit:
            with store.batch() as rows:
                if not rows.sum_up(now, limit):  # these are ends, too
                    return total


def follow_batch(store: Store, now: datetime, limit: int) -> Followed:
    with store.batch() as rows:
        ended = rows.claim_ended(limit)
        verdicts = [judge(run, now) for run in ended]
        again = [(verdict.run.run_id, verdict.due) for verdict in verdicts if verdict.due]
        rows.mark_followed([(v.run.run_id, v.due is not None, v.note) for v in verdicts])
        rows.plan_retries(again, now)
        states, notes = judge_tasks(verdicts, now)
        rows.judge_tasks(states)
        rows.record_events(notes, now)
    return Followed(len(ended), len(again), len(notes))


# ------------------------------------------------------------------------------------------------ further attempts


def judge(run: Ended, now: datetime) -> Verdict:
    """Decides whether a run that ended is attempted again, and when."""
    if run.outcome in GOOD or not run.retries or not may_be_retried(run):
        return Verdict(run)
    if run.attempt > run.retries:
        return Verdict(run, note=f"attempt {run.attempt} of {run.retries + 1}: no retry is left")
    if run.is_past:
        return Verdict(run, note="no retry: a newer occurrence has started, or waits for a worker")
    due = max(timing.later(run.ended_at, backoff(run).after(run.attempt, run.run_id)), now)
    end = last_end(run)
    if end is not None and due + timing.span(timing.LEAST_RETRY) > end:
        left = max((end - due).total_seconds(), 0)
        return Verdict(
            run, note=f"no retry: {left:g} s would be left for it before the next start, below the minimum of 1 s"
        )
    return Verdict(run, due)


def may_be_retried(run: Ended) -> bool:
    """Returns whether a run may be attempted again: a started run of an occurrence or a piece that nobody asked to
    stop.

    A run that made pieces is done. The pieces have their own attempts.
    """
    is_tried = run.started and not run.stopped and run.outcome not in (Outcome.DROPPED, Outcome.SLOWED_DOWN)
    return is_tried and run.kind is not RunKind.MANUAL and not run.has_pieces


def backoff(run: Ended) -> Backoff:
    try:
        return Backoff.parse("backoff", run.backoff)
    except BadInput:  # a row edited by hand
        return Backoff()


def last_end(run: Ended) -> datetime | None:
    """Returns when the box of a further attempt must be over, by the same rule as the start statement; None for no
    limit.
    """
    if run.schedule is Kind.INTERVAL and run.occurrence is not None:
        return run.last_run and timing.last_end(run.last_run, run.every_ms, run.tolerance_ms, run.grace_ms)
    return run.next_run and run.next_run - timing.span(run.tolerance_ms + run.grace_ms)


# -------------------------------------------------------------------------------------------------- the task's health


def judge_tasks(verdicts: Sequence[Verdict], now: datetime) -> tuple[list[Health], list[Note]]:
    """Returns the new states of the tasks, and notes.

    Pieces do not count, but their run does, once all of them are done.
    """
    states, notes = [], []
    counting = sorted(
        (v for v in verdicts if v.run.kind is not RunKind.PIECE and (v.run.outcome in GOOD or is_failure(v.run))),
        key=lambda v: (v.run.task_id, v.run.run_id),
    )
    for _, of_one in groupby(counting, key=lambda v: v.run.task_id):
        state, task_notes = judge_task(list(of_one), now)
        states.append(state)
        notes += task_notes
    return states, notes


def judge_task(verdicts: Sequence[Verdict], now: datetime) -> tuple[Health, list[Note]]:
    """Returns the new state of one task, and notes. `verdicts` has the verdicts on that task's runs, in the order of
    the runs.
    """
    last = verdicts[-1]
    run = last.run
    failures = run.failures + sum(counts_here(verdict) for verdict in verdicts)
    state = Health(run.task_id, failures, run.told, run.stretched_ms, run.next_run, run.alarm_at, cause=run.cause)
    if failures > 0:
        is_open = last.due or run.outcome in GOOD  # one more attempt decides, or another run failed
        return (state, []) if is_open else failing(run, state, now)
    return recovered(run, state, now) if run.outcome in GOOD or run.made_good else (state, [])


def is_failure(run: Ended) -> bool:
    """Returns whether the run failed. Earlier attempts decide if it was interrupted, slowed down, dropped or lost with its
    host.
    """
    if run.with_host or run.outcome in (Outcome.INTERRUPTED, Outcome.SLOWED_DOWN, Outcome.DROPPED):
        return run.failed_before
    return run.outcome not in GOOD


def counts_here(verdict: Verdict) -> bool:
    """Returns whether this is a final failure of a task with retries. When the run ended, that was unknown, so it
    counts here.
    """
    run = verdict.run
    unstarted = not run.started and run.kind is RunKind.SCHEDULED  # counted when it was given up
    counted = run.kind is RunKind.MANUAL or not run.retries or unstarted
    return is_failure(run) and not verdict.due and not run.made_good and not counted


def recovered(run: Ended, state: Health, now: datetime) -> tuple[Health, list[Note]]:
    notes, every = [], interval(run)
    if run.stretched_ms is not None:
        next_run = (
            run.next_run and run.last_run and not run.is_asked and min(run.next_run, timing.later(run.last_run, every))
        )
        state = replace(state, stretched_ms=None, next_run=next_run or run.next_run)
        notes.append(Note(run.task_id, EventKind.RESTORED, f"every {words(every)} again", run.run_id))
    if run.told:
        notes.append(Note(run.task_id, EventKind.RECOVERED, "it succeeded again", run.run_id))
    alarm_at = now if run.dead_man and run.alarm_at is None else run.alarm_at
    return replace(state, told="", cause="", alarm_at=alarm_at), notes


def failing(run: Ended, state: Health, now: datetime) -> tuple[Health, list[Note]]:
    notes = []
    why = why_failed(run)
    state = replace(state, cause=cause(why.removeprefix("failed: ")))
    if not run.told:
        state = replace(state, told="failed")
        notes.append(Note(run.task_id, EventKind.FAILED, why, run.run_id))
    if run.stretch_ms is not None and run.stretch_ms > interval(run) and run.schedule is Kind.INTERVAL:
        state, slowed = stretched(run, state)
        notes += slowed
    if run.pause_after is not None and state.failures >= run.pause_after and not run.paused:
        state = paused(run, state, why, now)
    return state, notes


def why_failed(run: Ended) -> str:
    if run.outcome in (Outcome.DROPPED, Outcome.INTERRUPTED, Outcome.SLOWED_DOWN):
        return f"its last attempt was {run.outcome}: {run.reason}"
    return f"{run.outcome}: {run.reason}" if run.reason else str(run.outcome)


def stretched(run: Ended, state: Health) -> tuple[Health, list[Note]]:
    """Returns the task with its interval doubled for each failure, up to the limit. The interval counts from the last
    start.
    """
    assert run.stretch_ms is not None
    every = min(interval(run) << min(state.failures, DOUBLED_AT_MOST), run.stretch_ms)
    due = run.last_run and run.next_run and max(run.next_run, timing.later(run.last_run, every))
    state = replace(state, stretched_ms=every, next_run=due or run.next_run)
    if every == run.stretched_ms:
        return state, []
    change = f"every {words(every)} instead of {words(interval(run))}, after {in_a_row(state.failures)}"
    return state, [Note(run.task_id, EventKind.SLOWED, change, run.run_id)]


def interval(of: Ended | Alarm) -> int:
    """Returns the interval in force of a task that does not fail, in milliseconds."""
    return of.pace_ms or of.every_ms


def paused(run: Ended, state: Health, why: str, now: datetime) -> Health:
    """Returns the task's state with a pause, after which a single run decides. The pause doubles each time that run
    fails.

    A trigger records the event.
    """
    probe = run.probe_ms or PROBE
    pause = min(probe << min(run.pauses, DOUBLED_AT_MOST), max(probe, LONGEST_PROBE))
    return replace(
        state,
        pause_reason=f"{in_a_row(state.failures)}; the last one {why}",
        pause_until=now + timing.span(pause),
    )


def in_a_row(failures: int) -> str:
    return "1 failure" if failures == 1 else f"{failures} failures in a row"


# ------------------------------------------------------------------------------------------------ missing successes


def ask_for_successes(store: Store, now: datetime, limit: int) -> Followed:
    """Checks tasks whose alarm is due. Records each missing success, or sets the next check.

    Tasks beyond the limit of a pass wait for the next one.
    """
    total, batch = Followed(), min(limit, ALARMS_AT_MOST)
    for _ in range(ALARM_BATCHES):
        with store.batch() as rows:
            asked = rows.claim_alarms(now, batch)
            alarms = [(task, next_check(task, now)) for task in asked]
            late = [task for task, at in alarms if at is None]
            rows.set_alarms([(task.id, at) for task, at in alarms])
            rows.record_events([Note(task.id, EventKind.DEAD_MAN, no_success(task)) for task in late], now)
        total += Followed(events=len(late))
        if len(asked) < batch:
            break
    return total


def next_check(task: Alarm, now: datetime) -> datetime | None:
    """Returns when to check again, or None if the success is overdue.

    The time is always after `now`, so that a pass checks each task only once.
    """
    if task.is_done:
        return now + ASK_AGAIN
    at = too_late_at(task)
    return at if at > now else None


def too_late_at(task: Alarm) -> datetime:
    """Returns when the success is overdue: `dead_man` intervals or times after the last success, plus the longest run
    time.
    """
    if task.kind is Kind.INTERVAL:
        return too_late_in_hours(task) or timing.later(task.since, task.dead_man * interval(task) + task.longest_run)
    return timing.later(nth_time(task), task.longest_run)


def too_late_in_hours(task: Alarm) -> datetime | None:
    """Returns the same for a task with hours, which has no due times outside them. None for any other task, and for a
    bad row.
    """
    if not task.during:
        return None
    try:
        last = hours.nth_due(task, task.dead_man)
        at = timing.later(last, task.longest_run)
        again = hours.in_hours(task, at)  # if the hours are over by then, a tick may have put the task off
    except (BadInput, OverflowError):
        return None
    return at if again == at else timing.later(again, task.longest_run)


def nth_time(task: Alarm) -> datetime:
    """Returns the `dead_man`-th time after `since`, or the last time. Beyond the fifth, it is estimated from the first
    five.
    """
    computed = min(task.dead_man, TIMES_AT_MOST)
    try:
        times = kinds.times(kinds.of(task), task.since, computed)
    except (BadInput, OverflowError):  # a row edited by hand: its push reports the error
        times = []
    if not times:
        return task.since
    if len(times) < computed or computed == task.dead_man:
        return times[-1]
    return timing.later(task.since, (times[-1] - task.since) // MILLISECOND * task.dead_man // computed)


def no_success(task: Alarm) -> str:
    last = "there was none before"
    if task.last_success_at is not None:
        last = f"the last one was at {task.last_success_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if task.kind is Kind.INTERVAL:
        many = "an interval" if task.dead_man == 1 else f"{task.dead_man} intervals"
        during = f" during {task.during}" if task.during else ""
        return f"no success for {many} of {words(interval(task))}{during}; {last}"
    many = "a time" if task.dead_man == 1 else f"{task.dead_man} times"
    return f"no success at {many} of {task.expression}; {last}"


# ---------------------------------------------------------------------------------------------- unknown functions


def report_unknown(store: Store, now: datetime) -> int:
    """Records an event for each function of tasks that no worker knows, once. Returns how many it found."""
    with store.batch() as rows:
        if unreported := rows.unreported_functions(now):
            known = rows.announced_functions()
            notes = [
                Note(id_, EventKind.UNKNOWN_FUNCTION, f"{unknown(function, known)}; {load_function()}")
                for id_, function in unreported
            ]
            rows.record_events(notes, now)
    return len(unreported)


def unknown(function: str, announced: Collection[str]) -> str:
    not_known = f"a worker took a job of the function {quoted(function)}, which it does not know"
    return not_announced("function", function, announced) or not_known
