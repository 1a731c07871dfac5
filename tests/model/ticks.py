"""The ticker's side: one pass, cut at every point where it may die. As in tick.py, sweep.py and db/sql."""

from tests.model.clamp import Times
from tests.model.rules import MARGIN, UNIT, Bounds, Rules
from tests.model.runs import Step, has_room, named
from tests.model.state import (
    AGAIN,
    ASKED_QUEUE,
    ASTRAY,
    AWAKE,
    BEATING,
    CLAMPED,
    DEAD,
    DUE,
    ENDED,
    FIRST,
    IDLE,
    LIMBO,
    LOCKED,
    NO_PLAN,
    NOBODY,
    NOT,
    PLAN_PUSHED,
    PLANNED,
    PUSHED,
    SENT,
    SWEEPING,
    SWEPT,
    TAKEN,
    WAITS,
    Open,
    Row,
    State,
    Ticker,
    holding,
    is_held,
    is_locked,
    put,
    put_ticker,
    without,
)  # fmt: skip

MISSING = -1
SEEN_AS = {LIMBO: WAITS, ASTRAY: MISSING}


class Ticks:
    def __init__(self, bounds: Bounds, rules: Rules) -> None:
        self.bounds, self.rules = bounds, rules
        self.times = Times(bounds, rules)
        self.steps = {
            IDLE: self.clamp, CLAMPED: self.end_overdue, ENDED: self.read_now, AWAKE: self.claim,
            PLAN_PUSHED: self.commit_plan, LOCKED: self.push, PUSHED: self.commit, SWEEPING: self.sweep,
            ASKED_QUEUE: self.push_again, SWEPT: self.settle, BEATING: self.heartbeat,
        }  # fmt: skip

    def step(self, state: State, number: int) -> Step:
        """What this ticker does next when nothing fails."""
        return self.steps[state.tickers[number].at](state, number, state.tickers[number])

    # ------------------------------------------------------------------------------------------ clamp, and now

    def clamp(self, state: State, number: int, ticker: Ticker) -> Step:
        """By its own reading of the clock, which it compares with its uptime; rows that are locked are passed over."""
        stepped = ticker.look != FIRST and abs(ticker.drift) > MARGIN and self.rules.tickers_see_steps
        looks = stepped or ticker.look != NOT or state.heard > MARGIN
        for task, row in enumerate(state.rows):
            if self.rules.clamp and looks and row.alive and not is_locked(state, task, number):
                row = self.times.clamped(row, stepped)
            state = put(state, task, self.times.with_mended_runs(row))
        if self.rules.clamp and looks and state.place.until > state.place.span:
            state = state._replace(place=state.place._replace(until=min(state.place.until, state.place.span)))
        look = AGAIN if stepped else NOT
        at = CLAMPED if any(row.opens for row in state.rows) else ENDED
        return "tick begins", put_ticker(state, number, Ticker(at, look=look)), ""

    def end_overdue(self, state: State, number: int, ticker: Ticker) -> Step:
        """By a reading of the clock of its own."""
        if self.rules.overdue_by_its_own_clock:
            state = self.without_overdue(state, number, 0)
        return "tick ends what is overdue", put_ticker(state, number, ticker._replace(at=ENDED)), ""

    def without_overdue(self, state: State, number: int, now: int) -> State:
        """Runs past B + g that nobody ended are lost, and their tasks free."""
        for task, row in enumerate(state.rows):
            if not is_locked(state, task, number):
                for record in [o for o in row.opens if self.is_over(o, now)]:
                    row = lost(row, record)
                state = put(state, task, row)
        return state

    def is_over(self, record: Open, now: int) -> bool:
        if record.until < now - MARGIN:
            return True
        return not self.rules.sweep_keeps_the_hold and record.token == NOBODY

    def read_now(self, state: State, number: int, ticker: Ticker) -> Step:
        return "tick reads now", put_ticker(state, number, ticker._replace(at=AWAKE, now=0)), ""

    # ------------------------------------------------------------------------------------------ push, then commit

    def claim(self, state: State, number: int, ticker: Ticker) -> Step:
        """First a planned run that is due and meets no run at work, then the due tasks: locked, one after another. Without room, they wait."""
        room = self.room(state)
        for task, row in enumerate(state.rows if room > 0 else ()):
            is_due = row.plan[0] == DUE and row.plan[1] <= ticker.now and not (row.alive and is_held(row))
            if is_due and not any(t.at == PLAN_PUSHED for t in state.tickers):
                return self.push_plan(state, number, ticker, task, row)
        due = [task for task, row in enumerate(state.rows) if self.is_due(state, number, task, row)]
        oldest_first = sorted(due, key=lambda task: state.rows[task].next_run)
        mask = sum(1 << task for task in oldest_first[: max(room, 0)])
        if not mask:
            return self.sweep(state, number, ticker)
        return "tick locks the due rows", put_ticker(state, number, ticker._replace(at=LOCKED, mask=mask)), ""

    def room(self, state: State) -> int:
        """How many may be pushed. With a limit: one, if its slot is free, and no job waits that will take it."""
        if not self.bounds.limited:
            return len(state.rows)
        waits = sum(bool(row.waiting) + (row.plan[0] == SENT) for row in state.rows if row.alive)
        return has_room(state, self.bounds, self.rules) - waits

    def is_due(self, state: State, number: int, task: int, row: Row) -> bool:
        now = state.tickers[number].now
        return (
            row.alive
            and row.enabled
            and row.next_run <= now + self.rules.look_ahead * UNIT
            and (row.push_after is None or row.push_after <= now)
            and not is_locked(state, task, number)
            and not (row.referred and not self.rules.claim_ignores_references)
        )

    def push_plan(self, state: State, number: int, ticker: Ticker, task: int, row: Row) -> Step:
        if not row.alive:  # drop_orphaned_plans
            return "planned run of a deleted task dropped", put(state, task, row._replace(plan=(NO_PLAN, 0))), ""
        state = put(state, task, stored(row, PLANNED, self.rules))
        return "tick pushes the planned run", put_ticker(state, number, ticker._replace(at=PLAN_PUSHED, done=task)), ""

    def commit_plan(self, state: State, number: int, ticker: Ticker) -> Step:
        row = state.rows[ticker.done]
        if row.plan[0] == DUE:
            state = put(state, ticker.done, row._replace(plan=(SENT, 0)))
        return "tick commits: planned run pushed", put_ticker(state, number, ticker._replace(at=AWAKE, done=0)), ""

    def push(self, state: State, number: int, ticker: Ticker) -> Step:
        """One job after another, so that a pass may die with k of n pushed."""
        if not self.rules.push_before_commit and not ticker.done:
            return self.commit(state, number, ticker)
        task = next(n for n in range(len(state.rows)) if (ticker.mask & ~ticker.done) >> n & 1)
        row = state.rows[task]
        pushes = "passes over" if self.has_enough_jobs(row) else "pushes"
        if pushes == "pushes":
            state = put(state, task, stored(row, row.next_run, self.rules))
        done = ticker.done | 1 << task
        at = PUSHED if done == ticker.mask else LOCKED
        return f"tick {pushes} {named(row.next_run)}", put_ticker(state, number, ticker._replace(at=at, done=done)), ""

    def has_enough_jobs(self, row: Row) -> bool:
        """Returns whether so many jobs of the task wait that its next occurrence gets none."""
        return 0 < self.rules.waiting_jobs <= len(set(row.waiting) - {row.next_run})

    def commit(self, state: State, number: int, ticker: Ticker) -> Step:
        """`advance`: the occurrence waits, unless it has started meanwhile, and next_run = now + I."""
        broken = ""
        for task, row in enumerate(state.rows):
            if ticker.mask >> task & 1:
                state = put(state, task, self.advanced(row, ticker.now))
                if not ticker.done >> task & 1:
                    broken = "S5"
        after = ticker._replace(at=SWEEPING, mask=0, done=0)
        return "tick advances and commits", put_ticker(state, number, after), broken

    def advanced(self, row: Row, now: int) -> Row:
        started = row.last_occurrence is not None and row.next_run <= row.last_occurrence and row.next_run in row.begun
        waiting = row.waiting if started or self.has_enough_jobs(row) else holding(row.waiting, row.next_run)
        every = self.bounds.in_force(row.timing, row.pace)
        return row._replace(waiting=waiting, next_run=now + every, push_after=None)

    # ------------------------------------------------------------------------------------------ sweep

    def sweep(self, state: State, number: int, ticker: Ticker) -> Step:
        if not self.rules.overdue_by_its_own_clock:
            state = self.without_overdue(state, number, ticker.now)
        if any(row.waiting or row.plan[0] == SENT for row in state.rows):
            return self.claim_waiting(state, number, ticker)
        return "tick sweeps", put_ticker(state, number, ticker._replace(at=BEATING, mask=0)), ""

    def claim_waiting(self, state: State, number: int, ticker: Ticker) -> Step:
        """Locks the rows with waiting occurrences; asks Redis, and forgets what has expired or died."""
        mask, settle, again = 0, [], []
        for task, row in enumerate(state.rows):
            if not row.alive or not row.waiting or is_locked(state, task, number):
                continue
            jobs, verdicts = row.jobs, [(o, self.verdict(row, o, ticker.now)) for o in row.waiting]
            settle += [(task, o, fate == "expired") for o, fate in verdicts if fate in ("expired", "lost")]
            forget = [o for o, fate in verdicts if fate in ("expired", "again")]
            again += [(task, o) for o, fate in verdicts if fate == "again"]
            state = put(state, task, row._replace(jobs=tuple(job for job in jobs if job[0] not in forget)))
            mask |= 1 << task
        state, resent = self.plans_again(state)
        if not settle and not again:
            return "tick sweeps" + resent, put_ticker(state, number, ticker._replace(at=BEATING, mask=0)), ""
        held = mask if self.rules.sweep_locks else 0
        after = ticker._replace(at=ASKED_QUEUE if again else SWEPT, mask=held)
        after = after._replace(settle=tuple(settle), again=tuple(again))
        return "tick sweeps, asks Redis for the waiting jobs" + resent, put_ticker(state, number, after), ""

    def verdict(self, row: Row, occurrence: int, now: int) -> str:
        found = state_of(row, occurrence)
        expiry = self.bounds.expiry(self.bounds.timings[row.timing].every)
        if found != TAKEN and occurrence < row.waiting[-1] and occurrence < now - expiry:
            return "expired"
        newest = occurrence == row.waiting[-1]
        if found in (MISSING, DEAD) and self.rules.sweep_pushes_again:
            is_lost = found == DEAD and now >= occurrence + expiry
            return "expired" if not newest else "lost" if is_lost else "again"
        return "lost" if found == DEAD else ""

    def push_again(self, state: State, number: int, ticker: Ticker) -> Step:
        """Waiting occurrences that Redis does not hold, under the lock that was taken before it was asked."""
        broken = ""
        for task, occurrence in ticker.again:
            row = state.rows[task]
            if row.alive and state_of(row, occurrence) == MISSING:
                broken = broken or ("S9" if occurrence in row.begun else "")
                state = put(state, task, stored(row, occurrence, self.rules))
        return (
            "tick pushes again what Redis lost",
            put_ticker(state, number, ticker._replace(at=SWEPT, again=())),
            broken,
        )

    def plans_again(self, state: State) -> tuple[State, str]:
        """The same for a planned run that was pushed and has not started."""
        for task, row in enumerate(state.rows):
            found = state_of(row, PLANNED)
            if row.plan[0] != SENT or any(t.at == PLAN_PUSHED for t in state.tickers):
                continue
            if found in (MISSING, DEAD) and row.alive:  # no job dies for ten minutes here: then the run would be lost
                row = row._replace(jobs=tuple(job for job in row.jobs if job[0] != PLANNED))
                return put(state, task, stored(row, PLANNED, self.rules)), ", pushes the planned run again"
        return state, ""

    def settle(self, state: State, number: int, ticker: Ticker) -> Step:
        """Records occurrences that will not start any more; one that was dropped has its record."""
        broken = ""
        for task, occurrence, expired in ticker.settle:
            row = state.rows[task]
            if not row.alive:
                continue
            if occurrence in row.begun:
                broken = "S9"
            if expired and self.rules.expired_counts_as_started:
                last = row.last_occurrence
                row = row._replace(last_occurrence=occurrence if last is None else max(last, occurrence))
            row = row._replace(
                waiting=without(row.waiting, occurrence), owed=without(row.owed, occurrence),
                closed=holding(row.closed, occurrence), recorded=True,
                expired=holding(row.expired, occurrence) if expired else row.expired,
            )  # fmt: skip
            state = put(state, task, row)
        what = "tick records expired and lost ones, commits" if ticker.settle else "tick commits its sweep"
        return what, put_ticker(state, number, ticker._replace(at=BEATING, mask=0, settle=())), broken

    def heartbeat(self, state: State, number: int, ticker: Ticker) -> Step:
        """Its own row, with the `now` of this pass; others that lie ahead of the clock go."""
        state = state._replace(heard=ticker.now if state.heard > MARGIN else max(state.heard, ticker.now))
        return (
            "tick ends with its heartbeat",
            put_ticker(state, number, Ticker(look=ticker.look, drift=ticker.drift)),
            "",
        )


def stored(row: Row, occurrence: int, rules: Rules) -> Row:
    """Redis takes the job, unless it holds one under that id."""
    if rules.id_per_occurrence and any(o == occurrence for o, _, _ in row.jobs):
        return row
    travels = 0 if rules.guard_reads_the_row else row.timing
    row = row._replace(jobs=tuple(sorted([*row.jobs, (occurrence, WAITS, travels)])))
    if occurrence == PLANNED or occurrence in row.begun or occurrence in row.closed:
        return row
    return row._replace(owed=holding(row.owed, occurrence))


def state_of(row: Row, occurrence: int) -> int:
    """What Redis knows of the job: one that was taken from the list still looks as if it waited, for a while."""
    states = [s for o, s, _ in row.jobs if o == occurrence]
    return SEEN_AS.get(states[0], states[0]) if states else MISSING


def lost(row: Row, record: Open) -> Row:
    opens = list(row.opens)
    opens.remove(record)
    if record.token and row.token == record.token:
        row = row._replace(token=0, hold=None)
    return row._replace(opens=tuple(opens))
