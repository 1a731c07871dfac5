"""The worker's side: the start, the end, and what a worker does between them. As in db/sql and wrappers/."""

from tests.model.rules import MARGIN, UNIT, Bounds, Rules, Timing
from tests.model.state import (
    ANSWERED,
    ASKED,
    CHILD,
    CLOSING,
    DUE,
    FREE,
    JUDGED,
    LIMBO,
    NO_PLAN,
    NOBODY,
    PLAN_PUSHED,
    PLANNED,
    POPPED,
    RUNNING,
    TAKEN,
    WAITS,
    Open,
    Place,
    Row,
    Slot,
    State,
    due_at,
    holding,
    is_held,
    is_locked,
    put,
    put_slot,
    without,
)  # fmt: skip

Step = tuple[str, State, str]
"""What happened, the state after it, and the invariant that it broke, or nothing."""

ACTIVE = (RUNNING, CHILD)


class Runs:
    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.bounds, self.rules = bounds, rules

    def step(self, state: State, number: int) -> Step | None:
        """What this worker does next when nothing fails; None: nothing, or it waits for a lock."""
        slot = state.slots[number]
        if slot.at == POPPED:
            return self.ask(state, number)
        if slot.at == ASKED and not (self.rules.guard_is_atomic and self.waits(state, slot)):
            return self.start(state, number)
        if slot.at == JUDGED and not self.waits(state, slot):
            return self.started(
                state, number, state.rows[slot.task], 0, f"guard writes: {named(slot.occurrence)} starts"
            )
        if slot.at == ANSWERED:
            return self.begin(state, number)
        if slot.at == RUNNING and not self.must_wait(state, slot):
            return self.finish(state, number, "run ends", "", pace=1)
        if slot.at == CLOSING and not self.must_wait(state, slot):
            if slot.interrupted and not self.rules.interrupted_is_over:
                state = self.waits_again(state, slot)
            outcome = "interrupted" if slot.interrupted else "killed"
            return self.finish(state, number, f"worker records its dead horse's run as {outcome}", "")
        return None

    def waits(self, state: State, slot: Slot) -> bool:
        return is_locked(state, slot.task) or (
            slot.occurrence == PLANNED and any(t.at == PLAN_PUSHED for t in state.tickers)
        )

    def quiet_ends(self, state: State) -> list[Step]:
        """A scheduled run of an elastic task finds nothing: its interval in force doubles."""
        return [
            self.finish(state, number, "run finds nothing", "", pace=self.doubled(state.rows[slot.task].pace))
            for number, slot in enumerate(state.slots)
            if self.bounds.elastic > 1
            and slot.at == RUNNING
            and slot.occurrence != PLANNED
            and not self.must_wait(state, slot)
        ]

    def doubled(self, pace: int) -> int:
        return min(2 * pace, self.bounds.elastic) if self.rules.pace_is_bounded else 2 * pace

    def must_wait(self, state: State, slot: Slot) -> bool:
        """The end writes when an elastic task is due, so it waits for the row."""
        return self.bounds.elastic > 1 and is_locked(state, slot.task)

    def pops(self, state: State) -> list[Step]:
        """Each job in the list may be taken by one of the free workers."""
        free = next((n for n, slot in enumerate(state.slots) if slot.at == FREE), None)
        steps: list[Step] = []
        if free is None:
            return steps
        for task, row in enumerate(state.rows):
            for job in sorted({job for job in row.jobs if job[1] == WAITS}):
                taken = put(state, task, row._replace(jobs=job_becomes(row.jobs, job, LIMBO)))
                slot = Slot(POPPED, task, job[0], timing=job[2])
                steps.append((f"worker takes {named(job[0])}", put_slot(taken, free, slot), ""))
        return steps

    def ask(self, state: State, number: int) -> Step:
        """The horse is forked, RQ marks the job as started, and the start is asked for."""
        slot = state.slots[number]
        row = state.rows[slot.task]
        job = next((job for job in row.jobs if job[0] == slot.occurrence and job[1] != WAITS), None)
        if job:
            state = put(state, slot.task, row._replace(jobs=job_becomes(row.jobs, job, TAKEN)))
        return "worker asks for the start", put_slot(state, number, slot._replace(at=ASKED)), ""

    def start(self, state: State, number: int) -> Step:
        """The start statement, under the row's lock, by the clock read after it."""
        slot = state.slots[number]
        now = 0 if self.rules.now_after_the_lock else -slot.waited
        row = state.rows[slot.task]
        if slot.occurrence == PLANNED:
            return self.start_planned(state, number, row)
        refusal = self.refusal(row, slot.occurrence, now)
        if refusal:
            return self.dropped(state, number, refusal)
        if not has_room(state, self.bounds, self.rules):
            return self.without_room(state, number, row)
        if not self.rules.guard_is_atomic or (self.bounds.limited and not self.rules.place_is_locked):
            return (
                f"guard reads: {named(slot.occurrence)} may start",
                put_slot(state, number, slot._replace(at=JUDGED)),
                "",
            )
        return self.started(state, number, row, now, f"start of {named(slot.occurrence)} granted")

    def refusal(self, row: Row, occurrence: int, now: int) -> str:
        rules, (every, tolerance, _) = self.rules, self.bounds.timings[row.timing]
        if not row.alive:
            return "gone"
        if self.is_recorded(row, occurrence):
            return "redelivered"
        if rules.start_asks_what_waits and occurrence not in row.waiting and occurrence != row.next_run:
            return "stale"
        if not row.enabled and rules.guard_checks_enabled:
            return "paused"
        if row.last_run is not None and row.last_run > now:
            return "clock"
        if row.waiting and occurrence < row.waiting[-1] and occurrence < now - self.bounds.expiry(every):
            return "expired"
        last = row.last_occurrence
        if rules.guard_checks_duplicates and last is not None and occurrence <= last:
            return "duplicate"
        if row.hold is not None and now < row.hold:
            return "still_running"
        too_early = row.last_run is not None and now < row.last_run + every - tolerance
        return "too_early" if rules.guard_checks_spacing and too_early else ""

    def is_recorded(self, row: Row, occurrence: int) -> bool:
        """Whether the start finds the record of an occurrence."""
        rules = self.rules
        if occurrence in row.begun:
            return rules.guard_checks_duplicates
        if occurrence in row.expired:
            return rules.start_asks_for_expired
        if occurrence in row.dropped:
            return rules.start_asks_for_dropped
        return occurrence in row.closed and rules.start_asks_for_lost

    def dropped(self, state: State, number: int, refusal: str) -> Step:
        """Recorded with its reason, unless it has a record; `clock` pulls back what lies ahead."""
        slot = state.slots[number]
        row = state.rows[slot.task]
        occurrence = slot.occurrence
        row = row._replace(waiting=without(row.waiting, occurrence), owed=without(row.owed, occurrence))
        if refusal not in ("gone", "redelivered", "stale"):
            row = row._replace(
                closed=holding(row.closed, occurrence), dropped=holding(row.dropped, occurrence), recorded=True
            )
        if refusal == "clock":
            row = self.pulled_back(row)
        return f"{named(occurrence)} dropped: {refusal}", self.freed(put(state, slot.task, row), number), ""

    def without_room(self, state: State, number: int, row: Row) -> Step:
        """The occurrence is the next run again, unless a newer one waits or is due."""
        occurrence = state.slots[number].occurrence
        if occurrence < row.next_run <= 0 or (row.waiting and occurrence < row.waiting[-1]):
            return self.dropped(state, number, "superseded")
        row = row._replace(waiting=without(row.waiting, occurrence))
        if self.rules.limited_goes_back:
            row = due_at(row, occurrence)
        state = put(state, state.slots[number].task, row)
        return f"{named(occurrence)} meets a full limit and goes back", self.freed(state, number), ""

    def pulled_back(self, row: Row) -> Row:
        """A drop as `clock` moves the times to the new clock."""
        last, hold = row.last_occurrence, row.hold
        return row._replace(
            last_run=0, last_occurrence=None if last is None else min(last, 0),
            hold=None if hold is None else min(hold, self.span_held(row)),
        )  # fmt: skip

    def span_held(self, row: Row) -> int:
        """B + g of the run that holds the row, as it was at its start."""
        spans = [o.span for o in row.opens if o.token and o.token == row.token]
        return spans[0] if spans else self.bounds.timings[row.timing].hold

    def started(self, state: State, number: int, row: Row, now: int, what: str) -> Step:
        slot = state.slots[number]
        timing = self.bounds.timings[row.timing if self.rules.guard_reads_the_row else slot.timing]
        broken = self.judged(row, slot, timing)
        token = number + 1
        held = orphaned(row)
        row = row._replace(
            hold=now + timing.hold, token=token, opens=(*held, Open(token, now + timing.hold, timing.hold)),
        )  # fmt: skip
        planned = slot.occurrence == PLANNED
        row = row._replace(plan=(NO_PLAN, 0)) if planned else self.noted(row, slot.occurrence, now)
        answered = slot._replace(at=ANSWERED, left=timing.hold, over=0, timing=0)
        if self.bounds.limited:
            state = state._replace(place=Place(token, now + timing.hold, timing.hold))
        return what, put_slot(put(state, slot.task, row), number, answered), broken

    def noted(self, row: Row, occurrence: int, now: int) -> Row:
        """What a scheduled start writes of itself. An occurrence from ahead of the clock hides none that follow."""
        from_ahead = occurrence > now + MARGIN and self.rules.future_counts_as_now
        if from_ahead:
            row = due_at(row, now + self.bounds.timings[row.timing].every)
        waiting = without(row.waiting, occurrence) if self.rules.start_clears_waiting else row.waiting
        return row._replace(
            last_run=now, last_occurrence=now if from_ahead else occurrence, since=0, waiting=waiting, recorded=True,
            begun=holding(row.begun, occurrence), owed=without(row.owed, occurrence),
        )  # fmt: skip

    def judged(self, row: Row, slot: Slot, timing: Timing) -> str:
        """S1, S4, S6, S7 and S9 at the moment of a start."""
        if not row.alive or not row.enabled:
            return "S6"
        if slot.occurrence == PLANNED:
            return ""
        if timing != self.bounds.timings[row.timing]:
            return "S7"
        if slot.occurrence in row.begun:
            return "S4"
        if slot.occurrence in row.closed:
            return "S9"
        every, tolerance, _ = self.bounds.timings[row.timing]
        return "S1" if row.since is not None and row.since < every - tolerance else ""

    def start_planned(self, state: State, number: int, row: Row) -> Step:
        """It obeys enabled and the hold, and touches neither last_run nor last_occurrence."""
        if not row.alive:
            refusal = "gone"
        elif row.plan[0] == NO_PLAN:
            refusal = "duplicate"
        elif not row.enabled:
            refusal = "paused"
        elif is_held(row) or not has_room(state, self.bounds, self.rules):
            state = put(state, state.slots[number].task, row._replace(plan=(DUE, 0)))
            met = "the run at work" if is_held(row) else "a full limit"
            return f"the planned run meets {met} and goes back", self.freed(state, number), ""
        else:
            return self.started(state, number, row, 0, "start of the planned run granted")
        slot = state.slots[number]
        state = put(state, slot.task, row._replace(plan=(NO_PLAN, 0)))
        return f"planned run dropped: {refusal}", self.freed(state, number), ""

    def begin(self, state: State, number: int) -> Step:
        """The answer is here: the function runs, or the run is given up because the answer took too long."""
        slot = state.slots[number]
        if slot.waited > self.bounds.slowest_answer * UNIT:
            return self.finish(state, number, "answer came too late: run given up", "")
        left = slot.left - slot.waited if self.rules.box_from_the_question else slot.left
        beyond = 0 if self.rules.hard_limit else 2 * UNIT
        late = 0 if self.rules.box_from_the_question else slot.waited
        running = slot._replace(at=RUNNING, left=left + beyond, over=beyond + late, waited=0)
        broken = ""
        for other, rival in enumerate(state.slots):
            if other != number and rival.at in ACTIVE and rival.task == slot.task and not (rival.jumped or slot.jumped):
                broken = "S2"
        return "run begins", put_slot(state, number, running), broken

    def finish(self, state: State, number: int, what: str, broken: str, pace: int | None = None) -> Step:
        """The end statement, fenced by the token, and RQ's end of the job. `pace` is None if the run found out nothing."""
        slot = state.slots[number]
        token, row = number + 1, state.rows[slot.task]
        if row.token == token or not row.alive or not self.rules.fence:
            if row.token not in (0, token):
                broken = "S8"
            row = self.paced(row, pace or row.pace)
            row = row._replace(opens=tuple(o for o in row.opens if o.token != token), token=0, hold=None)
            if state.place.token == token or not self.rules.place_freed_by_its_token:
                state = state._replace(place=Place())
        else:
            what += ": its hold is lost, nothing changes"
            row = row._replace(opens=relabelled(row.opens, token, 0))
            state = with_dead_holder(state, token)
        state = put(state, slot.task, row)
        if not self.rules.children_die and slot.at == RUNNING:
            job_ended = put(state, slot.task, without_job(row, slot.occurrence))
            return f"{what}, its child lives", put_slot(job_ended, number, slot._replace(at=CHILD, over=0)), broken
        return what, self.freed(state, number), broken

    def paced(self, row: Row, pace: int) -> Row:
        """The next run moves with the interval in force, but not to a time that has passed, or at which it may not start."""
        every, tolerance, _ = self.bounds.timings[row.timing]
        longer = max((pace - row.pace) * every, min(0, -row.next_run))
        if longer:
            spaced = row.next_run if row.last_run is None else row.last_run + every - tolerance
            row = due_at(row, max(row.next_run + longer, spaced))
        return row._replace(pace=pace)

    def waits_again(self, state: State, slot: Slot) -> State:
        """Gives an interrupted run a wrong end, as if it had not begun."""
        row = state.rows[slot.task]
        if slot.occurrence == PLANNED:
            return state
        return put(state, slot.task, row._replace(waiting=holding(row.waiting, slot.occurrence)))

    def freed(self, state: State, number: int) -> State:
        """The worker is free again; RQ deletes the job that ended."""
        slot = state.slots[number]
        row = without_job(state.rows[slot.task], slot.occurrence)
        return put_slot(put(state, slot.task, row), number, Slot())


