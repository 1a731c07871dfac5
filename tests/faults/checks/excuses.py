"""Every exemption from a promise: a function each, that says what is excused and why. Nothing else is."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from tests.faults.checks.advances import advances
from tests.faults.facts import FOREVER, Event, Fault, History, Operation, Push, Run, Task, Version
from ticker.db.store import patience

CLOCK_ERROR = 0.05  # seconds: how well an instant of the database is placed on the monotonic clock
LEFT = 0.1  # of all processors, on average over what is judged
ENDS_WAIT = frozenset({"row_locked", "postgres_backends_terminated"})
TURN = 10  # times as long as its run: the share of a worker that guilty tasks have
SLACK = 2.0  # seconds that liveness allows beyond ticks

# What a client's operation forbids, and what lifts it. Nothing brings a deleted task back; registering again is no
# enabling (a deploy does not undo an operator).
LIFTED_BY = {
    "delete": frozenset[str](), "delete_owner": frozenset[str](), "disable": frozenset({"enable"}),
    "pause": frozenset({"resume"}), "owner_inactive": frozenset({"owner_active"}),
}  # fmt: skip
# Drops after which the next start may be an interval later, by the rules of the guard itself. All others are not
# excused: nothing but a fault makes an occurrence expire, and faults are over.
RULED_OUT = frozenset({"too_early", "paused", "still_running", "clock"})
# Faults that may take a ticker out of service without stopping all of them; two at once can.
TICKERS_APART = ("ticker", "host", "network", "connection", "one_direction", "commit_answer")


# ------------------------------------------------------------------------------------------------------------ S1


def across_a_forward_step(history: History, earlier: Run, later: Run, least: float) -> bool:
    """The clock was set forward between two starts: by the database's clock, which the promise names, they are far
    enough apart, and no clock that the product may ask says otherwise."""
    assert earlier.started and later.started and earlier.started_at is not None and later.started_at is not None
    steps = history.clocks.stretch(earlier.started.at) != history.clocks.stretch(later.started.at)
    return steps and later.started_at - earlier.started_at >= least


# ------------------------------------------------------------------------------------------------------------ S6


def had_started_before(run: Run | None, operation: Operation) -> bool:
    """The start was decided before the operation was answered: a run that had begun may go on, and the function's own
    first line comes a little after its start."""
    return run is not None and run.started is not None and run.started.at <= (operation.acked or 0.0) + CLOCK_ERROR


def may_be_lifted(forbidding: Operation, operations: Iterable[Operation], at: float) -> bool:
    """The opposite was asked for before `at`, and may have come after the ban: it was not answered before the ban was
    sent. One that failed may take effect at any time."""
    lifting = LIFTED_BY[prohibition(forbidding) or ""]
    return any(
        prohibition(other) in lifting and other.sent <= at and (other.acked is None or other.acked >= forbidding.sent)
        for other in operations
    )


def prohibition(operation: Operation) -> str | None:
    """An edit of `enabled` is an enabling or a disabling."""
    if operation.op == "edit" and "enabled" in operation.change:
        return "enable" if operation.change["enabled"] else "disable"
    return operation.op


def is_no_ban(run: Run | None, operation: Operation) -> bool:
    """A pause lets manual runs start, and one with an end may be over."""
    return operation.op == "pause" and (
        operation.change.get("until") is not None or (run is not None and run.kind == "manual")
    )


# ------------------------------------------------------------------------------------------------------------ S8


def was_adopted(history: History, at: float) -> bool:
    """Everything was stopped, and `ticker db adopt` ended the holds of a restored database: their workers are another
    installation's."""
    return any(fault.kind == "gap" and fault.begin <= at <= fault.end for fault in history.faults)


# ------------------------------------------------------------------------------------------------------------ S9


def went_with_its_task(history: History, task: Task, stored: Push) -> str | None:
    """Of a planned run, which is no occurrence: no ticker is left to push it again. So it may go without a record when,
    before a worker took it or while one had it, Redis was emptied, a fault hit, or the run ended."""
    if task.deleted is None:
        return None
    if was_wiped(history, stored.at):
        return "deleted task, job wiped"
    if near_the_end(history, stored.at):
        return "deleted task, end of the run"
    if fault_between(history, stored.at, max(stored.at, task.deleted.at) + history.setup.queue_delay + SLACK):
        return "deleted task, job lost in a fault"
    return None


def is_still_open(task: Task, occurrence: int) -> str | None:
    """The last row says that it waits, or that it is still due: the next tick would have seen to it."""
    last = task.versions[-1]
    if task.deleted:
        return None
    if occurrence in last.waiting:
        return "waiting at the end"
    if last.next_run is not None and round(last.next_run * 1_000_000) == occurrence:
        return "due at the end"
    return None


