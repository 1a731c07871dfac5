"""Time, and what befalls the system: crashes, lost answers, wipes, clock steps, and what people do to a row."""

from tests.model.edits import edits
from tests.model.rules import UNIT, Bounds, Rules
from tests.model.runs import Step, job_becomes, named, relabelled, with_dead_holder
from tests.model.state import (
    AGAIN,
    ANSWERED,
    ASKED,
    ASKED_QUEUE,
    ASTRAY,
    AWAKE,
    CHILD,
    CLAMPED,
    CLOSING,
    DEAD,
    DUE,
    ENDED,
    FIRST,
    FREE,
    IDLE,
    JUDGED,
    LIMBO,
    LOCKED,
    NO_PLAN,
    NOBODY,
    PLAN_PUSHED,
    POPPED,
    PUSHED,
    RUNNING,
    SWEEPING,
    SWEPT,
    TAKEN,
    WAITS,
    Slot,
    State,
    Ticker,
    is_locked,
    moved,
    put,
    put_slot,
    put_ticker,
)  # fmt: skip

RESTARTS = Ticker(look=FIRST)  # after a kill


class Befalls:
    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.bounds, self.rules = bounds, rules

    def happen(self, state: State) -> list[Step]:
        steps = [self.time(state)] if self.may_time_pass(state) else []
        steps += self.burials(state)
        left = state.faults
        if left.crash:
            steps += self.crashes(spent(state, "crash"))
        if left.freeze:
            steps += self.freezes(spent(state, "freeze"))
        if left.lost:
            steps += self.losses(spent(state, "lost"))
        if left.refused:
            steps += self.refusals(spent(state, "refused"))
        if left.edit:
            steps += edits(spent(state, "edit"), self.bounds)
        steps += self.others(state)
        return steps

    # ------------------------------------------------------------------------------------------ time

    def may_time_pass(self, state: State) -> bool:
        if self.bounds.beat and state.heard <= -self.bounds.beat * UNIT:
            return False
        if self.bounds.prompt and is_busy(state):
            return False
        oldest = -self.bounds.staleness * UNIT
        return not any(t.at not in (IDLE, CLAMPED, ENDED) and t.now <= oldest for t in state.tickers)

    def time(self, state: State) -> Step:
        """One unit passes, on every clock; what is at its hard limit dies."""
        broken = ""
        state = moved(state, UNIT)
        rows = tuple(r if r.since is None else r._replace(since=r.since + UNIT) for r in state.rows)
        state = state._replace(rows=rows)
        for number, slot in enumerate(state.slots):
            if slot.at in (ASKED, JUDGED, ANSWERED):
                most = (self.bounds.slowest_answer + 1) * UNIT
                state = put_slot(state, number, slot._replace(waited=min(slot.waited + UNIT, most)))
            elif slot.at in (RUNNING, CHILD):
                state, found = self.older(state, number, slot)
                broken = broken or found
        return "time passes", state, broken

    def older(self, state: State, number: int, slot: Slot) -> tuple[State, str]:
        left, outlived = slot.left - UNIT, slot.over > 0 and slot.left <= slot.over
        if left <= 0:
            if not self.rules.children_die and slot.at == RUNNING:
                return state, "S3"
            return (put_slot(state, number, Slot()) if slot.at == CHILD else self.killed(state, number)), (
                "S3" if slot.at == CHILD or outlived else ""
            )
        return put_slot(state, number, slot._replace(left=left)), "S3" if outlived else ""

    # ------------------------------------------------------------------------------------------ Redis and RQ

    def burials(self, state: State) -> list[Step]:
        """RQ finds, sooner or later, that nobody works on a job that was taken, and calls it failed."""
        steps: list[Step] = []
        for task, row in enumerate(state.rows):
            for job in row.jobs:
                if job[1] in (TAKEN, LIMBO) and not is_at_work(state, task, job[0]):
                    steps.append(becomes(state, task, job, DEAD))
                    if job[1] == LIMBO:
                        steps.append(becomes(state, task, job, ASTRAY))
        return steps

    def bury_all(self, state: State) -> State:
        while steps := self.burials(state):
            state = steps[0][1]
        return state

    def others(self, state: State) -> list[Step]:
        steps: list[Step] = []
        left = state.faults
        if left.wipe and any(row.jobs for row in state.rows):
            empty = tuple(row._replace(jobs=()) for row in state.rows)
            steps.append(("FLUSHALL", spent(state, "wipe")._replace(rows=empty), ""))
        if left.back:
            steps.append(("clock set back", self.stepped(spent(state, "back"), -self.bounds.back_by), ""))
        if left.ahead:
            steps.append(("clock set forward", self.set_forward(spent(state, "ahead")), ""))
        if left.manual:
            for task, row in enumerate(state.rows):
                if row.alive and row.plan[0] == NO_PLAN and not is_locked(state, task):
                    steps.append(("run_now", put(spent(state, "manual"), task, row._replace(plan=(DUE, 0))), ""))
        if left.reference:
            referred = put(spent(state, "reference"), 0, state.rows[0]._replace(referred=True))
            steps.append(("an application's open transaction refers to the task", referred, ""))
        return steps

    def stepped(self, state: State, by: int) -> State:
        """Each living ticker can tell it, by its own uptime, from the sum of all steps since its last clamp."""
        tickers = tuple(t if t.look == FIRST else t._replace(drift=t.drift + by) for t in state.tickers)
        return moved(state._replace(tickers=tickers), by, holds=not (self.bounds.one_host and self.rules.uptime_counts))

    def set_forward(self, state: State) -> State:
        """Across such a step, spacing is judged by the database's clock. A hold ends with the step; a hold on one host does not."""
        by = self.bounds.ahead_by
        state = self.stepped(state, by)
        rows = tuple(r if r.since is None else r._replace(since=r.since + by) for r in state.rows)
        if self.bounds.one_host:
            return state._replace(rows=rows)
        slots = tuple(
            s._replace(jumped=self.rules.steps_excuse) if s.at in (ANSWERED, RUNNING) else s for s in state.slots
        )
        return state._replace(rows=rows, slots=slots)

    # ------------------------------------------------------------------------------------------ crashes, lost answers

    def crashes(self, state: State) -> list[Step]:
        steps: list[Step] = []
        for number, ticker in enumerate(state.tickers):
            if ticker.at != IDLE or ticker.drift or ticker.look == AGAIN:
                steps.append((f"ticker killed ({PLACES[ticker.at]})", put_ticker(state, number, RESTARTS), ""))
        if self.bounds.grouped:
            return [*steps, *self.group_crashes(state)]
        for number, slot in enumerate(state.slots):
            steps += self.worker_crashes(state, number, slot)
        return steps

    def group_crashes(self, state: State) -> list[Step]:
        busy = [n for n, slot in enumerate(state.slots) if slot.at not in (FREE, CHILD)]
        if not busy:
            return []
        both = state
        for number in busy:
            both = gone(both, number)
        return [("worker and group killed", both, ""), ("the process of the group dies", group_killed(state), "")]

    def killed(self, state: State, number: int) -> State:
        return group_killed(state) if self.bounds.grouped else killed(state, number)

    def worker_crashes(self, state: State, number: int, slot: Slot) -> list[Step]:
        if slot.at in (FREE, CHILD):
            return []
        both = ("worker and horse killed", gone(state, number), "")
        if slot.at == CLOSING:
            return [("worker killed before it records its dead horse's run", both[1], "")]
        if slot.at == POPPED or slot.orphan:
            return [both]
        horse = ("horse killed", killed(state, number), "")
        if slot.at == RUNNING:
            orphan = ("worker killed, its horse goes on", put_slot(state, number, slot._replace(orphan=True)), "")
            return (
                [both, horse, orphan]
                if self.rules.sweep_keeps_the_hold
                else [both, horse, self.freed_at_once(orphan[1], number)]
            )
        return [both, horse]

    def freezes(self, state: State) -> list[Step]:
        """Whoever has a job in hand stands still: meanwhile it looks astray, or RQ calls it failed."""
        steps: list[Step] = []
        for slot in state.slots:
            if slot.at in (POPPED, ASKED):
                for job in state.rows[slot.task].jobs:
                    if job[0] == slot.occurrence and job[1] in (LIMBO, TAKEN):
                        steps += [becomes(state, slot.task, job, DEAD)]
                        steps += [becomes(state, slot.task, job, ASTRAY)] if job[1] == LIMBO else []
        return steps

    def freed_at_once(self, state: State, number: int) -> Step:
        """The wrong sweep: a dead worker's run is taken for dead."""
        task = state.slots[number].task
        row = state.rows[task]
        row = row._replace(
            opens=relabelled(row.opens, number + 1, NOBODY), token=NOBODY if row.token == number + 1 else row.token
        )
        return "worker killed, its horse goes on", put(state, task, row), ""

    def losses(self, state: State) -> list[Step]:
        """A request that never arrived, or whose answer was lost: the pass ends, and its transaction rolls back."""
        steps: list[Step] = []
        for number, ticker in enumerate(state.tickers):
            failed = put_ticker(state, number, Ticker(look=ticker.look, drift=ticker.drift))
            if ticker.at in (LOCKED, PUSHED, PLAN_PUSHED, ASKED_QUEUE, SWEPT):
                steps.append((f"request of the tick fails ({PLACES[ticker.at]})", failed, ""))
            if ticker.at == SWEEPING:
                steps.append(("the commit's answer is lost, the pass ends", failed, ""))
            if ticker.at == LOCKED and not self.rules.advance_only_what_was_pushed:
                steps.append(
                    ("push fails, the tick goes on", put_ticker(state, number, ticker._replace(at=PUSHED)), "")
                )
        return steps

    def refusals(self, state: State) -> list[Step]:
        """Redis refuses one job of a push: the row is set back."""
        steps: list[Step] = []
        for number, ticker in enumerate(state.tickers):
            if ticker.at != LOCKED or ticker.done:
                continue
            for task, row in enumerate(state.rows):
                if ticker.mask == 1 << task:
                    after = row._replace(push_after=ticker.now + self.bounds.back_off * UNIT)
                    done = put_ticker(put(state, task, after), number, ticker._replace(at=AWAKE, mask=0))
                    steps.append(("Redis refuses the job, the row is set back", done, ""))
        return steps