def has_room(state: State, bounds: Bounds, rules: Rules) -> bool:
    """Whether the slot of the limit is free."""
    place = state.place
    return not bounds.limited or not place.token or (rules.place_freed_by_time and place.until <= 0)


def with_dead_holder(state: State, token: int) -> State:
    """If that run has the slot, only the time frees it."""
    return state._replace(place=state.place._replace(token=NOBODY)) if state.place.token == token else state


def named(occurrence: int) -> str:
    if occurrence == PLANNED:
        return "the planned job"
    return f"job {occurrence / UNIT:+g}"


def job_becomes(jobs: tuple[tuple[int, int, int], ...], job: tuple[int, int, int], state: int):  # type: ignore[no-untyped-def]
    rest = list(jobs)
    rest.remove(job)
    return tuple(sorted([*rest, (job[0], state, job[2])]))


def without_job(row: Row, occurrence: int) -> Row:
    """One started job less."""
    job = next((job for job in row.jobs if job[0] == occurrence and job[1] != WAITS), None)
    if job is None:
        return row
    rest = list(row.jobs)
    rest.remove(job)
    return row._replace(jobs=tuple(rest))


def relabelled(opens: tuple[Open, ...], old: int, new: int) -> tuple[Open, ...]:
    return tuple(sorted(Open(new if o.token == old else o.token, o.until, o.span) for o in opens))


def orphaned(row: Row) -> tuple[Open, ...]:
    """The records of a row whose hold goes to another run: a dead holder's record is nobody's from now on."""
    return tuple(sorted(Open(0 if o.token == NOBODY else o.token, o.until, o.span) for o in row.opens))
