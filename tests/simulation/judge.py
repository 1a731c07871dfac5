"""Reads a history and names violations of the promises S1-S10, S15 and L1-L5, as far as a simulation shows them.

S1 and S2 are judged by true time, which is monotonic, even if the clock was set back. A clock that was set forward makes
everything due: across such a step, S1 is judged by the database's clock alone. The step also ends the holds of other hosts,
so S2 is not judged for two runs on different hosts. S15 is not judged across it if there are several hosts: their tickers may
record the run as lost.

Tasks with keys wait for room, so L1 to L3 ignore them. `room` judges these tasks while the history is played.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from tests.doubles import INSTALLATION, RunRow, due_task, planned_id
from tests.simulation import pace
from tests.simulation.actors import People, Spec
from tests.simulation.record import Activity, History
from tests.simulation.rows import GOOD
from tests.simulation.world import SECOND, World
from ticker.engine import jobs
from ticker.engine.ports import JobState
from ticker.engine.timing import WAITING_JOBS
from ticker.model import RunKind
from ticker.schedules.hours import in_hours

SLACK = 0.05  # seconds, of a tick's jitter


def judge(world: World, people: People, period: float) -> list[str]:
    """All violations, in words."""
    judged = Judge(world, people, period)
    return [*world.history.complaints, *judged.violations()]


class Judge:
    def __init__(self, world: World, people: People, period: float) -> None:
        self.history: History = world.history
        self.counts, self.now, self.queue = world.counts, world.now(), world.tables.queue
        self.hosts = world.hosts
        self.people, self.period = people, period
        self.runs: list[RunRow] = world.tables.run_rows()
        self.tasks = {row.id: row for row in world.tables.task_rows()}
        self.waits = longest_wait(self.history)
        self.of_task: dict[int, list[Activity]] = {id_: [] for id_ in people.tasks}
        for run in self.history.activities:
            self.of_task[run.job.task_id].append(run)

    def violations(self) -> Iterator[str]:
        for check in (
            self.s1,
            self.s2,
            self.s3,
            self.s4,
            self.s5,
            self.s9,
            self.s10,
            self.s15,
            self.l1,
            self.l2,
            self.too_far,
            self.l3,
            self.l4,
            self.l5,
            self.left_over,
        ):
            yield from check()

    # --------------------------------------------------------------------------------------------------- safety

    def s1(self) -> Iterator[str]:
        """Scheduled starts of a task are at least I - T apart."""
        for runs in self.of_task.values():
            for one, two in pairwise(run for run in runs if run.job.run_id is None):
                least = (two.every_ms - two.tolerance_ms) / 1000
                apart = (two.started - one.started) / SECOND
                if self.forward_between(one.started, two.started):
                    apart = max(apart, (two.db - one.db).total_seconds())
                if apart < least and not self.mixed_between(one.started, two.started):
                    yield f"S1: {two.job.id} started {apart:.6f} s after {one.job.id}; the least is {least} s"

    def s2(self) -> Iterator[str]:
        """No two runs of a task are active at once."""
        for runs in self.of_task.values():
            for one, two in pairwise(sorted(runs, key=lambda run: run.started)):
                end = self.end(one)
                if end > two.started and not (one.boot != two.boot and self.forward_between(one.started, two.started)):
                    yield f"S2: {two.job.id} started {(end - two.started) / SECOND:.3f} s before the end of {one.job.id}"

    def s3(self) -> Iterator[str]:
        """Nothing is active after B + g."""
        for run in self.history.activities:
            if run.ended is not None and run.ended > run.limit:
                yield f"S3: {run.job.id} was active {(run.ended - run.limit) / SECOND} s past its limit"

    def s4(self) -> Iterator[str]:
        """One start per token, and per (task, occurrence)."""
        for name, seen in (
            ("token", Counter(run.token for run in self.history.activities)),
            ("job", Counter(run.job.id for run in self.history.activities)),
        ):
            yield from (f"S4: {name} {what} started {count} times" for what, count in seen.items() if count > 1)

    def s5(self) -> Iterator[str]:
        """No committed advance without a push that was answered."""
        for advance in self.history.advances:
            if not advance.answered:
                yield f"S5: {advance.job_id} advanced without an answer of the queue"

    def s9(self) -> Iterator[str]:
        """Every job that was stored ends in one record: a run, a drop or a loss."""
        records = Counter(job_of(run) for run in self.runs if run.state == "ended")
        stored = {push.job_id for push in self.history.pushes if push.answer == "stored"}
        waiting = {jobs.job_id(INSTALLATION, row.id, due) for row in self.tasks.values() for due in row.waiting}
        waiting |= {jobs.job_id(INSTALLATION, row.id, row.next_run) for row in self.tasks.values() if row.next_run}
        advanced = {advance.job_id for advance in self.history.advances}
        for job_id in stored:
            if records[job_id] > 1:
                yield f"S9: {job_id} has {records[job_id]} records"
            unseen = job_id not in records.keys() | waiting and self.accountable(job_id, job_id in advanced)
            if unseen:
                yield f"S9: {job_id} was pushed and has no record"

    def accountable(self, job_id: str, advanced: bool) -> bool:
        """Jobs of deleted tasks may go with them. One that was pushed by a pass that died may go with a wipe, or be stale."""
        bare = job_id.removeprefix(f"{INSTALLATION}-")
        if bare.startswith("r"):
            return False  # it is its own record; L5 sees whether it ends
        spec = self.people.tasks[int(bare[1:].partition("-")[0])]
        last = max(push.t for push in self.history.pushes if push.job_id == job_id and push.answer == "stored")
        is_stale = any(drop.job.id == job_id and drop.reason == "stale" for drop in self.history.drops)
        took = any(id_ == job_id for _, id_ in self.history.taken) and not is_stale
        alive = any(run.job.id == job_id and run.recorded is None for run in self.history.activities)
        returned = self.history.returned.get(job_id)
        if returned is not None:
            first = min(push.t for push in self.history.pushes if push.job_id == job_id)
            return not spec.deleted and not alive and not self.may_be_moved(spec, first, returned)
        if not advanced and self.may_be_moved(spec, last, last):
            return False
        return not spec.deleted and not alive and (advanced or took) and last < self.history.ended - 60 * SECOND

    def may_be_moved(self, spec: Spec, pushed: int, returned: int) -> bool:
        """An occurrence that met a full limit or a pause, or whose push was not committed, is the task's next run, which moves when the
        task is edited, or if a clock that was set back since the push is behind it.
        """
        return self.back_between(pushed, self.history.ended) or self.history.moved.get(spec.id, -1) >= returned

    def s10(self) -> Iterator[str]:
        """A tick pushes no occurrence of a task of which enough jobs wait."""
        for t, id_, length in self.history.waits:
            if length > WAITING_JOBS:
                yield f"S10: {length} jobs of task {id_} wait at {t / SECOND:.0f} s"

    def s15(self) -> Iterator[str]:
        """A key never has more runs, or starts in a window, than its limit allows, and no start while it is closed."""
        for key in self.history.limits:
            runs = [run for run in self.history.activities if key in run.keys]
            self.counts["judged: starts with limits"] += len(runs)
            yield from self.too_many_at_work(key, runs)
            yield from self.too_many_starts(key, runs)
            yield from self.while_held(key, runs)

    def too_many_at_work(self, key: str, runs: list[Activity]) -> Iterator[str]:
        """A limit of N has the places 1 to N: runs above a lowered limit go on, and those with the lowest limits choose first."""
        active: list[Activity] = []
        for run in runs:
            active = [other for other in active if self.end(other) > run.started and not self.is_excused(other, run)]
            active.append(run)
            places = sorted(self.places(key, one, runs) for one in active)
            if any(most < number for number, most in enumerate(places, 1)):
                yield f"S15: {run.job.id} started at {run.started / SECOND:.3f} s; {places} runs of {key} were allowed"

    def places(self, key: str, run: Activity, runs: list[Activity]) -> float:
        """How many runs were allowed at its start. After a hold one, and twice as many with each success, up to the limit of then."""
        limit = self.history.limit_of(key, run.started).concurrency
        hold = next((hold for hold in reversed(self.history.holds) if hold.key == key and hold.t <= run.started), None)
        most = float("inf") if limit is None else limit
        if hold is None:
            return most
        good = [one for one in runs if one.outcome in GOOD and hold.t <= (one.recorded or 0) <= run.started]
        later = [one for one in good if one.started >= hold.t or self.back_between(one.started, hold.t)]
        for number, one in enumerate(sorted(later, key=lambda one: one.recorded or 0), 1):
            then = self.history.limit_of(key, one.recorded).concurrency
            if then is not None and 2**number >= then:
                return most
        return min(most, 2 ** min(len(later), 20))

    def is_excused(self, one: Activity, two: Activity) -> bool:
        return self.hosts > 1 and self.forward_between(one.started, two.started)

    def too_many_starts(self, key: str, runs: list[Activity]) -> Iterator[str]:
        limit = self.history.limit_of(key)
        if limit.count is None or limit.burst is None:
            return
        for first, one in enumerate(runs):
            for number, two in enumerate(runs[first:], 1):
                if self.forward_between(one.started, two.started):
                    break
                if (number - limit.burst) * limit.seconds * SECOND > (two.started - one.started) * limit.count:
                    window = (two.started - one.started) / SECOND
                    yield f"S15: {two.job.id} was start {number} of {key} in {window:.6f} s; the limit is {limit}"

    def while_held(self, key: str, runs: list[Activity]) -> Iterator[str]:
        for hold in self.history.holds:
            for run in runs:
                inside = hold.t < run.started < hold.t + hold.length and run.db < hold.until
                if hold.key == key and inside and not self.forward_between(hold.t, run.started):
                    yield f"S15: {run.job.id} started {(run.started - hold.t) / SECOND:.3f} s after {key} was closed"

    # -------------------------------------------------------------------------------------------------- liveness

    def l1(self) -> Iterator[str]:
        """A due task is pushed within D + 1 s."""
        for advance in self.history.advances:
            if self.people.tasks[advance.task_id].limits:
                continue
            since = (advance.t - self.history.calm_from) / SECOND
            if since > 2 * self.period + 1 and advance.late > self.period + 1:
                yield f"L1: {advance.job_id} was pushed {advance.late:.3f} s late, in calm"

    def l2(self) -> Iterator[str]:
        """L2 and L4: every task starts again by itself, and then every I + D + Q; a drop costs one interval more.

        I is the interval in force, or the time for which a run has asked.
        """
        for spec in self.unlimited():
            runs = [
                run for run in self.of_task[spec.id] if run.job.run_id is None and run.started >= self.history.calm_from
            ]
            first = self.history.calm_from + round((2 * spec.longest + 3 * self.period) * SECOND)
            marks = [
                (first - self.longest(spec.longest), spec.longest),
                *((run.started, self.in_force(run, spec)) for run in runs),
            ]
            for (one, every), (two, _) in pairwise([*marks, (self.history.ended, 0.0)]):
                # the first mark is no start: what was asked before it may not have come yet
                since = one if (one, every) != marks[0] else one - round(4 * self.period * SECOND)
                asked = max(
                    (t for t, task in self.history.asked if task == spec.id and since <= t <= two), default=None
                )
                if asked is not None:
                    every = max(every, (asked - one) / SECOND + 4 * self.period)
                extra = sum(1 for drop in self.history.drops if drop.job.task_id == spec.id and one < drop.t <= two)
                late = (two - one - self.longest(every)) / SECOND - extra * (every + self.period)
                starves = late > 0 and (extra < 2 or late > 3 * every)
                if starves:
                    yield f"L2: task {spec.id} (every {every:g} s) did not start for {(two - one) / SECOND:.1f} s, in calm"

    def too_far(self) -> Iterator[str]:
        """L2 of a task with hours: it is due in an interval, or as soon as its hours allow. A new one may wait for its `first`."""
        for spec in self.people.tasks.values():
            row = self.tasks.get(spec.id)
            if spec.during and row is not None and row.next_run is not None and row.last_occurrence is not None:
                latest = in_hours(
                    due_task(row, self.now), self.now + timedelta(seconds=max(spec.longest, 4 * self.period))
                )
                if row.next_run > latest + timedelta(seconds=spec.longest):
                    yield f"L2: task {spec.id} ({spec.during}) is due at {row.next_run} only, at {self.now}"

    def in_force(self, run: Activity, spec: Spec) -> float:
        """The longest interval that may be in force after this run."""
        return pace.after(run, spec, self.of_task[spec.id], self.history)[1]

    def l3(self) -> Iterator[str]:
        """Neither more pushes than intervals, nor clearly fewer starts where the ticks carry the interval."""
        length = (self.history.ended - self.history.calm_from) / SECOND
        for spec in self.unlimited():
            pushes = sum(1 for a in self.history.advances if a.task_id == spec.id and a.t >= self.history.calm_from)
            most = length / (spec.every - 1.1) + 3 if spec.every > 2 else 1e9
            if pushes > most:
                yield f"L3: task {spec.id} was pushed {pushes} times in calm, {most:.0f} at most"
            asked = sum(task == spec.id and t >= self.history.calm_from for t, task in self.history.asked)
            least = 0.9 * (length - asked * 4 * self.period) / spec.longest - 3
            if spec.longest % self.period == 0 and spec.tolerance_ms >= 1000 and pushes < least:
                yield f"L3: task {spec.id} was pushed {pushes} times in calm, not {least:.0f}"
            if spec.most:
                self.counts["judged: intervals in force"] += pushes
                yield from (f"L3: {found}" for found in pace.too_soon(spec, self.of_task[spec.id], self.history))

    def l4(self) -> Iterator[str]:
        """What Redis lost before its start is pushed again: in calm, whatever waits has a job."""
        for row in self.tasks.values():
            old = [due for due in row.waiting if (self.now - due).total_seconds() > self.period + 1]
            states = self.queue.states([jobs.job_id(INSTALLATION, row.id, due) for due in old])
            for due, state in zip(old, states, strict=True):
                if state is JobState.MISSING:
                    yield f"L4: task {row.id} waits for {due}, and the queue has no job for it"

    def l5(self) -> Iterator[str]:
        """A run without an end gets its outcome within B + g + 2 D."""
        for run in self.runs:
            if self.is_overdue(run) or self.is_forgotten(run):
                yield f"L5: run {run.id} of task {run.task_id} is still {run.state}"

    def is_overdue(self, run: RunRow) -> bool:
        if run.state != "running" or run.started_at is None or run.until is None:
            return False
        started = next(activity.started for activity in self.history.activities if activity.token == str(run.token))
        hold = (run.until - run.started_at).total_seconds()
        end = max(started, self.history.calm_from) / SECOND + hold + 2 * self.period + 2
        return end < self.history.ended / SECOND

    def is_forgotten(self, run: RunRow) -> bool:
        """A manual run that has not started, though its job is in no worker's hands as far as RQ has found out.

        One that a worker lost after the pop comes back only when its hash expires.
        """
        is_limited = run.task_id in self.tasks and self.tasks[run.task_id].limits
        if is_limited and (run.state == "planned" or self.was_just_pushed(run)):
            return False  # it waits for room
        job_id = planned_id(run.id)
        if run.state not in ("planned", "pushed") or run.task_id not in self.tasks or job_id in self.history.popped:
            return False
        return list(self.queue.states([job_id])) != [JobState.TAKEN]

    def was_just_pushed(self, run: RunRow) -> bool:
        return run.pushed_at is not None and self.now - run.pushed_at < timedelta(seconds=2 * self.period + 5)

    def left_over(self) -> Iterator[str]:
        """L4: after the end of all pauses, no task waits for one."""
        for row in self.tasks.values():
            if row.pause_id is not None:
                yield f"L4: task {row.id} waits for pause {row.pause_id}, which is over"

    # -------------------------------------------------------------------------------------------------- questions

    def unlimited(self) -> list[Spec]:
        """The tasks that do not wait for room or for their hours."""
        return [spec for spec in self.people.tasks.values() if not spec.deleted and not spec.limits and not spec.during]

    def longest(self, every: float) -> int:
        """I + D + Q in microseconds, I rounded up to the ticks that carry it."""
        return round((max(every, self.period) + self.period + self.waits + 1 + SLACK) * SECOND)

    def end(self, run: Activity) -> int:
        return run.limit if run.ended is None else run.ended

    def forward_between(self, one: int, two: int) -> bool:
        return any(by > 0 for t, by in self.history.steps if one <= t <= two)

    def back_between(self, one: int, two: int) -> bool:
        return any(by < 0 for t, by in self.history.steps if one <= t <= two)

    def mixed_between(self, one: int, two: int) -> bool:
        """Set forward and back: neither clock can tell any more."""
        return self.forward_between(one, two) and any(by < 0 for t, by in self.history.steps if one <= t <= two)


def job_of(run: RunRow) -> str:
    scheduled = run.kind is RunKind.SCHEDULED and run.occurrence is not None
    return jobs.job_id(INSTALLATION, run.task_id, run.occurrence) if scheduled else planned_id(run.id)  # type: ignore[arg-type]


def longest_wait(history: History) -> float:
    """Q: the longest time that a job was in the queue, in calm; seconds."""
    stored: dict[str, int] = {}
    for push in history.pushes:
        if push.answer == "stored" and push.t >= history.calm_from:
            stored[push.job_id] = push.t
    return max((t - stored[id_] for t, id_ in history.taken if id_ in stored), default=0) / SECOND