PLACES = (
    "idle", "after its clamp", "before it reads now", "awake", "planned run pushed", "rows locked", "all pushed", "sweeping", "Redis asked",
    "pushed again", "before its heartbeat",
)  # fmt: skip


def is_busy(state: State) -> bool:
    if any(slot.at in (POPPED, ASKED, ANSWERED, CLOSING) for slot in state.slots):
        return True
    free = any(slot.at == FREE for slot in state.slots)
    return free and any(job[1] == WAITS for row in state.rows for job in row.jobs)


def becomes(state: State, task: int, job: tuple[int, int, int], now: int) -> Step:
    row = state.rows[task]
    what = f"{named(job[0])} is astray" if now == ASTRAY else f"RQ calls {named(job[0])} failed"
    return what, put(state, task, row._replace(jobs=job_becomes(row.jobs, job, now))), ""


def is_at_work(state: State, task: int, occurrence: int) -> bool:
    return any(s.at != FREE and s.task == task and s.occurrence == occurrence for s in state.slots)


def spent(state: State, fault: str) -> State:
    return state._replace(faults=state.faults._replace(**{fault: getattr(state.faults, fault) - 1}))


def killed(state: State, number: int) -> State:
    """The horse is dead. RQ calls its job failed, and its worker closes the record, if it lives."""
    slot = state.slots[number]
    row = state.rows[slot.task]
    job = next((job for job in row.jobs if job[0] == slot.occurrence and job[1] == TAKEN), None)
    if job:
        state = put(state, slot.task, row._replace(jobs=job_becomes(row.jobs, job, DEAD)))
    if slot.orphan or slot.at in (ASKED, JUDGED):
        return gone(state, number)
    return put_slot(state, number, Slot(CLOSING, slot.task, slot.occurrence))


