"""A simulation of a ticker, its queues and its workers, event by event: how late runs are with so many workers.

It knows nothing of `ticker.daemon.needs`, whose answers it judges. It plays the rules of the documentation: a tick every 30 s
pushes what is due; jobs are taken in order; a job that comes too early is dropped; a run that exceeds its box is ended; the process
of a group takes further jobs of its function; a key with a limit has a job only while it has room.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

TICK = 30.0
GRACE = 1.0
DROP = 0.004  # seconds that a dropped job costs
LATE = 2 * TICK


class Started(NamedTuple):
    """One record: when an occurrence was due, and when it started and ended; a dropped one has not started."""

    task: "Task"
    due: float
    started: float | None
    ended: float
    outcome: str
    reason: str = ""


@dataclass(eq=False)
class Task:
    """An interval task. `took` gives the duration of a run in seconds."""

    function: str
    every: float
    took: Callable[[random.Random], float]
    queue: str = "polling"
    phase: float | None = None
    key: str | None = None
    next_run: float = 0.0
    last_run: float = -inf
    waiting: int = 0
    is_running: bool = False

    @property
    def tolerance(self) -> float:
        return min(self.every / 4, max(5.0, self.every / 20))

    @property
    def box(self) -> float:
        return self.every / 2


@dataclass(eq=False)
class Worker:
    queue: str
    function: str = ""  # of its group
    slots: int = 0  # free ones
    unstarted: deque[Any] = field(default_factory=deque)
    at_work: int = 0
    takes_more: bool = True


class Truth:
    """Plays `seconds` of these tasks, with so many workers in each queue."""

    def __init__(
        self, tasks: list[Task], workers: dict[str, int], *, groups: dict[str, tuple[int, int]] | None = None,
        limits: dict[str, int] | None = None, seed: int = 1,
    ) -> None:  # fmt: skip
        self.tasks, self.groups, self.limits = tasks, groups or {}, limits or {}
        self.chance = random.Random(seed)
        self.chance.shuffle(self.tasks)  # what is due at the same time always comes in this order
        self.now, self.number = 0.0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.queues: dict[str, deque[tuple[str, list[tuple[Task, float]]]]] = defaultdict(deque)
        self.idle = {queue: [Worker(queue) for _ in range(count)] for queue, count in workers.items()}
        self.employed = dict(workers)
        self.records: list[Started] = []
        self.active: dict[str, int] = defaultdict(int)
        self.held: dict[str, deque[tuple[Task, float]]] = defaultdict(deque)
        self.groups_at_work: dict[str, list[Worker]] = defaultdict(list)

    def play(self, seconds: float) -> "Truth":
        if not self.number:
            self.at(0.0, self.tick)
        while self.events and self.events[0][0] < seconds:
            self.now, _, happens = heappop(self.events)
            happens()
        self.now = seconds
        return self

    def employ(self, queue: str, workers: int) -> None:
        """Adds workers to the queue, or ends idle ones, until it has so many."""
        change = workers - self.employed.get(queue, 0)
        idle = self.idle.setdefault(queue, [])
        gone = [idle.pop() for _ in range(min(-change, len(idle)))]
        idle += [Worker(queue) for _ in range(change)]
        self.employed[queue] = workers if change > 0 else self.employed[queue] - len(gone)
        self.give_jobs()

    def at(self, when: float, happens: Callable[[], None]) -> None:
        self.number += 1
        heappush(self.events, (when, self.number, happens))

    # the ticker

    def tick(self) -> None:
        self.at(self.now + TICK, self.tick)
        due = [task for task in self.tasks if task.next_run <= self.now + min(1.0, task.tolerance / 5)]
        open_: dict[tuple[str, str], list[tuple[Task, float]]] = {}
        for task in sorted(due, key=lambda task: task.next_run):
            occurrence = task.next_run
            if task.phase is None:
                task.next_run = self.now + task.every
            else:
                task.next_run = occurrence + task.every
            if task.key:
                self.held[task.key].append((task, occurrence))
                continue
            task.waiting += 1
            batch = self.groups.get(task.function, (1, 1))[0]
            of_function = open_.get((task.queue, task.function))
            if batch == 1 or of_function is None or len(of_function) >= batch:
                of_function = open_[task.queue, task.function] = []
                self.queues[task.queue].append((task.function, of_function))
            of_function.append((task, occurrence))
        for key in self.held:
            self.let_in(key)
        self.give_jobs()

    def let_in(self, key: str) -> None:
        while self.held[key] and self.active[key] < self.limits[key]:
            task, occurrence = self.held[key].popleft()
            self.active[key] += 1  # its job takes the room, and keeps it until its end
            task.waiting += 1
            self.queues[task.queue].append((task.function, [(task, occurrence)]))

    # the workers

    def give_jobs(self) -> None:
        for queue, jobs in self.queues.items():
            while jobs and self.idle.get(queue):
                self.take(self.idle[queue].pop(), *jobs.popleft())
            for worker in [*self.groups_at_work[queue]]:
                self.refill(worker)

    def take(self, worker: Worker, function: str, runs: list[tuple[Task, float]]) -> None:
        if function in self.groups:
            worker.function, worker.slots = function, self.groups[function][1]
            worker.unstarted, worker.takes_more = deque(runs), True
            self.groups_at_work[worker.queue].append(worker)
            self.fill(worker)
        else:
            self.run_alone(worker, *runs[0])

    def run_alone(self, worker: Worker, task: Task, due: float) -> None:
        took = self.start(task, due)
        if took is None:
            self.at(self.now + DROP, lambda: self.is_free(worker))
            return

        def end() -> None:
            self.end(task)
            self.at(self.now + self.chance.uniform(0.010, 0.020), lambda: self.is_free(worker))

        self.at(self.now + took, end)

    def is_free(self, worker: Worker) -> None:
        self.idle[worker.queue].append(worker)
        self.give_jobs()

    def fill(self, worker: Worker) -> None:
        """Starts runs of a group in its free slots, takes further jobs, and ends the process when nothing is left."""
        while worker.unstarted and worker.slots:
            task, due = worker.unstarted.popleft()
            took = self.start(task, due)
            if took is not None:
                worker.slots -= 1
                worker.at_work += 1
                self.at(self.now + took, lambda task=task: self.end_in_group(worker, task))  # type: ignore[misc]
        self.refill(worker)
        if not worker.unstarted and not worker.at_work:
            self.groups_at_work[worker.queue].remove(worker)
            self.at(self.now + 0.015, lambda: self.is_free(worker))

    def refill(self, worker: Worker) -> None:
        jobs = self.queues[worker.queue]
        if worker.takes_more and worker.at_work and len(worker.unstarted) < worker.slots and jobs:
            if jobs[0][0] != worker.function:
                worker.takes_more = False
            else:
                worker.unstarted.extend(jobs.popleft()[1])
                self.fill(worker)

    def end_in_group(self, worker: Worker, task: Task) -> None:
        self.end(task)
        worker.slots += 1
        worker.at_work -= 1
        self.fill(worker)

    def start(self, task: Task, due: float) -> float | None:
        """Records the decision about an occurrence. Returns how long its run takes, or None if it is dropped."""
        task.waiting -= 1
        reason = ""
        if due < self.now - max(2 * task.every, 600) and task.waiting:
            reason = "expired"
        elif task.is_running:
            reason = "still_running"
        elif self.now < task.last_run + task.every - task.tolerance:
            reason = "too_early"
        if reason:
            self.records.append(Started(task, due, None, self.now, "dropped", reason))
            self.leave(task)
            return None
        task.last_run, task.is_running = self.now, True
        took = task.took(self.chance)
        outcome = "succeeded" if took < task.box + GRACE / 2 else "timed_out"
        took = min(took, task.box + GRACE / 2)
        self.records.append(Started(task, due, self.now, self.now + took, outcome))
        return took

    def end(self, task: Task) -> None:
        task.is_running = False
        self.leave(task)

    def leave(self, task: Task) -> None:
        if task.key:
            self.active[task.key] -= 1
            self.let_in(task.key)
            self.give_jobs()

    # the verdict

    def lateness(self, queue: str, *, limited: bool = False, since: float = 0.0) -> float:
        """The 99th percentile in seconds. What expired was never in time, and what came too early followed a run that was late."""
        of_queue = [
            one
            for one in self.records
            if one.task.queue == queue and bool(one.task.key) == limited and one.due >= since
        ]
        late = [inf if one.started is None else one.started - one.due for one in of_queue if one.reason != "too_early"]
        jobs = (run for _, runs in self.queues[queue] for run in runs if not limited)
        left = (run for runs in self.held.values() for run in runs if limited)
        late += [self.now - due for _, due in (*jobs, *left)]
        late.sort()
        return late[int(0.99 * len(late))]
