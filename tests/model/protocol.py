"""The whole protocol: everything that may happen next in a state, faults included.

The search follows `actions`. This module contains no rules: they are in ticks.py and runs.py, and the faults in faults.py.

The model is simpler than db/sql, sweep.py and store.py:

* It has interval tasks only: no pauses, owners, retries, pieces or cron, and one planned run at a time.
* A statement takes one instant, even the three of a clamp. A start waits for a row, but blocks no other.
* Either all tickers and workers run on one host (`Bounds.one_host`), and the uptime judges every hold and dead run; or no
  process knows the uptime of another's runs, and the database's clock judges alone. Mixtures of both are left out, as is a
  worker on its own host that knows the uptime of its own runs: both know more than the second case.
* A ticker that compares a late answer of the database with its uptime leaves the comparison to the next pass. Here no answer
  is late. No pass looks at every row only because it is the 120th.
* A dead job is pushed again within the expiry of its task; in sweep.py within ten minutes. There is one back-off, not a row.
* A group (`Bounds.grouped`) is one process with a slot for each worker; each of its runs has a job of its own.
* A batch contains every row. One row at a time may be refused.
* An elastic interval (`Bounds.elastic`) is the same number of lower bounds for each task. No run asks for its next due time.
* With a limit (`Bounds.limited`), all tasks have the same key. It has one slot for active runs, no rate and no holds. A tick reads
  the room and locks the rows in one step; it pushes these tasks when it pushes others, before it sweeps.
"""

from tests.model.canonical import canonical
from tests.model.faults import Befalls
from tests.model.rules import Bounds, Rules
from tests.model.runs import ACTIVE, Runs, Step
from tests.model.state import ANSWERED, BEATING, CLAMPED, ENDED, IDLE, PLANNED, TAKEN, WAITS, State, initial
from tests.model.ticks import Ticks

WAITING_JOBS = 2  # of a task


class Protocol:
    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:  # noqa: B008 frozen
        self.bounds, self.rules = bounds, rules
        self.ticks, self.runs, self.faults = Ticks(bounds, rules), Runs(bounds, rules), Befalls(bounds, rules)

    def initial(self) -> State:
        return canonical(initial(self.bounds), self.bounds)

    def actions(self, state: State) -> list[Step]:
        """Every step of every process, time, and every fault that is left; each with the state that it leads to."""
        steps = [
            *(self.ticked(state, n) for n in distinct(state.tickers)),
            *(step for n in distinct(state.slots) if (step := self.runs.step(state, n))),
            *self.runs.pops(state),
            *self.runs.quiet_ends(state),
            *self.faults.happen(state),
        ]
        return [self.settled(step) for step in steps]

    def settled(self, step: Step) -> Step:
        what, after, broken = step
        return what, canonical(after, self.bounds), broken or self.unsound(after)

    def ticked(self, state: State, number: int) -> Step:
        """Once the clock is not set any more, a tick's first steps are one, and so are its last: nothing lies between."""
        what, after, broken = self.ticks.step(state, number)
        while not (state.faults.back or state.faults.ahead) and after.tickers[number].at in (CLAMPED, ENDED, BEATING):
            _, after, worse = self.ticks.step(after, number)
            broken = broken or worse
        return what, after, broken

    def unsound(self, state: State) -> str:
        """The invariants of a state: S15, one active run of the key; S9, no occurrence is owed and nobody knows of it; S10,
        bounded queues."""
        if self.bounds.limited and sum(slot.at in ACTIVE and not slot.jumped for slot in state.slots) > 1:
            return "S15"
        for task, row in enumerate(state.rows):
            if len(row.jobs) > 1 and len({o for o, _, _ in row.jobs}) < len(row.jobs):
                return "S10"
            if len(row.waiting) > WAITING_JOBS:
                return "S10"
            if row.owed and row.alive:
                known = {o for o, s, _ in row.jobs if s in (WAITS, TAKEN)}
                known.update(row.waiting, (row.next_run,), (s.occurrence for s in state.slots if s.task == task))
                if not known.issuperset(row.owed):
                    return "S9"
        return ""

    # ------------------------------------------------------------------------------------------ calm

    def calm_unit(self, state: State) -> tuple[State, frozenset[int]]:
        """One unit in which nothing fails, and each ticker makes one pass; the tasks that had a scheduled start."""
        started: set[int] = set()
        for number in range(len(state.tickers)):
            while state.tickers[number].at != IDLE:
                state = self.ticks.step(state, number)[1]
        state = self.worked_off(state, started)
        for number in range(len(state.tickers)):
            state = self.one_pass(state, number)
            state = self.worked_off(state, started)
        return canonical(self.faults.time(state)[1], self.bounds), frozenset(started)

    def one_pass(self, state: State, number: int) -> State:
        state = self.ticks.step(state, number)[1]
        while state.tickers[number].at != IDLE:
            state = self.ticks.step(state, number)[1]
        return state

    def worked_off(self, state: State, started: set[int]) -> State:
        """Every job that waits is taken, and every function returns at once; RQ buries the jobs of dead workers."""
        state = self.faults.bury_all(state)
        while True:
            for number in range(len(state.slots)):
                while step := self.runs.step(state, number):
                    state = step[1]
                    slot = state.slots[number]
                    if slot.at == ANSWERED and slot.occurrence != PLANNED:
                        started.add(slot.task)
            pops = self.runs.pops(state)
            if not pops:
                return state
            state = pops[0][1]


def distinct(processes: tuple) -> range | list[int]:  # type: ignore[type-arg]
    """Processes in the same state are one; they are in order."""
    return [n for n, process in enumerate(processes) if not n or process != processes[n - 1]]