def group_killed(state: State) -> State:
    """Ends all runs of a process. Runs that were active with others are interrupted. The jobs of unstarted runs fail."""
    at_work = [n for n, slot in enumerate(state.slots) if slot.at in (ANSWERED, RUNNING)]
    for number, slot in enumerate(state.slots):
        if slot.at == POPPED:
            row = state.rows[slot.task]
            for job in [job for job in row.jobs if job[0] == slot.occurrence and job[1] in (LIMBO, TAKEN)]:
                row = row._replace(jobs=job_becomes(row.jobs, job, DEAD))
            state = put_slot(put(state, slot.task, row), number, Slot())
        elif slot.at in (ASKED, JUDGED, ANSWERED, RUNNING):
            state = killed(state, number)
    for number in at_work if len(at_work) > 1 else ():
        state = put_slot(state, number, state.slots[number]._replace(interrupted=True))
    return state


def gone(state: State, number: int) -> State:
    """Worker and horse are dead: nobody will end this run, and its record stays open."""
    slot = state.slots[number]
    token, row = number + 1, state.rows[slot.task]
    if slot.at in (ANSWERED, RUNNING, CLOSING):
        mine = row.token == token
        row = row._replace(
            token=NOBODY if mine else row.token, opens=relabelled(row.opens, token, NOBODY if mine else 0)
        )
        state = with_dead_holder(put(state, slot.task, row), token)
    return put_slot(state, number, Slot())
