"""L6: tasks that wait for the room of their keys start when there is some, the oldest first."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.checks.jobs import job_of
from tests.faults.checks.keys import Use, concurrency, declared, has_keys, in_force, keys_of, uses
from tests.faults.checks.liveness import Due, dues, healthy, overlapping, windows
from tests.faults.facts import FOREVER, Calm, History, Task, Version

LOOK = 5.0  # seconds: how long after a key has room a ticker looks at it again, if nothing wakes it
OVERTAKEN = 8  # starts of tasks with the same keys that became due later
HELD_ON = 1.0  # seconds by which a hold may be longer than the function knows

Keys = frozenset[str]


class Span(NamedTuple):
    begin: float
    end: float


def uses_its_room(history: History) -> Findings:
    """Judges each key in each calm. A stretch in which there is always a due task, and always room for it, must not be longer
    than LOOK + D + Q without a start with the key."""
    found = Findings(history)
    limit = LOOK + history.setup.tick + history.setup.queue_delay
    limited = [task for task in healthy(history) if has_keys(task)]
    for calm in windows(history):
        demands = _demands(history, limited, calm)
        rooms = {key: _room(history, key, calm) for keys in demands for key in keys}
        for keys, demand in demands.items():
            stretches = demand
            for key in keys:
                stretches = common(stretches, rooms[key])
            for key in sorted(keys):
                _has_starts(history, key, stretches, limit, found)
    for task in limited:
        _is_not_overtaken(history, task, found)
    return found


def _has_starts(history: History, key: str, stretches: Sequence[Span], limit: float, found: Findings) -> None:
    progress = sorted(use.at for use in uses(history).get(key, ()))
    for stretch in stretches:
        inside = [at for at in progress if stretch.begin < at < stretch.end]
        for before, after in pairwise([stretch.begin, *inside, stretch.end]):
            if not found.judge(after - before <= limit):
                continue
            if why := excuses.the_machine_was_full(history, before, after):
                found.excuse(why)
                continue
            found.blame(
                None,
                before,
                f"key {key}: it had room and due tasks from {history.seconds(before)} s to {history.seconds(after)} s of a calm, and"
                f" none started for {after - before:.3f} s; the limit is 5 s + D + Q = {limit:g} s",
            )


# ------------------------------------------------------------------------------------------------------------ demand


def _demands(history: History, tasks: Iterable[Task], calm: Calm) -> Mapping[Keys, Sequence[Span]]:
    """Returns when tasks were due, or had a job that waited, by their keys."""
    spans: dict[Keys, list[Span]] = {}
    for task in tasks:
        for version, until in zip(task.versions, [*(one.at for one in task.versions[1:]), FOREVER], strict=True):
            begin = max(_wanted_since(history, version), calm.begin)
            if keys_of(version) and begin < min(until, calm.end):
                spans.setdefault(frozenset(keys_of(version)), []).append(Span(begin, min(until, calm.end)))
    return {keys: together(found) for keys, found in spans.items()}


def _wanted_since(history: History, version: Version) -> float:
    if not version.pushable or (version.next_run is None and not version.waiting):
        return FOREVER
    if version.waiting or version.next_run is None:
        return version.at
    ready = max(version.next_run, version.push_after or 0.0)
    return max(history.clocks.at(ready, near=version.at), version.at)


# -------------------------------------------------------------------------------------------------------------- room


def _room(history: History, key: str, calm: Calm) -> Sequence[Span]:
    """Returns when the key certainly had room in a calm: for a run, for a start, and it was not closed. After the first hold,
    only a key without any run certainly has room: it may still be starting slowly."""
    limits = in_force(history, key, calm.begin)
    if not limits:
        return [Span(*calm)]
    was_held = any(one.key == key and one.at <= calm.end for one in history.holds)
    places = min(concurrency(history, key, calm.begin)[0], 1 if was_held else FOREVER)
    own = uses(history).get(key, ())
    full = [*_held(history, key), *at_least(places, (Span(use.at, use.freed) for use in own))]
    if any(one.per_second for one in limits):
        burst = min(one.burst for one in limits if one.per_second)
        full += at_least(burst, _tokens(history, key, own))
    return without(Span(*calm), together(full))


def _tokens(history: History, key: str, own: Sequence[Use]) -> Iterator[Span]:
    """Returns for how long each start used up a token, by the slowest limit that the key ever had."""
    longest = max(one.burst / one.per_second for _, one in declared(history, key) if one.per_second)
    return (Span(use.at, use.at + longest) for use in own)


def _held(history: History, key: str) -> Iterator[Span]:
    """Returns every hold that may have been committed."""
    return (Span(one.at, one.at + one.seconds + HELD_ON) for one in history.holds if one.key == key)


# ---------------------------------------------------------------------------------------------------- the oldest first


def _is_not_overtaken(history: History, task: Task, found: Findings) -> None:
    calms = windows(history)
    for due in dues(history, task):
        pushed = min(due.until, _pushed_after(history, task.id, due))
        for calm in overlapping(calms, min(due.since, pushed), pushed):
            waited = Span(max(due.since, calm.begin), min(pushed, calm.end))
            later = [use for use in _of_the_same_keys(history, task, waited) if _is_later(history, use, due.occurrence)]
            if not found.judge(len(later) <= OVERTAKEN):
                continue
            why = excuses.failed_its_push(task, *waited) or excuses.waited_for_its_turn(history, task, *waited)
            if why:
                found.excuse(why)
            else:
                found.blame(
                    task.id,
                    waited.begin,
                    f"task {task.id}: due since {history.seconds(due.since)} s, it was not pushed until"
                    f" {history.seconds(waited.end)} s, and {len(later)} later occurrences of other tasks with its keys started",
                )


def _pushed_after(history: History, task: int, due: Due) -> float:
    """An occurrence that met a full limit is pushed again."""
    pushes = history.pushes.get(job_of(task, due.occurrence), ())
    return next((push.at for push in pushes if push.taken and push.at >= due.since), FOREVER)


def _of_the_same_keys(history: History, task: Task, waited: Span) -> Iterator[Use]:
    keys = keys_of(task.version_at(waited.begin))
    own = uses(history).get(keys[0], ()) if keys else ()
    first = bisect_right(own, waited.begin, key=lambda use: use.at)
    for use in own[first : bisect_left(own, waited.end, key=lambda use: use.at)]:
        row = history.tasks.get(use.run.task)
        if row and row.id != task.id and set(keys_of(row.version_at(use.at))) == set(keys):
            yield use


def _is_later(history: History, use: Use, occurrence: int) -> bool:
    later = (use.run.occurrence or 0) / 1_000_000 > occurrence / 1_000_000 + history.setup.tick
    return use.run.kind == "scheduled" and later


# -------------------------------------------------------------------------------------------------------------- spans


def together(spans: Iterable[Span]) -> list[Span]:
    """Joins spans that overlap or touch."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end:
            joined[-1] = Span(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    found = (Span(max(a.begin, b.begin), min(a.end, b.end)) for a in one for b in other)
    return [span for span in found if span.begin < span.end]


def without(whole: Span, spans: Sequence[Span]) -> list[Span]:
    """Returns what is left of a span; the others are in order, and do not overlap."""
    edges = [whole.begin, *(edge for span in spans for edge in span), whole.end]
    return common([whole], [Span(*gap) for gap in zip(edges[::2], edges[1::2], strict=True)])


def at_least(number: float, spans: Iterable[Span]) -> Iterator[Span]:
    """Yields when this many of the spans overlap, or more."""
    changes = sorted((at, change) for span in spans for at, change in ((span.begin, 1), (span.end, -1)))
    counts = accumulate(change for _, change in changes)
    begin = None
    for (at, _), count in zip(changes, counts, strict=True):
        if count >= number and begin is None:
            begin = at
        elif count < number and begin is not None:
            yield Span(begin, at)
            begin = None
