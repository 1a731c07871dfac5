"""What the end of a run leads to: a further attempt, a longer interval, a pause, a notice. Each pass sees to it.

An end that leads to nothing (a success of a healthy task) never comes here. A pass looks at what a task is like now,
not at each change: whoever failed and succeeded between two passes is well, and nobody is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from ticker.engine import retries, timing
from ticker.engine.ports import Store
from ticker.engine.retries import Backoff
from ticker.engine.sweep import Counts
from ticker.errors import BadInput
from ticker.model import GOOD, Alarm, Ended, EventKind, Health, Kind, Note, Outcome, RunKind
from ticker.schedules import kinds
from ticker.schedules.duration import DAY, HOUR, words

LEAST_BOX = timing.span(retries.LEAST_BOX)
PROBE = HOUR  # how long a task that paused itself waits, where it was not said
LONGEST_PROBE = DAY
DOUBLED_AT_MOST = 40  # times: beyond it every limit is reached
TIMES_AT_MOST = 5  # of a schedule, looked at for one alarm: the 29th of February takes half a millisecond each
ALARMS_AT_MOST = 100  # looked at in one transaction, with their rows locked
ALARM_BATCHES = 50  # in one pass: behind a wave of them the due tasks of everybody wait
ASK_AGAIN = timing.span(DAY)  # of a task that is done; it may be given more to do


@dataclass(frozen=True)
class Followed(Counts):
    """Counts: ends that were seen to, retries planned, events recorded."""

    ended: int = 0
    retries: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from one end: a retry at `due`, or a note why there is none."""

    run: Ended
    due: datetime | None = None
    note: str = ""


def follow_up(store: Store, now: datetime, limit: int) -> Followed:
    """Sees to all ends that wait for it, then to runs whose pieces are done, and asks for successes that are missing."""
    total = follow_ends(store, now, limit)
    while sum_up(store, now, limit):  # which are ends, too
        total += follow_ends(store, now, limit)
    return total + ask_for_successes(store, now, limit)


def sum_up(store: Store, now: datetime, limit: int) -> int:
    with store.batch() as rows:
        return rows.sum_up(now, limit)


def follow_ends(store: Store, now: datetime, limit: int) -> Followed:
    """Batch after batch."""
    total = Followed()
    while True:
        followed = follow_batch(store, now, limit)
        total += followed
        if followed.ended < limit:
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
    """Whether a run that ended is attempted again, and when."""
    if run.outcome in GOOD or not run.retries or not may_be_retried(run):
        return Verdict(run)
    if run.attempt > run.retries:
        return Verdict(run, note=f"attempt {run.attempt} of {run.retries + 1}: no retry is left")
    if run.is_past:
        return Verdict(run, note="no retry: a newer occurrence has started, or waits for a worker")
    due = max(timing.later(run.ended_at, backoff(run).after(run.attempt, run.run_id)), now)
    end = last_end(run)
    if end is not None and due + LEAST_BOX > end:
        left = max((end - due).total_seconds(), 0)
        return Verdict(
            run, note=f"no retry: {left:g} s would be left for it before the next start, under the limit of 1 s"
        )
    return Verdict(run, due)


def may_be_retried(run: Ended) -> bool:
    """A run of an occurrence, or a piece, that began; what made pieces is done itself, and they have their own attempts."""
    return run.started and run.outcome is not Outcome.DROPPED and run.kind is not RunKind.MANUAL and not run.has_pieces


def backoff(run: Ended) -> Backoff:
    try:
        return Backoff.parse("backoff", run.backoff)
    except BadInput:  # a row that a hand has spoilt
        return Backoff()


def last_end(run: Ended) -> datetime | None:
    """When the box of a further attempt must be over, as the start statement will judge it; None: at no time."""
    if run.schedule is Kind.INTERVAL and run.occurrence is not None:
        return run.last_run and retries.last_end(run.last_run, run.every_ms, run.tolerance_ms, run.grace_ms)
    return run.next_run and run.next_run - timing.span(run.tolerance_ms + run.grace_ms)


# -------------------------------------------------------------------------------------------------- the task's health


def judge_tasks(verdicts: Sequence[Verdict], now: datetime) -> tuple[list[Health], list[Note]]:
    """What the ends make of their tasks. Pieces make nothing of it: their run does, once all are done."""
    states, notes = [], []
    whole = sorted(
        (v for v in verdicts if v.run.kind is not RunKind.PIECE), key=lambda v: (v.run.task_id, v.run.run_id)
    )
    for _, of_one in groupby(whole, key=lambda v: v.run.task_id):
        state, said = judge_task(list(of_one), now)
        states.append(state)
        notes += said
    return states, notes


def judge_task(verdicts: Sequence[Verdict], now: datetime) -> tuple[Health, list[Note]]:
    """Of the ends of one task, in their order."""
    last = verdicts[-1]
    run = last.run
    failures = run.failures + sum(counts_here(verdict) for verdict in verdicts)
    state = Health(run.task_id, failures, run.told, run.stretched_ms, run.next_run, run.alarm_at)
    if failures > 0:
        is_open = last.due or run.outcome in GOOD  # one more attempt decides; or it was another run that failed
        return (state, []) if is_open else failing(run, state, now)
    return recovered(run, state, now) if run.outcome in GOOD or run.made_good else (state, [])


