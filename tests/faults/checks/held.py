"""What the proxies know of the jobs in Redis."""

from bisect import bisect_left
from collections.abc import Sequence

from tests.faults.checks.jobs import job_of
from tests.faults.facts import History, Push

MARGIN = 1.0  # seconds on either side, within which the order of two processes' notes says nothing
MAY_HAVE_DIED = frozenset({"killed", "interrupted", "lost"})
SAFE = 3000.0  # seconds for which the shortest-lived job is kept


def certainly_held(history: History, task: int, occurrence: int, at: float) -> bool:
    """The job of this occurrence was stored, and up to then no worker took it, nothing emptied Redis, no further push of it
    failed, and it was younger than its time to live. False: it is not known."""
    stored = _stored(history, task, occurrence, at)
    if stored is None or at - stored.at > SAFE:
        return False
    since, until = stored.at - MARGIN, at + MARGIN
    was_emptied = any(since <= wipe <= until for wipe in history.wipes) or any(
        "wipe" in fault.effects and fault.begin <= until and fault.end >= since for fault in history.faults
    )
    was_taken = any(since <= take <= until for take in history.takes.get(stored.carrier, ()))
    return not (was_emptied or was_taken or _any_within(history.unknown_takes, since, until))


def certainly_given_back(history: History, task: int, occurrence: int, at: float) -> bool:
    """A worker took the job of this occurrence, and meanwhile no process and no run died, no fault hit, and nothing emptied Redis:
    the worker gave the occurrence back. False: it is not known."""
    stored = _stored(history, task, occurrence, at)
    if stored is None:
        return False
    since, until = stored.at - MARGIN, at + MARGIN
    was_taken = any(stored.at <= take <= at for take in history.takes.get(stored.carrier, ()))
    a_worker_lived = any(
        life.name.startswith("worker") and life.begin <= since and life.end >= until for life in history.lives.values()
    )
    deaths = [life.end for life in history.lives.values()]
    deaths += [run.ended.at for run in history.runs.values() if run.ended and run.outcome in MAY_HAVE_DIED]
    was_disturbed = any(since <= end <= until for end in (*deaths, *history.wipes)) or any(
        fault.begin <= until and fault.end >= since for fault in history.faults
    )
    return was_taken and a_worker_lived and not was_disturbed


def _stored(history: History, task: int, occurrence: int, at: float) -> Push | None:
    """The last push that stored it, unless a later one met an error, or nobody knows what it met."""
    pushes = [push for push in history.pushes.get(job_of(task, occurrence), ()) if push.at < at - MARGIN / 4]
    while pushes and pushes[-1].answer == "held":
        pushes.pop()
    return pushes[-1] if pushes and pushes[-1].answer == "stored" else None


def _any_within(ats: Sequence[float], since: float, until: float) -> bool:
    first = bisect_left(ats, since)
    return first < len(ats) and ats[first] <= until
