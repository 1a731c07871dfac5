"""S1 to S4: how far apart runs start, whether they overlap, when they are dead, and that each starts once."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.facts import History, Run, Witnessed

ROUNDING = 0.001  # seconds: durations are whole milliseconds
OVERSHOOT = 1.0  # seconds: how late the hard limit may kill, measured


class Gap(NamedTuple):
    """Between two consecutive scheduled first attempts of an interval task. Seconds."""

    earlier: Run
    later: Run
    apart: float
    least: float


def gaps(history: History) -> Iterator[Gap]:
    """I and T of the later run, as its own row records them. Across a step of the clock the monotonic one counts."""
    for runs in history.starts.values():
        first_attempts = [run for run in runs if run.kind == "scheduled" and run.attempt == 1]
        for earlier, later in pairwise(first_attempts):
            if later.every_ms:
                least = (later.every_ms - later.tolerance_ms) / 1000
                yield Gap(earlier, later, _apart(history, earlier, later), least)


def _apart(history: History, earlier: Run, later: Run) -> float:
    assert earlier.started and later.started and earlier.started_at is not None and later.started_at is not None
    if history.clocks.stretch(earlier.started.at) != history.clocks.stretch(later.started.at):
        return later.started.at - earlier.started.at
    return later.started_at - earlier.started_at


def spacing(history: History) -> Findings:
    found = Findings(history)
    for earlier, later, apart, least in gaps(history):
        if found.judge(apart >= least - ROUNDING):
            if excuses.across_a_forward_step(history, earlier, later, least):
                found.excuse("the clock was set forward")
                continue
            assert later.started is not None
            found.blame(
                later.task,
                later.started.at,
                f"task {later.task}: run {later.id} started at {history.seconds(later.started.at)} s, only {apart:.6f} s"
                f" after run {earlier.id}; at least I - T = {least:g} s is promised",
            )
    return found


def no_overlap(history: History) -> Findings:
    """Each run against the one that was active longest before it; pieces, which run next to each other, only against others."""
    found = Findings(history)
    for task, runs in _witnessed_by_task(history).items():
        whole, pieces = list[Witnessed](), list[Witnessed]()  # the one of each kind that was active longest
        for run in runs:
            is_piece = _is_piece(history, run)
            longest = max(whole if is_piece else [*whole, *pieces], key=lambda one: one.last, default=None)
            if longest and found.judge(run.first >= longest.last):
                found.blame(
                    task,
                    run.first,
                    f"task {task}: run {run.run} was active from {history.seconds(run.first)} s, while run {longest.run}"
                    f" still was until {history.seconds(longest.last)} s, {longest.last - run.first:.3f} s later",
                )
            same = pieces if is_piece else whole
            same[:] = [max([run, *same], key=lambda one: one.last)]
    return found


def _is_piece(history: History, one: Witnessed) -> bool:
    run = history.runs.get(one.run)
    return run is not None and run.kind == "piece"


def _witnessed_by_task(history: History) -> dict[int, list[Witnessed]]:
    by_task: dict[int, list[Witnessed]] = {}
    for one in sorted(history.witnessed.values(), key=lambda one: one.first):
        by_task.setdefault(one.task, []).append(one)
    return by_task


class Life(NamedTuple):
    """A witnessed run, and an instant that is no earlier than the end of its box. `grace` in seconds."""

    witnessed: Witnessed
    end_of_box: float
    grace: float

    @property
    def after_box(self) -> float:
        """How long it was active after B; negative where it was not."""
        return self.witnessed.last - self.end_of_box

    @property
    def overshoot(self) -> float:
        """The same after B + g."""
        return self.after_box - self.grace


def lives(history: History) -> Iterator[Life]:
    """The earlier of two: what the function was told it had left when it began, and B of its row after the start, which
    the database decided later than the hard limit began to count."""
    for one in history.witnessed.values():
        run = history.runs.get(one.run)
        row = history.at_start(run) if run else None
        if one.begins and run and run.started and row:
            begin = one.begins[0]
            end_of_box = min(begin.at + begin.box, run.started.at + excuses.CLOCK_ERROR + row.box_ms / 1000)
            yield Life(one, end_of_box, row.grace_ms / 1000)


def dead_in_time(history: History) -> Findings:
    found = Findings(history)
    for life in lives(history):
        if found.judge(life.overshoot <= OVERSHOOT):
            one = life.witnessed
            who = "the run itself" if one.last_own == one.last else "a child that it left"
            found.blame(
                one.task,
                one.last,
                f"task {one.task}: {who} was active in run {one.run} at {history.seconds(one.last)} s,"
                f" {life.overshoot:.3f} s after its B + g at {history.seconds(life.end_of_box + life.grace)} s; the limit is {OVERSHOOT:g} s",
            )
    return found


def started_once(history: History) -> Findings:
    found = Findings(history)
    _one_run_per_token(history, found)
    _one_start_per_occurrence(history, found)
    _one_begin_per_run(history, found)
    return found


def _one_run_per_token(history: History, found: Findings) -> None:
    tokens = Counter(run.token for run in history.runs.values() if run.token)
    for run in history.runs.values():
        if run.token and found.judge(tokens[run.token] == 1):
            found.blame(run.task, _start(run), f"task {run.task}: run {run.id} shares its token with another run")


def _one_start_per_occurrence(history: History, found: Findings) -> None:
    for task, runs in history.starts.items():
        by_occurrence: dict[int | None, list[Run]] = {}
        for run in runs:
            if run.kind == "scheduled":
                by_occurrence.setdefault(run.occurrence, []).append(run)
        for occurrence, same in by_occurrence.items():
            if found.judge(len(same) == 1):
                ids = ", ".join(str(run.id) for run in same)
                instants = ", ".join(f"{history.seconds(_start(run) or 0.0)} s" for run in same)
                found.blame(
                    task,
                    _start(same[1]),
                    f"task {task}: occurrence {occurrence} started {len(same)} times: runs {ids} at {instants}",
                )


def _one_begin_per_run(history: History, found: Findings) -> None:
    for one in history.witnessed.values():
        run = history.runs.get(one.run)
        tokens = {begin.token for begin in one.begins}
        if found.judge(len(one.begins) <= 1):
            instants = ", ".join(f"{history.seconds(begin.at)} s" for begin in one.begins)
            found.blame(
                one.task,
                one.begins[1].at,
                f"task {one.task}: run {one.run} began {len(one.begins)} times, at {instants}",
            )
        if run and tokens and found.judge(tokens == {run.token}):
            found.blame(
                one.task,
                one.first,
                f"task {one.task}: run {one.run} began with a token that is not the one of its record",
            )


def _start(run: Run) -> float | None:
    return run.started.at if run.started else None