def counts_here(verdict: Verdict) -> bool:
    """A failed occurrence of a task with retries: the end of the run could not know that it was the last attempt."""
    run = verdict.run
    unstarted = not run.started and run.kind is RunKind.SCHEDULED  # counted where it was given up
    counted = run.kind is RunKind.MANUAL or not run.retries or unstarted
    return run.outcome not in GOOD and not verdict.due and not run.made_good and not counted


def recovered(run: Ended, state: Health, now: datetime) -> tuple[Health, list[Note]]:
    notes = []
    if run.stretched_ms is not None:
        next_run = run.next_run and run.last_run and min(run.next_run, timing.later(run.last_run, run.every_ms))
        state = replace(state, stretched_ms=None, next_run=next_run or run.next_run)
        notes.append(Note(run.task_id, EventKind.RESTORED, f"every {words(run.every_ms)} again", run.run_id))
    if run.told:
        notes.append(Note(run.task_id, EventKind.RECOVERED, "it succeeded again", run.run_id))
    alarm_at = now if run.dead_man and run.alarm_at is None else run.alarm_at
    return replace(state, told="", alarm_at=alarm_at), notes


def failing(run: Ended, state: Health, now: datetime) -> tuple[Health, list[Note]]:
    notes = []
    why = why_failed(run)
    if not run.told:
        state = replace(state, told="failed")
        notes.append(Note(run.task_id, EventKind.FAILED, why, run.run_id))
    if run.stretch_ms is not None and run.stretch_ms > run.every_ms and run.schedule is Kind.INTERVAL:
        state, slowed = stretched(run, state)
        notes += slowed
    if run.pause_after is not None and state.failures >= run.pause_after and not run.paused:
        state = paused(run, state, why, now)
    return state, notes


def why_failed(run: Ended) -> str:
    if run.outcome is Outcome.DROPPED:
        return f"its last attempt was dropped: {run.reason}"
    return f"{run.outcome}: {run.reason}" if run.reason else str(run.outcome)


def stretched(run: Ended, state: Health) -> tuple[Health, list[Note]]:
    """Doubled with each failure, up to the limit, counted from the last start."""
    assert run.stretch_ms is not None
    every = min(run.every_ms << min(state.failures, DOUBLED_AT_MOST), run.stretch_ms)
    due = run.last_run and run.next_run and max(run.next_run, timing.later(run.last_run, every))
    state = replace(state, stretched_ms=every, next_run=due or run.next_run)
    if every == run.stretched_ms:
        return state, []
    said = f"every {words(every)} instead of {words(run.every_ms)}, after {in_a_row(state.failures)}"
    return state, [Note(run.task_id, EventKind.SLOWED, said, run.run_id)]


def paused(run: Ended, state: Health, why: str, now: datetime) -> Health:
    """For a while, whereupon a single run decides; twice as long after each that fails. (A trigger records the event.)"""
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
    """Tasks whose alarm is set: told, where the time is over, or asked again when it would be. The rest waits a pass."""
    total, batch = Followed(), min(limit, ALARMS_AT_MOST)
    for _ in range(ALARM_BATCHES):
        with store.batch() as rows:
            asked = rows.claim_alarms(now, batch)
            alarms = [(task, next_look(task, now)) for task in asked]
            late = [task for task, at in alarms if at is None]
            rows.set_alarms([(task.id, at) for task, at in alarms])
            rows.record_events([Note(task.id, EventKind.DEAD_MAN, no_success(task)) for task in late], now)
        total += Followed(events=len(late))
        if len(asked) < batch:
            break
    return total


def next_look(task: Alarm, now: datetime) -> datetime | None:
    """When to ask again; None: it is too late, and somebody is told. Always behind now, so that each is asked once."""
    if task.is_done:
        return now + ASK_AGAIN
    at = too_late_at(task)
    return at if at > now else None


def too_late_at(task: Alarm) -> datetime:
    """So many intervals, or times, after its last success, and the longest that a run may take."""
    if task.kind is Kind.INTERVAL:
        return timing.later(task.since, task.dead_man * task.every_ms + task.longest_run)
    return timing.later(nth_time(task), task.longest_run)


def nth_time(task: Alarm) -> datetime:
    """The time after so many others, or the last there is; of many, by how far the first five are apart."""
    looked_at = min(task.dead_man, TIMES_AT_MOST)
    try:
        times = kinds.times(kinds.of(task), task.since, looked_at)
    except (BadInput, OverflowError):  # a row that a hand has spoilt: its push says so
        times = []
    if not times:
        return task.since
    if len(times) < looked_at or looked_at == task.dead_man:
        return times[-1]
    return timing.later(task.since, (times[-1] - task.since) // kinds.MILLISECOND * task.dead_man // looked_at)


def no_success(task: Alarm) -> str:
    last = (
        "there was none before" if task.last_success_at is None else f"the last one was {at_time(task.last_success_at)}"
    )
    if task.kind is Kind.INTERVAL:
        many = "an interval" if task.dead_man == 1 else f"{task.dead_man} intervals"
        return f"no success for {many} of {words(task.every_ms)}; {last}"
    many = "a time" if task.dead_man == 1 else f"{task.dead_man} times"
    return f"no success at {many} of {task.expression}; {last}"


def at_time(instant: datetime) -> str:
    return f"at {instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
