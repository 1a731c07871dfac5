"""A worker and its horse: takes a job, asks for its start, is active for a while, writes the end. It may die anywhere."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.simulation import room
from tests.simulation.actors import People
from tests.simulation.pauses import kind_of
from tests.simulation.record import Activity, Drop, Hold
from tests.simulation.verdict import Job, Verdict
from tests.simulation.world import SECOND, World
from ticker.errors import DatabaseUnavailable, RowLocked
from ticker.model import Outcome, RunKind
from wrappers.pipeline.start import PATIENCE, PAUSE, SLOWEST_ANSWER

LOCK_TIMEOUT = 2.0  # seconds: as the real connections
DEATHS = (
    "worker killed after the pop", "horse killed before the guard", "worker killed before the guard",
    "answer of the start lost", "answer of the start slow", "horse killed in user code", "worker killed in user code",
    "horse killed before the record", "function overruns its box", "worker stopped in user code",
)  # fmt: skip
SLOWS_DOWN = 0.1  # of the runs with limits, in the storm
ENDS = (Outcome.SUCCEEDED,) * 4 + (Outcome.PARTIAL, Outcome.NOTHING_TO_DO, Outcome.FAILED)
QUIET_ENDS = (Outcome.NOTHING_TO_DO,) * 5 + (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.FAILED)
ASKS_AGAIN = 0.1  # of the runs


class Worker:
    """One job at a time. `fault` strikes the next one."""

    def __init__(self, world: World, people: People, *, longest: float = 0.1, host: int = 0) -> None:
        """`longest`: of a function, as a part of the interval; the box cuts it. `host`: where it works."""
        self._host = host
        self._world, self._people, self._longest = world, people, longest
        self._busy = False
        self.fault = ""

    def wake(self) -> None:
        world = self._world
        if self._busy or not world.redis_up:
            return
        if world.t < world.slow_until:
            world.after((world.slow_until - world.t) / SECOND + 0.01, self.wake)
            return
        if self.fault == DEATHS[0] and (lost := world.tables.drop_from_list()) is not None:
            self._struck()
            world.history.popped.add(lost)
            world.say(f"{lost} is in no list any more")
            self._die()
        elif job := world.tables.take():
            self._busy = True
            world.history.taken.append((world.t, job.id))
            self._begin(job)

    # ------------------------------------------------------------------------------------------------- the guard

    def _begin(self, job: Job) -> None:
        fault = self._struck() if self.fault and self.fault in DEATHS[1:] else ""
        if fault == "horse killed before the guard":
            self._end_job(job, failed=True)
        elif fault == "worker killed before the guard":
            self._abandon(job)
        else:
            self._ask(job, fault, self._world.t + round(PATIENCE * SECOND))

    def _ask(self, job: Job, fault: str, give_up_at: int) -> None:
        world = self._world
        token = str(UUID(int=world.random.getrandbits(128)))
        try:
            world.reach("postgres")
            verdict = world.tables.start(world.now(), job, token, world.uptime(self._host))
        except DatabaseUnavailable as error:
            if world.t > give_up_at:
                self._end_job(job, failed=True)
                return
            pause = PAUSE + (LOCK_TIMEOUT if isinstance(error, RowLocked) else 0)
            world.after(pause, lambda: self._ask(job, fault, give_up_at))
            return
        self._judge_start(job, verdict)
        run = self._activity(job, verdict, token)
        if run is None:
            self._dropped(job, verdict)
        elif fault == "answer of the start lost":
            run.ended = world.t
            self._close(run, job)
        elif fault == "answer of the start slow":
            world.after(slow := world.random.uniform(0.1, 4), lambda: self._answered(run, job, slow))
        else:
            self._run(run, job, fault)

    def _activity(self, job: Job, verdict: Verdict, token: str) -> Activity | None:
        if verdict.refusal is not None:
            return None
        world = self._world
        assert verdict.every_ms and verdict.tolerance_ms is not None and verdict.box_ms and verdict.grace_ms
        run = Activity(job, verdict.run_id, token, world.t, world.t, world.now(), verdict.every_ms,
                       verdict.tolerance_ms, verdict.box_ms, verdict.grace_ms, world.uptime(self._host)[0],
                       keys=verdict.limits)  # fmt: skip
        world.history.activities.append(run)
        world.counts["starts"] += 1
        world.say(f"{job.id} starts")
        return run

    def _judge_start(self, job: Job, verdict: Verdict) -> None:
        """S6 and S7, against what people believe that they wrote."""
        spec, world = self._people.tasks[job.task_id], self._world
        if verdict.refusal is not None:
            return
        kind = RunKind.SCHEDULED if job.run_id is None else kind_of(world, job.run_id)
        if not self._people.may_start(spec, kind):
            world.history.complain("S6", f"{job.id} started though its task is {spec}")
        got = (verdict.function, verdict.every_ms, verdict.tolerance_ms, verdict.box_ms, verdict.limits)
        box_ms = spec.box_ms
        if job.run_id is not None and spec.limits and verdict.box_ms:
            box_ms = min(box_ms, verdict.box_ms)  # a retry has what is left until the next start
        if got != (spec.function, spec.every_ms, spec.tolerance_ms, box_ms, spec.limits):
            world.history.complain("S7", f"{job.id} started as {got}, its task is {spec}")

    def _dropped(self, job: Job, verdict: Verdict) -> None:
        world = self._world
        world.counts[f"drop: {verdict.refusal}"] += 1
        if verdict.refusal in ("no_room", "closed"):
            world.history.returned[job.id] = world.t
            if verdict.refusal == "no_room":
                room.judge_refusal(world, job.id, verdict.limits)
        else:
            world.history.drops.append(Drop(world.t, job, str(verdict.refusal)))
        world.say(f"{job.id} is dropped: {verdict.refusal}")
        self._end_job(job)

    def _answered(self, run: Activity, job: Job, slow: float) -> None:
        """Too slow: it never begins. Past its limit: the timers kill it as they are armed."""
        slowest = min(SLOWEST_ANSWER, run.box_ms / 1000)
        if slow <= slowest and self._world.t < run.limit:
            self._run(run, job, "")
            return
        run.ended = run.started
        if slow <= slowest:
            self._close(run, job)
            return
        if self._finish(run, Outcome.LOST):
            run.boot = None  # its start tells no uptime any more: to the next one, it was on another host
        self._end_job(job)

    # --------------------------------------------------------------------------------------------- the function

    def _run(self, run: Activity, job: Job, fault: str) -> None:
        world = self._world
        room = (run.limit - world.t) / SECOND
        length = min(world.random.uniform(0.0, self._longest) * run.every_ms / 1000, room * 0.9)
        if fault == "function overruns its box":
            world.after(room, lambda: self._killed(run, job))
        elif fault in ("horse killed in user code", "worker killed in user code"):
            alone = fault.startswith("horse")
            world.after(length * world.random.random(), lambda: self._killed(run, job, parent_lives=alone))
        elif fault == "worker stopped in user code":  # its timer runs on, and kills what is stopped
            world.after(room, lambda: self._killed(run, job, parent_lives=False))
        elif fault == "horse killed before the record":
            world.after(length, lambda: self._killed(run, job))
        else:
            is_elastic = bool(self._people.tasks[job.task_id].most)
            outcome = world.random.choice(QUIET_ENDS if is_elastic else ENDS)
            if world.random.random() < ASKS_AGAIN:
                world.after(length * world.random.random(), lambda: self._asks_again(run))
            if run.keys and not world.history.calm_from and world.random.random() < SLOWS_DOWN:
                outcome = Outcome.SLOWED_DOWN
            world.after(length, lambda: self._ended(run, job, outcome))

    def _ended(self, run: Activity, job: Job, outcome: Outcome) -> None:
        """Writes the end, again and again until the hard limit where the server is away."""
        world = self._world
        if run.token in world.stopping:
            outcome = Outcome.INTERRUPTED
            world.counts["runs stopped"] += 1
        if world.t >= run.limit:
            self._killed(run, job)
        elif not (outcome is not Outcome.SLOWED_DOWN or self._holds_off(run)) or not self._finish(run, outcome):
            pause = min(1.6, (run.limit - world.t) / SECOND)
            world.after(pause, lambda: self._ended(run, job, outcome))
        else:
            run.ended = world.t
            self._end_job(job, failed=outcome is Outcome.FAILED)

    def _holds_off(self, run: Activity) -> bool:
        """As `SlowDown` does. Returns whether the server answered."""
        world = self._world
        key, for_ = world.random.choice(run.keys), timedelta(seconds=world.random.choice([2.0, 3 * world.period]))
        try:
            world.reach("postgres")
            world.tables.close_key(world.now(), key, for_, run.run_id)
        except DatabaseUnavailable:
            return False
        world.history.holds.append(Hold(world.t, key, world.now() + for_, for_ // timedelta(microseconds=1)))
        world.counts["holds"] += 1
        world.say(f"{run.job.id} closes {key} for {for_}")
        return True

    def _asks_again(self, run: Activity) -> None:
        """As `run.again` does, for up to four ticks. S8: without its hold, it changes nothing."""
        world, task_id = self._world, run.job.task_id
        after = world.random.uniform(0.001, 4 * world.period)
        try:
            world.reach("postgres")
            before = self._row(task_id)
            due = world.tables.again(world.now(), task_id, run.token, after)
        except DatabaseUnavailable:
            return
        if due is not None and (before is None or str(before.run_token) != run.token):
            world.history.complain("S8", f"{run.job.id} asked for a time without its hold")
        if due is not None:
            world.counts["asked again"] += 1
            world.history.asked.append((world.t, task_id))
            world.history.moved[task_id] = world.t
            world.say(f"{run.job.id} asks to run again in {after:.3f} s")

    def _killed(self, run: Activity, job: Job, *, parent_lives: bool = True) -> None:
        run.ended = self._world.t
        if parent_lives:
            self._close(run, job)
        else:
            self._abandon(job)
            self._world.after(self._world.random.uniform(0, 200), lambda: self._stale(run))

    def _close(self, run: Activity, job: Job) -> None:
        """The parent of a dead horse ends the record where it can; the sweep does where it cannot."""
        self._finish(run, Outcome.KILLED)
        self._end_job(job, failed=True)

    def _finish(self, run: Activity, outcome: Outcome) -> bool:
        """Whether the server answered. S8: an end without the task's token changes nothing."""
        world, task_id = self._world, run.job.task_id
        try:
            world.reach("postgres")
            before = self._row(task_id)
            ended = world.tables.finish(world.now(), task_id, run.token, outcome)
        except DatabaseUnavailable:
            return False
        holds = before is None or str(before.run_token) == run.token
        if (ended and not holds) or (not ended and self._row(task_id) != before):
            world.history.complain("S8", f"the end of run {run.run_id}, held={holds}, changed the row: {ended}")
        if ended and run.recorded is not None:
            world.history.complain("S9", f"run {run.run_id} ended twice")
        if ended:
            run.recorded, run.outcome = world.t, outcome
            if before is not None and before.next_run != self._row(task_id).next_run:
                world.history.moved[task_id] = world.t
        world.say(f"{run.job.id} ends: {outcome if ended else 'its hold was lost'}")
        return True

    def _stale(self, run: Activity) -> None:
        """A packet that was long on its way: a cursor of a run that may have lost its hold."""
        world, task_id = self._world, run.job.task_id
        try:
            world.reach("postgres")
            before = self._row(task_id)
            wrote = world.tables.checkpoint(task_id, run.token, {"at": 1})
        except DatabaseUnavailable:
            return
        world.counts["stale writes"] += 1
        if wrote != (before is not None and str(before.run_token) == run.token):
            world.history.complain("S8", f"a stale cursor of run {run.run_id} was taken: {wrote}")

    def _row(self, task_id: int) -> Any:
        return next((row for row in self._world.tables.task_rows() if row.id == task_id), None)

    # ------------------------------------------------------------------------------------------------ behind a job

    def _end_job(self, job: Job, *, failed: bool = False) -> None:
        """Without Redis the worker leaves, and the job's hash goes on saying `started`."""
        if not self._world.redis_up:
            self._abandon(job)
            return
        self._world.tables.end_job(job.id, failed=failed)
        self._busy = False
        self._world.after(0.001, self.wake)

    def _abandon(self, job: Job) -> None:
        """RQ's maintenance finds the job when its heartbeat is long over."""
        since = self._world.t
        self._world.history.abandoned.add(job.id)
        self._world.after(self._world.random.uniform(60, 200), lambda: self._found_dead(job, since))
        self._die()

    def _found_dead(self, job: Job, since: int) -> None:
        self._world.history.abandoned.discard(job.id)
        if any(wipe >= since for wipe in self._world.history.wipes):
            return
        if self._world.redis_up:
            self._world.tables.end_job(job.id, failed=True)
        else:
            self._world.history.abandoned.add(job.id)
            self._world.after(60, lambda: self._found_dead(job, since))

    def _die(self) -> None:
        self._busy = True
        self._world.after(self._world.random.uniform(0.5, 10), self._restart)

    def _restart(self) -> None:
        self._busy = False
        self.wake()

    def _struck(self) -> str:
        fault, self.fault = self.fault, ""
        self._world.fault(fault)
        return fault
