"""Computes how many workers a queue needs, by a simulation of its ticks, jobs and workers.

The demand of interval tasks is known: when they are due, and how often. That of everything else is measured. A tick pushes all that
is due, and the workers take the jobs in that order. A run takes as long as one of the measured runs, chosen at random, always in the
same way. But a mailbox that hangs, hangs each time.
"""

import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

OVERHEAD = (
    0.02  # seconds for which a job occupies a worker besides its run: the fork, and RQ (python -m tests.bench worker)
)
OVERHEAD_IN_BATCH = 0.003  # the same for a further run in the same process
SOON = 0.001  # seconds after which another tick comes first
LOOK_AHEAD = 1.0  # seconds: what is due so soon after a tick is pushed by it
LIFE = 600.0  # seconds for which the process of a group takes further jobs (wrappers.group.refill)
LONGEST = 3600.0  # seconds that are simulated
LEAST = 10  # ticks that are simulated, at least
STARTS = 20_000  # simulated in one try; more of them are thinned out
MOST_WORKERS = 100_000
SLACK = 0.03  # of the work that a limit lets through: if it waits for a worker, the limit waits with it, and less is started


@dataclass(frozen=True, slots=True)
class Durations:
    """Measured durations of a function in seconds, each with the number of its runs. `hung` is the mean of runs that a limit ended."""

    values: tuple[tuple[float, int], ...] = ()
    hung: tuple[float, int] = (0.0, 0)

    @property
    def count(self) -> int:
        return sum(count for _, count in (*self.values, self.hung))

    @property
    def mean(self) -> float:
        return sum(value * count for value, count in (*self.values, self.hung)) / max(self.count, 1)

    def quantile(self, share: float) -> float:
        left = share * self.count
        for value, count in sorted((*self.values, self.hung)):
            left -= count
            if left <= 0 < count:
                return value
        return 0.0

    def of_tasks(self, tasks: int) -> list[Iterator[float]]:
        """Returns the durations of the runs of each task. The tasks that hang are spread among the others."""
        chance, ends, usual = random.Random(tasks), [*accumulate(count for _, count in self.values)], self.values
        hang = tasks * self.hung[1] / max(self.count, 1)
        order = sorted(range(tasks), key=lambda place: place * 0.6180339887498949 % 1)
        shares = dict(zip(order, (min(hang - before, 1.0) for before in range(math.ceil(hang))), strict=False))

        def runs(share: float) -> Iterator[float]:
            while True:
                is_hung = share >= 1 or not ends or chance.random() < share
                yield self.hung[0] if is_hung else usual[bisect(ends, chance.random() * ends[-1])][0]

        return [runs(shares.get(place, 0.0)) for place in range(tasks)]


def durations(histograms: Iterable[tuple[Sequence[int], float, bool]], first: float = 0.05) -> Durations:
    """Returns the durations in these histograms: counts by bucket, the sum of all values in seconds, and whether a limit ended them.

    The first bucket ends at `first`, and each further one at twice as much. In each histogram, the values are at the same share of
    their buckets, so that their sum is right.
    """
    values, hung, sum_of_hung = list[tuple[float, int]](), 0, 0.0
    for counts, total, has_hung in histograms:
        if has_hung:
            hung, sum_of_hung = hung + sum(counts), sum_of_hung + total
            continue
        bounds = [(first * 2 ** (place - 1) if place else 0.0, first * 2**place) for place in range(len(counts))]
        least = sum(count * low for count, (low, _) in zip(counts, bounds, strict=True))
        width = sum(count * (high - low) for count, (low, high) in zip(counts, bounds, strict=True))
        share = max((total - least) / width, 0.0) if width else 0.0
        values += [
            (low + share * (high - low), count) for count, (low, high) in zip(counts, bounds, strict=True) if count
        ]
    return Durations(tuple(sorted(values)), (sum_of_hung / max(hung, 1), hung))


@dataclass(frozen=True, slots=True)
class Function:
    """What a queue has to run of a function.

    `tasks` are interval tasks: in how many seconds each is due, its interval, and whether it is spread. A task that is not is due
    again after the tick that pushes it. `steady` are the starts per second of tasks whose times are unknown, and `alone` those of
    runs that have jobs of their own.
    """

    durations: Durations
    batch: int = 1
    concurrency: int = 1
    tasks: Sequence[tuple[float, float, bool]] = ()
    steady: float = 0.0
    alone: float = 0.0

    @property
    def starts(self) -> float:
        """Starts per second."""
        return self.steady + self.alone + sum(1 / every for _, every, _ in self.tasks)

    @property
    def work(self) -> float:
        """Workers that are busy on average."""
        return self.alone * (self.durations.mean + OVERHEAD) + (self.starts - self.alone) * self.each

    @property
    def each(self) -> float:
        """Seconds of a worker for each start of a task."""
        overhead = OVERHEAD_IN_BATCH if self.batch > 1 else OVERHEAD
        return (self.durations.mean + overhead) / self.concurrency

    def runs(self, span: float, ticks: "Ticks") -> Iterator[tuple[float, float, bool]]:
        """Yields when runs are due, how long they take, and whether they are alone, in no order.

        What the last tick should have pushed counts as due at the next one: that tick may still be at work.
        """
        for (due, every, is_spread), took in zip(self.tasks, self.durations.of_tasks(len(self.tasks)), strict=True):
            due = max(due, ticks.first) if ticks.at(due) < 0 else due
            while due < span:
                yield due, next(took), False
                pushed = ticks.time(ticks.at(due))
                own = due + every * math.ceil(max(pushed - due, every) / every) if is_spread else pushed + every
                due = max(own, pushed + LOOK_AHEAD + SOON)  # a tick pushes no task twice
        for rate, is_alone in (((1 - SLACK) * self.steady, False), (self.alone, True)):
            for number, took in enumerate(self.durations.of_tasks(int(rate * span))):
                yield (number + 0.5) / rate, next(took), is_alone

    def thinned(self, every: int) -> "Function":
        return replace(self, tasks=self.tasks[::every], steady=self.steady / every, alone=self.alone / every)