def was_never_noted(history: History, task: Task, occurrence: int, stored: Push) -> str | None:
    """The tick died between push and commit, and the task was deleted, or somebody gave it another next_run. No row ever
    named this occurrence as pushed: its job is refused as stale where it arrives, and may be lost where a fault took it. A job
    that a later start has overtaken is passed over without a word."""
    if any(occurrence in found_no_room(before, after) for before, after in pairwise(task.versions)):
        return "given back by a full limit or a pause, and edited or deleted before the next push"
    if task.deleted and any(_was_given_back(history, version, occurrence) for version in task.versions):
        return "given back by adopt, and its task deleted before the next push"
    if any(occurrence in version.waiting for version in task.versions):
        return None
    if any(names(event, task.id, stored) for event in history.events_of.get("stale", ())):
        return "never committed, refused as stale"
    if task.deleted:
        return "task deleted before the commit of its push"
    if any((run.occurrence or 0) > occurrence for run in history.starts.get(task.id, ()) if run.kind == "scheduled"):
        return "never committed, overtaken by a later start"
    end = stored.at + history.setup.queue_delay + SLACK
    if was_wiped(history, stored.at) or fault_between(history, stored.at, end):
        return "never committed, lost in a fault"
    return None


def _was_given_back(history: History, version: Version, occurrence: int) -> bool:
    """Whether `ticker db adopt` made this occurrence, whose job was another installation's, due again."""
    is_due = version.next_run is not None and round(version.next_run * 1_000_000) == occurrence
    return is_due and occurrence not in version.waiting and was_adopted(history, version.at)


def found_no_room(before: Version, after: Version) -> set[int]:
    """The occurrence of a start that met a full limit or a pause: it is due again, as if it had never been pushed."""
    due = set() if after.next_run is None else {round(after.next_run * 1_000_000)}
    return due.intersection(before.waiting).difference(after.waiting)


def names(event: Event, task: int, push: Push) -> bool:
    """Whether an event is about this push. A batch's id stands for all its tasks, so that the task is named, too."""
    words = {word.strip(".,:;()'\"") for word in event.words.split()}
    return push.carrier in words and (push.carrier.endswith(push.job) or str(task) in words)


def was_wiped(history: History, since: float) -> bool:
    return bool(history.wipes) and history.wipes[-1] >= since


def fault_between(history: History, begin: float, end: float) -> bool:
    return any(fault.begin <= end and fault.end >= begin for fault in history.faults)


def near_the_end(history: History, at: float) -> bool:
    """So late that no worker may have come to it before everything was stopped: in the last seconds, or behind a job
    that still waits at the end (a queue is taken from its front)."""
    last_seconds = history.setup.queue_delay + 2 * history.setup.tick + SLACK
    return at > history.end - last_seconds or at >= backlog_since(history)


@lru_cache(maxsize=1)
def backlog_since(history: History) -> float:
    """When the oldest job that still waits at the end was stored; never, where none does."""
    waiting = [
        f"t{id_}-{occurrence}"
        for id_, task in history.tasks.items()
        if not task.deleted and id_ not in history.setup.poison
        for occurrence in task.versions[-1].waiting
    ]
    stored = ([push.at for push in history.pushes.get(job, ()) if push.answer == "stored"] for job in waiting)
    return min((ats[-1] for ats in stored if ats), default=FOREVER)


def hold_outlives_the_history(history: History, run: Run) -> bool:
    """Its outcome was not due yet when the tickers were stopped, or when PostgreSQL was killed and its standby took over: L5 says
    when it is."""
    assert run.started is not None
    due = max(run.started.at + run.hold, kept_from_the_end(history, run, history.end) or 0.0)
    return due + 2 * history.setup.tick + SLACK > history.end


def pieces_outlive_the_history(history: History, run: Run) -> bool:
    """It waited for its pieces, which may have been in the queue or at work when everything was stopped."""
    if run.state != "processing" or run.handed_out is None:
        return False
    return run.handed_out.at + 2 * run.hold + history.setup.queue_delay + 2 * history.setup.tick + SLACK > history.end


# ----------------------------------------------------------------------------------------------------------- S14


def raised_hold_lost(history: History, run: Run) -> bool:
    """Its task was deleted while it ran, its function learnt that, and its worker wrote it."""
    task = history.tasks.get(run.task)
    is_gone = task is not None and task.deleted is not None and bool(run.ended) and task.deleted.at <= run.ended.at
    return is_gone and run.reason.startswith("HoldLost:")


def lost_its_end(history: History, run: Run) -> bool:
    """Its end was written to a primary that was killed, and the standby that was promoted lacked it: the run was still running
    there. Its worker had been answered, and does not write it again."""
    return run.id in history.lost_ends


# ------------------------------------------------------------------------------------------------------- L1 to L4


