"""The demo checks itself: three records, kept by three processes, must agree, and the promised events must be there.

The deliverer notes what it delivered, the POP3 server what was retrieved, the database what was stored and run. Nothing
hides a double: the server logs every retrieval, and the table of messages takes the same message any number of times.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from ticker.demo import failures
from ticker.demo.evidence import Check, Evidence, Key
from ticker.demo.pop3 import Outcome as Retrieved
from ticker.engine import timing
from ticker.model import Outcome, Reason, RunKind, Task
from ticker.read.tasks import RunRecord

LATEST_KILL = timedelta(seconds=3)  # a kill that is recorded so long after its limit was none of the limit's


def checks(evidence: Evidence) -> list[Check]:
    return [check(evidence) for check in (*EXPECTED, retrieved_once, stored_once, kept_apart)]


def seen(evidence: Evidence) -> bool:
    """Whether every expected event has been there by now."""
    return all(check(evidence).ok for check in EXPECTED)


def settled(evidence: Evidence) -> bool:
    """Whether all mail is fetched, and no retrieval in progress."""
    in_progress = any(one.outcome == Retrieved.OPEN for one in evidence.retrievals)
    return not in_progress and retrieved_once(evidence).ok and stored_once(evidence).ok


# ------------------------------------------------------------------------------------------ the mail, three records


def retrieved_once(evidence: Evidence) -> Check:
    """The server's log of whole retrievals equals the deliveries, mailbox by mailbox, as multisets.

    A retrieval that was cut short by a kill does not count: the client cannot have used it. One that was written whole
    and never confirmed counts if it was the last of its message; used or not, the rows of the table tell.
    """
    attempts: dict[Key, list[Retrieved]] = {}
    for one in evidence.retrievals:
        attempts.setdefault((one.user, one.uid), []).append(one.outcome)
    whole = Counter({key: _whole(outcomes) for key, outcomes in attempts.items()})
    cut = +Counter({key: len(outcomes) - whole[key] for key, outcomes in attempts.items()})
    left = evidence.deliveries_left(whole)
    facts = [_compared(evidence, whole, left, "retrieved")]
    if cut:
        facts.append(f"apart: {cut.total()} attempts cut short by the end of a run ({_named(cut)})")
    return Check("every message was retrieved once", not _differences(evidence, whole, left), "; ".join(facts))


def stored_once(evidence: Evidence) -> Check:
    """Every delivered message is one row, also where a run was killed in the middle of it."""
    stored = Counter(evidence.stored)
    left = evidence.deliveries_left(stored)
    detail = _compared(evidence, stored, left, "stored")
    return Check("every message was stored once", not _differences(evidence, stored, left), detail)


def _whole(outcomes: Sequence[Retrieved]) -> int:
    return outcomes.count(Retrieved.COMPLETE) + (outcomes[-1] == Retrieved.UNCONFIRMED)


def _compared(evidence: Evidence, found: Counter[Key], left: set[Key], verb: str) -> str:
    text = f"{len(evidence.deliveries)} delivered, {found.total()} {verb}"
    if left:
        text += f", {len(left)} left in the mailbox of the deleted channel"
    return "; ".join([text, *_differences(evidence, found, left)])


def _differences(evidence: Evidence, found: Counter[Key], left: set[Key]) -> list[str]:
    due = Counter((one.user, one.uid) for one in evidence.deliveries if (one.user, one.uid) not in left)
    missing, surplus = due - found, found - due
    nothing = [] if evidence.deliveries else ["no mail was delivered"]
    return [
        *nothing,
        *([f"missing: {_named(missing)}"] if missing else []),
        *([f"too often: {_named(surplus)}"] if surplus else []),
    ]


def _named(messages: Counter[Key], at_most: int = 5) -> str:
    names = [f"{user}/{uid}" + (f" {count}x" if count > 1 else "") for (user, uid), count in sorted(messages.items())]
    return ", ".join(names[:at_most] + ["..."] * (len(names) > at_most))


# ------------------------------------------------------------------------------------------------- the tasks' runs


def resumed(evidence: Evidence) -> Check:
    """A run that stopped at its quota, and the next run of the task, which went on exactly there."""
    claim = "a run stopped at its quota, and the next one resumed at its cursor"
    for run in evidence.ended(Outcome.PARTIAL):
        following = next((r for r in evidence.runs if r.task_id == run.task_id and r.id > run.id and r.result), None)
        if following and following.result["after"] == run.result["up_to"] < following.result["up_to"]:
            name, stop = evidence.task(run).subject, run.result["up_to"]
            return Check(claim, True, f"{name}, up to message {stop}, then {stop + 1} to {following.result['up_to']}")
    return Check(claim, False, f"not seen; {len(evidence.ended(Outcome.PARTIAL))} runs stopped at their quota")


def killed(evidence: Evidence) -> Check:
    """A run that ignored its quota, and was dead when its hard limit had come."""
    claim = "a function that ignores its quota was killed"
    for run in evidence.ended(Outcome.KILLED):
        task, lasted = evidence.task(run), _lasted(run)
        limit = timing.span(task.box_ms + task.grace_ms)
        if timing.span(task.box_ms) < lasted < limit + LATEST_KILL:
            detail = f"{task.subject}, {_seconds(lasted)} after its start; its limit is {_seconds(limit)}"
            return Check(claim, True, detail)
    return Check(claim, False, f"not seen; {len(evidence.ended(Outcome.KILLED))} runs were killed")


def cascaded(evidence: Evidence) -> Check:
    """A channel deleted with raw SQL took its tasks along: nothing of it starts, and a waiting job ends as gone."""
    claim = "a channel deleted with SQL took its tasks along"
    if (deletion := evidence.deletion) is None:
        return Check(claim, False, "no channel was deleted")
    own = [run for run in evidence.runs if evidence.task(run).subject == deletion.mailbox]
    gone = [run for run in own if run.reason == Reason.GONE]
    late = [run for run in own if run.started_at and run.started_at > deletion.at]
    detail = f"tasks left: {deletion.tasks_left}, runs started later: {len(late)}, waiting jobs that ended as gone: {len(gone)}"
    return Check(claim, not deletion.tasks_left and not late and bool(gone), f"{deletion.mailbox}, {detail}")


def too_early(evidence: Evidence) -> Check:
    """A job that came sooner after the last start than interval - tolerance, and was dropped for it."""
    claim = "a job was dropped as too early"
    drops = [run for run in evidence.ended(Outcome.DROPPED) if run.reason == Reason.TOO_EARLY]
    if not drops:
        return Check(claim, False, "not seen")
    after, earliest = min(((_since_the_last_start(run), run) for run in drops), key=lambda pair: pair[0])
    task = evidence.task(earliest)
    detail = f"{task.name} of {task.subject}, {_seconds(after)} after the last start"
    return Check(claim, True, f"{detail}; {_seconds(_least_distance(task))} is the least")


def kept_apart(evidence: Evidence) -> Check:
    """No two runs of a task at once, and no two scheduled starts closer than interval - tolerance."""
    started = sorted((run for run in evidence.runs if run.started_at), key=_started)
    wrong = []
    for task in evidence.tasks:
        own = [run for run in started if run.task_id == task.id and run.kind != RunKind.PIECE]  # those run side by side
        scheduled = [_started(run) for run in own if run.kind == RunKind.SCHEDULED]
        if any(_over(a) > _started(b) for a, b in pairwise(own)):
            wrong.append(f"{task.name} of {task.subject} at once")
        if any(b - a < _least_distance(task) for a, b in pairwise(scheduled)):
            wrong.append(f"{task.name} of {task.subject} too close")
    detail = "; ".join([f"{len(started)} starts of {len(evidence.tasks)} tasks", *wrong])
    return Check("no task ran twice at once, or again before interval - tolerance", not wrong, detail)


EXPECTED: Sequence[Callable[[Evidence], Check]] = (
    resumed, killed, cascaded, too_early, failures.retried, failures.in_pieces, failures.explained,
)  # fmt: skip


def _started(run: RunRecord) -> datetime:
    assert run.started_at is not None
    return run.started_at


def _lasted(run: RunRecord) -> timedelta:
    return run.ended_at - run.started_at if run.ended_at and run.started_at else timedelta()


def _since_the_last_start(drop: RunRecord) -> timedelta:
    return drop.checked_at - drop.checked_last_run if drop.checked_at and drop.checked_last_run else timedelta()


def _over(run: RunRecord) -> datetime:
    """When it ended at the latest: dead at the end of its box and grace, it may have its end recorded later."""
    ends = [end for end in (run.ended_at, run.until) if end]
    return min(ends) if ends else datetime.max.replace(tzinfo=UTC)


def _least_distance(task: Task) -> timedelta:
    return timing.span(task.every_ms - task.tolerance_ms)


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.2f} s"


def summary(runs: Iterable[RunRecord]) -> list[str]:
    """Runs by outcome, drops by reason."""
    ran = Counter(run.outcome or run.state for run in runs if run.outcome != Outcome.DROPPED)
    drops = Counter(run.reason for run in runs if run.outcome == Outcome.DROPPED)
    return [
        "runs:  " + (", ".join(f"{count} {outcome}" for outcome, count in ran.most_common()) or "none"),
        "drops: " + (", ".join(f"{count} {reason}" for reason, count in drops.most_common()) or "none"),
    ]