class Ticks(NamedTuple):
    """Ticks at a fixed rhythm, in seconds."""

    period: float
    first: float

    def at(self, due: float) -> int:
        """Returns the number of the tick that pushes what is due then. The first one has the number 0."""
        return math.ceil((due - LOOK_AHEAD - self.first) / self.period)

    def time(self, number: int) -> float:
        return self.first + number * self.period


class Need(NamedTuple):
    """How many workers are busy on average, and how many keep 99% of the starts within two ticks."""

    average: float
    enough: int


class Job(NamedTuple):
    """A job in the order of the queue. `group` is the function that shares a process, or -1. A run is when it is due, and how long it takes."""

    pushed: float
    group: int
    runs: Sequence[tuple[float, float]]


@dataclass(slots=True)
class Load:
    """What a queue has to run. Each task stands for `weight` tasks, of a large table."""

    functions: Sequence[Function]
    ticks: Ticks
    weight: float = 1.0
    starts: int = STARTS
    jobs: list[Job] = field(default_factory=list)

    def need(self) -> Need:
        average = self.weight * sum(function.work for function in self.functions)
        if not average:
            return Need(0.0, 0)
        self._thin()
        self.jobs = [*self._pushed()]
        starts = sum(len(job.runs) for job in self.jobs)
        allowed = max(starts // 100, late(self, min(max(len(self.jobs), 1), MOST_WORKERS), starts))
        fails = math.floor(average - SLACK * self.weight * sum(one.steady * one.each for one in self.functions))
        workers = fails + 1
        while workers < MOST_WORKERS and late(self, workers, allowed) > allowed:
            fails, workers = workers, 2 * workers
        while workers - fails > 1:
            middle = (fails + workers) // 2
            fails, workers = (middle, workers) if late(self, middle, allowed) > allowed else (fails, middle)
        return Need(average, workers)

    def _thin(self) -> None:
        """Keeps every nth task if there are more starts than can be simulated."""
        least = sum(len(one.tasks) + one.starts * LEAST * self.ticks.period for one in self.functions)
        every = max(math.ceil(least / (2 * self.starts)), 1)
        self.weight *= every
        self.functions = [one.thinned(every) for one in self.functions]

    def _pushed(self) -> Iterator[Job]:
        """Yields all jobs in the order of the queue."""
        rate = sum(function.starts for function in self.functions)
        span = max(LEAST * self.ticks.period, min(LONGEST, self.starts / rate))
        due_in: dict[int, list[tuple[float, int, float, bool]]] = defaultdict(list)
        for number, function in enumerate(self.functions):
            for due, took, is_alone in function.runs(span, self.ticks):
                due_in[self.ticks.at(due)].append((due, number, took, is_alone))
        for tick in sorted(due_in):
            yield from self._packed(self.ticks.time(tick), sorted(due_in[tick], key=itemgetter(0)))

    def _packed(self, pushed: float, due: Iterable[tuple[float, int, float, bool]]) -> list[Job]:
        """Returns the jobs of a tick: one for each run, or for up to `batch` runs of a function."""
        jobs, open_ = [], dict[int, list[tuple[float, float]]]()
        for at, number, took, is_alone in due:
            function = self.functions[number]
            if self.weight > 1:  # the jobs of so many tasks, one after another, in pieces that are shorter than a tick
                total = self.weight * (took + OVERHEAD) / (1 if is_alone else function.concurrency)
                pieces = min(max(math.ceil(2 * total / self.ticks.period), 1), math.ceil(self.weight))
                jobs += [Job(pushed, -1, [(at, total / pieces - OVERHEAD)])] * pieces
            elif function.batch == 1 or is_alone:
                jobs.append(Job(pushed, -1, [(at, took)]))
            elif len(open_.get(number, ())) % function.batch:
                open_[number].append((at, took))
            else:
                open_[number] = [(at, took)]
                jobs.append(Job(pushed, number, open_[number]))
        return jobs


def late(load: Load, workers: int, most: int) -> int:
    """Returns how many starts are late by two ticks or more, if there are so many workers. Stops counting above `most`."""
    free = [(0.0, worker) for worker in range(workers)]
    heapify(free)
    slots: dict[int, list[float]] = {}
    groups: dict[int, tuple[int, float]] = {}  # by worker: the function of its process, and when that began
    limit, count = 2 * load.ticks.period, 0
    for pushed, group, runs in load.jobs:
        if count > most:
            break
        while (worker := free[0][1]) in groups and groups[worker][0] != group:
            del groups[worker]  # another job comes next: the process takes no further ones
            heapreplace(free, (max(slots[worker]), worker))
        start = max(free[0][0], pushed)
        if group < 0:
            [(due, took)] = runs
            count += start - due >= limit
            heapreplace(free, (start + took + OVERHEAD, worker))
            continue
        if worker not in groups or start >= max(slots[worker]) or start - groups[worker][1] > LIFE:
            groups[worker] = group, start
            slots[worker] = [start + OVERHEAD] * load.functions[group].concurrency
        at = start
        for due, took in runs:
            at = max(slots[worker][0], start)
            count += at - due >= limit
            heapreplace(slots[worker], at + took + OVERHEAD_IN_BATCH)
        heapreplace(free, (max(at, slots[worker][0]), worker))
        if load.functions[group].concurrency == 1:
            del groups[worker]  # one after another
    return count