def was_ruled_out(runs: Iterable[Run], begin: float, end: float) -> str | None:
    """The guard dropped an occurrence of the task by a rule of spacing: the next one comes an interval later. The drop of a run
    that was asked for delays nothing."""
    for run in runs:
        if (
            run.kind == "scheduled"
            and run.outcome == "dropped"
            and run.reason in RULED_OUT
            and begin <= run.created.at <= end
        ):
            return f"dropped {run.reason}"
    return None


def failed_its_push(task: Task, begin: float, end: float) -> str | None:
    """Its own push failed, so that the row backs off."""
    first = bisect_left(task.versions, begin, key=_at)
    last = bisect_right(task.versions, end, key=_at)
    shown = task.versions[max(first - 1, 0) : last]
    return "push failed" if any(version.push_errors for version in shown) else None


def waited_for_its_turn(history: History, task: Task, begin: float, end: float) -> str | None:
    """Its process died with it, and tasks of its function that did so take turns: together, they use a tenth of one worker's
    time. A run takes the worker for at least a second."""
    row = task.version_at(begin)
    if row is None or not _is_suspected(history, row, begin):
        return None
    rows = (other.version_at(begin) for other in history.tasks.values())
    turns = [one for one in rows if one and one.function == row.function and _is_suspected(history, one, begin)]
    longest = sum(TURN * max((one.box_ms + one.grace_ms) / 1000, 1) for one in turns)
    limit = longest + history.setup.tick + history.setup.queue_delay
    return "waited for its turn among suspected tasks" if end - begin <= limit else None


def _is_suspected(history: History, row: Version, at: float) -> bool:
    return row.pushable and row.alone_until is not None and history.clocks.at(row.alone_until, near=at) > at


# ------------------------------------------------------------------------------------------------------------ L5


def kept_from_the_end(history: History, run: Run, until: float) -> float | None:
    """Nobody could write the outcome while PostgreSQL was down, all tickers were, or somebody held the row's lock; and
    afterwards the tickers wait for the workers' ends, as they do when they start: until when, at most. None where there was no
    such thing."""
    assert run.started is not None
    waits = patience(round(1000 * history.setup.tick))
    begin = run.started.at - waits
    ends = [
        fault.end for fault in history.faults if fault.begin <= until and fault.end >= begin and stops_all_ends(fault)
    ]
    over = [*ends, *all_tickers_silent(history, begin, until), *first_tick(history, begin)]
    return ticker_back(history, max(over)) + waits if over else None


def first_tick(history: History, begin: float) -> list[float]:
    """Tickers that have just started give the workers time, too, as after a gap."""
    beats = ticker_commits(history) if any(life.name.startswith("ticker") for life in history.lives.values()) else []
    return [at for at in beats[:1] if at >= begin]


def ticker_back(history: History, over: float) -> float:
    """When a ticker was at work again after a fault, which takes it no longer than a restart. Its patience counts from there."""
    beats = ticker_commits(history)
    first = bisect_left(beats, over)
    latest = over + history.setup.restart
    return min(beats[first], latest) if first < len(beats) else latest


def stops_all_ends(fault: Fault) -> bool:
    """An error of its session is an outage to a ticker, and so is the end of all sessions."""
    return bool(fault.effects & {"postgres_down", "no_tickers", "row_locked"}) or fault.kind in ENDS_WAIT


def all_tickers_silent(history: History, begin: float, until: float) -> list[float]:
    """Faults that overlap can stop all tickers though each hits but one: no ticker committed for over two ticks, while
    one of them, or its network, was hit, and until that was over. (Not while Redis alone is away: the dead are to be
    ended then, too.)"""
    beats = ticker_commits(history)
    part = [begin, *beats[bisect_left(beats, begin) : bisect_right(beats, until)], until]
    silences = [(one, other) for one, other in pairwise(part) if other - one > 2 * history.setup.tick]
    return [
        min(fault.end, silent_until)
        for since, silent_until in silences
        for fault in history.faults
        if fault.kind.startswith(TICKERS_APART) and fault.begin <= silent_until and fault.end >= since
    ]


@lru_cache(maxsize=1)
def ticker_commits(history: History) -> list[float]:
    """When a ticker moved a task on."""
    return sorted(advance.version.at for task in history.tasks.values() for advance in advances(task))


def _at(version: Version) -> float:
    return version.at


# ------------------------------------------------------------------------------------------------------------ L1 to L3


def the_machine_was_full(history: History, begin: float, end: float) -> str | None:
    """The promises of calm windows are made for a machine with something left; other work may have taken it all."""
    first = bisect_left(history.spare, begin, key=lambda pair: pair[0])
    inside = [
        share for _, share in history.spare[first : bisect_right(history.spare, end, key=lambda pair: pair[0]) + 1]
    ]
    if inside and sum(inside) / len(inside) < LEFT:
        return f"under {LEFT:.0%} of the processors were left"
    return None
