"""Counts of a fault run, for people: what was done to it, what it did, and how much each check had to judge."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tests.faults.checks import INVARIANTS, judge
from tests.faults.checks.crews import DEAD, Crew, crews, deed_of
from tests.faults.checks.excuses import found_no_room
from tests.faults.checks.keys import holds, uses
from tests.faults.checks.liveness import windows
from tests.faults.checks.starts import gaps, lives
from tests.faults.facts import History, Run, bare

SHOWN = 6  # kinds of faults


@dataclass(frozen=True)
class Summary:
    """Seconds are floats; None where there was nothing to measure."""

    seconds: float
    faults: Mapping[str, int]
    tasks: int
    runs: int
    pushes: Mapping[str, int]
    drops: Mapping[str, int]
    lost: Mapping[str, int]
    outcomes: Mapping[str, int]
    events: Mapping[str, int]
    groups: Sequence[int]
    deaths: int
    deeds: Mapping[str, int]
    limits: Mapping[str, int]
    after_box: float | None
    overshoot: float | None
    spacing: float | None
    waiting: int
    queued: float | None
    silences: Mapping[str, float]
    promotions: Sequence[float]
    spare: float | None
    torn: int
    judged: Mapping[str, int]
    broken: Mapping[str, int]
    excused: Mapping[str, Mapping[str, int]]

    def lines(self) -> list[str]:
        return [
            f"time              {self.seconds:.0f} s, tasks {self.tasks}, torn lines {self.torn}",
            f"faults            {sum(self.faults.values())} of {len(self.faults)} kinds: {_counts(self.faults)}",
            f"runs checked      {self.runs}: {_counts(self.outcomes)}",
            f"pushes            {sum(self.pushes.values())}: {_counts(self.pushes)}",
            f"drops             {sum(self.drops.values())}: {_counts(self.drops)}",
            f"lost              {sum(self.lost.values())}: {_counts(self.lost)}",
            f"events            {sum(self.events.values())}: {_counts(self.events)}",
            f"groups            {len(self.groups)} of up to {max(self.groups, default=0)} runs at the same time; {self.deaths} died; deeds: {_counts(self.deeds)}",
            f"limits            {_counts(self.limits)}",
            f"longest overshoot {_seconds(self.after_box)} after B, {_seconds(self.overshoot)} after B + g",
            f"least spacing     {_seconds(self.spacing)} over I - T",
            f"most waiting      {self.waiting} occurrences of one task",
            f"longest in queue  {_seconds(self.queued)} from a push to its start in a calm",
            f"longest silence   {_silences(self.silences)} without a start, during faults of a kind",
            f"promotions        {len(self.promotions)} of PostgreSQL; the first start {_seconds(max(self.promotions, default=None))} after one, or earlier",
            f"processors left   {'nothing measured' if self.spare is None else f'{self.spare:.0%}'} on average in the calms",
            *(self._line(name) for name in self.judged),
        ]

    def _line(self, name: str) -> str:
        none = "  NOTHING JUDGED" if not self.judged[name] else ""
        excused = f"  excused: {_counts(self.excused[name])}" if self.excused[name] else ""
        return f"{name:4} {self.judged[name]:8} judged {self.broken[name]:5} broken{none}{excused}  ({INVARIANTS[name][0]})"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def summarise(history: History) -> Summary:
    found = judge(history)
    records = history.runs.values()
    started = [run for run in records if run.started]
    drops = [run for run in records if run.outcome == "dropped"]
    lost = [run for run in records if run.outcome in {"lost", *DEAD}]
    together = [number for crew in crews(history) if (number := at_once(history, crew)) > 1]
    return Summary(
        seconds=(history.last or history.end) - history.setup.at,
        faults=Counter(fault.kind for fault in history.faults),
        tasks=len(history.tasks),
        runs=len(started),
        pushes=Counter(_answer(push.answer) for pushes in history.pushes.values() for push in pushes),
        drops=Counter(run.reason for run in drops),
        lost=Counter(_why_lost(run) for run in lost),
        outcomes=Counter(run.outcome or run.state for run in started),
        events=Counter(event.what for event in history.events),
        groups=together,
        deaths=sum(any(run.outcome == "interrupted" for run in crew.runs) for crew in crews(history)),
        deeds=Counter(deed for run in started if (deed := deed_of(history, run))),
        limits=of_limits(history),
        after_box=max((life.after_box for life in lives(history)), default=None),
        overshoot=max((life.overshoot for life in lives(history)), default=None),
        spacing=min((gap.apart - gap.least for gap in gaps(history)), default=None),
        waiting=max((len(v.waiting) for task in history.tasks.values() for v in task.versions), default=0),
        queued=max(in_queue(history), default=None),
        silences=silences(history),
        promotions=[*first_starts(history)],
        spare=_average(share for at, share in history.spare if any(c.begin <= at <= c.end for c in windows(history))),
        torn=len(history.torn),
        judged={name: findings.facts for name, findings in found.items()},
        broken={name: len(findings.broken) for name, findings in found.items()},
        excused={name: findings.excused for name, findings in found.items()},
    )


def at_once(history: History, crew: Crew) -> int:
    """Returns how many of its runs were active at the same time at most, as they recorded it."""
    active = [history.witnessed[run.id] for run in crew.runs if run.id in history.witnessed]
    changes = [(one.first, 1) for one in active] + [(one.last_own, -1) for one in active]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def of_limits(history: History) -> Mapping[str, int]:
    """Returns what the limits did, by what it was: without keys, nothing."""
    starts = {use.run.id: use.run for found in uses(history).values() for use in found}
    changes = (change for task in history.tasks.values() for change in pairwise(task.versions))
    counts = Counter(f"{run.kind} starts" for run in starts.values())
    counts |= Counter(declarations=len(history.limits), holds=sum(map(len, holds(history).values())))
    counts["given back"] = sum(len(found_no_room(before, after)) for before, after in changes)
    return +counts


def in_queue(history: History) -> Iterator[float]:
    """Seconds from the push to the start, of jobs that were pushed in a calm: what Q should be, at least."""
    calms = windows(history)
    for run in history.runs.values():
        stored = [push.at for push in history.pushes.get(bare(run.job), ()) if push.answer == "stored"]
        if run.started and stored and any(calm.begin <= stored[-1] and run.started.at <= calm.end for calm in calms):
            yield run.started.at - stored[-1]


def silences(history: History) -> Mapping[str, float]:
    """Returns the longest time without a start that each kind of fault was in, or began or ended."""
    starts, found = _starts(history), dict[str, float]()
    for fault in history.faults:
        part = starts[max(bisect_left(starts, fault.begin) - 1, 0) : bisect_right(starts, fault.end) + 1]
        longest = max((after - before for before, after in pairwise(part)), default=0.0)
        found[fault.kind] = max(found.get(fault.kind, 0.0), longest)
    return found


def first_starts(history: History) -> Iterator[float]:
    """Seconds from each promotion of a standby to the first start after it."""
    starts = _starts(history)
    for at in history.promotions:
        if after := starts[bisect_left(starts, at) :]:
            yield after[0] - at


def _starts(history: History) -> list[float]:
    return sorted(run.started.at for run in history.runs.values() if run.started)


def _silences(found: Mapping[str, float]) -> str:
    longest = sorted(found.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in longest[:SHOWN]) or "none"


def _average(values: Iterator[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _why_lost(run: Run) -> str:
    """Without the numbers in it, so that like is counted with like."""
    return f"{run.outcome}{'' if run.started else ' before its start'} ({re.sub('[0-9]+', 'N', run.reason)})"


def _answer(answer: str | None) -> str:
    """Errors by their first word."""
    if answer is None:
        return "no answer"
    return answer if answer in {"stored", "held"} else f"error {answer.split()[0] if answer.split() else ''}".strip()


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _seconds(value: float | None) -> str:
    return "nothing measured" if value is None else f"{value:.3f} s"
