"""One state of the whole system, as a tuple: the rows, the tickers, the workers, and the faults that are left.

Every time is relative to the database's clock, so that states which differ in the time of day alone are one state.
`canonical` merges what no rule can tell apart: the order of tickers and workers, and times that lie too far back.
"""

from typing import NamedTuple

from tests.model.rules import UNIT, Bounds, Faults

PLANNED = 10**6  # in the place of an occurrence: the job of a planned run
NOBODY = 9  # the token of a dead run which still holds its row

# tickers, in the order of a pass
IDLE, CLAMPED, ENDED, AWAKE, PLAN_PUSHED, LOCKED, PUSHED, SWEEPING, ASKED_QUEUE, SWEPT, BEATING = range(11)
# workers
FREE, POPPED, ASKED, ANSWERED, RUNNING, CLOSING, CHILD, JUDGED = range(8)
# jobs in Redis: in the list; taken from it, though its hash still says that it waits; started; dead; in limbo for long
WAITS, LIMBO, TAKEN, DEAD, ASTRAY = range(5)
# when a ticker looks at every row without a sign: not at all; in the pass after it saw a step; in its first pass
NOT, AGAIN, FIRST = range(3)
# planned runs
NO_PLAN, DUE, SENT = range(3)


class Open(NamedTuple):
    """A record whose run has not ended. `token` names a worker (1, 2 ...), NOBODY, or 0: gone, and holds nothing.

    Where all run on one host, `until` counts by its uptime, which no clock step moves; so does the row's `hold`.
    """

    token: int
    until: int
    span: int


class Row(NamedTuple):
    """A task, with its jobs in Redis and its records; `since`, `begun`, `closed` and `owed` are what the checks need.

    `begun` are occurrences that have started, `closed` those that were recorded without a start (`expired`, `dropped` by a
    start, or lost), `owed` those that Redis took and nothing was recorded of. `since` is the time since the last scheduled start, by the monotonic clock.
    `recorded`: a scheduled run or drop was.
    """

    alive: bool = True
    enabled: bool = True
    timing: int = 0
    next_run: int = 0
    last_run: int | None = None
    last_occurrence: int | None = None
    hold: int | None = None
    token: int = 0
    waiting: tuple[int, ...] = ()
    push_after: int | None = None
    created: int = 0
    jobs: tuple[tuple[int, int, int], ...] = ()  # (occurrence, state, the timing that travels with it)
    opens: tuple[Open, ...] = ()
    plan: tuple[int, int] = (NO_PLAN, 0)  # (state, due at)
    begun: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()
    expired: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    owed: tuple[int, ...] = ()
    since: int | None = None
    referred: bool = False
    recorded: bool = False
    pace: int = 1  # the interval in force, in lower bounds


class Ticker(NamedTuple):
    """`now` as it was read; `mask` the locked tasks, `done` those pushed.

    `drift`: by how much the clock was set since its last clamp; `look`: whether the next one looks without a sign.

    `settle` are the (task, occurrence, expired) that its sweep is about to record, `again` those that it is about to push.
    """

    at: int = IDLE
    now: int = 0
    look: int = NOT
    drift: int = 0
    mask: int = 0
    done: int = 0
    settle: tuple[tuple[int, int, bool], ...] = ()
    again: tuple[tuple[int, int], ...] = ()


class Slot(NamedTuple):
    """A worker with its horse. `left` is what is left of the hard limit, `waited` since the start was asked for.

    `over`: by how much the process outlives its hold. `jumped`: the clock was set forward since its start. `interrupted`:
    the process died while other runs were active in it.
    """

    at: int = FREE
    task: int = 0
    occurrence: int = 0
    left: int = 0
    waited: int = 0
    over: int = 0
    jumped: bool = False
    orphan: bool = False
    timing: int = 0
    interrupted: bool = False


class Place(NamedTuple):
    """The only slot of the limit that all tasks share. `token` names the worker whose run has it, NOBODY, or 0: no run ever had.

    It is free when its time has passed, whoever had it.
    """

    token: int = 0
    until: int = 0
    span: int = 0


class State(NamedTuple):
    rows: tuple[Row, ...]
    tickers: tuple[Ticker, ...]
    slots: tuple[Slot, ...]
    faults: Faults
    heard: int = 0  # the latest heartbeat of a ticker
    place: Place = Place()


def initial(bounds: Bounds) -> State:
    """New tasks, due at once, or such as have run, or wait, already; all tickers have made their first pass."""
    return State(
        (first_row(bounds),) * bounds.tasks, (Ticker(),) * bounds.tickers, (Slot(),) * bounds.workers, bounds.faults
    )


def first_row(bounds: Bounds) -> Row:
    every = bounds.timings[0].every
    row = Row(created=-bounds.age * UNIT, next_run=-bounds.age * UNIT)
    waiting = tuple(range(-bounds.backlog * every, 0, every))
    row = row._replace(waiting=waiting, owed=waiting, jobs=tuple((o, WAITS, 0) for o in waiting))
    if bounds.ran:
        last = -every * (bounds.backlog + 1)
        row = row._replace(last_run=last, last_occurrence=last, since=-last, begun=(last,), recorded=True)
    return row


def put(state: State, task: int, row: Row) -> State:
    return state._replace(rows=(*state.rows[:task], row, *state.rows[task + 1 :]))


def put_ticker(state: State, number: int, ticker: Ticker) -> State:
    return state._replace(tickers=(*state.tickers[:number], ticker, *state.tickers[number + 1 :]))


def put_slot(state: State, number: int, slot: Slot) -> State:
    return state._replace(slots=(*state.slots[:number], slot, *state.slots[number + 1 :]))


def is_locked(state: State, task: int, but: int = -1) -> bool:
    """Whether a ticker's transaction holds the task's row."""
    bit = 1 << task
    return any(t.mask & bit and n != but for n, t in enumerate(state.tickers))


def without(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return tuple(v for v in values if v != value) if value in values else values


def is_held(row: Row) -> bool:
    return row.hold is not None and row.hold > 0


def holding(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return values if value in values else tuple(sorted((*values, value)))


def due_at(row: Row, next_run: int) -> Row:
    """The row is due at another time. A push of the old one that was never committed is owed no record."""
    if next_run == row.next_run:
        return row
    owed = row.owed if row.next_run in row.waiting else without(row.owed, row.next_run)
    return row._replace(next_run=next_run, owed=owed)


def moved(state: State, by: int, *, holds: bool = True) -> State:
    """The database's clock moves by so much; what is stored stays where it is. Not `holds`: those go by an uptime."""
    held_by = by if holds else 0

    def times(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v - by for v in values) if values else values

    def pairs(values: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((n, o - by) for n, o in values) if values else values

    def settled(values: tuple[tuple[int, int, bool], ...]) -> tuple[tuple[int, int, bool], ...]:
        return tuple((n, o - by, expired) for n, o, expired in values) if values else values

    def time(value: int | None) -> int | None:
        return None if value is None else value - by

    def row_moved(row: Row) -> Row:
        return row._replace(
            next_run=row.next_run - by, last_run=time(row.last_run), last_occurrence=time(row.last_occurrence),
            hold=None if row.hold is None else row.hold - held_by, waiting=times(row.waiting), push_after=time(row.push_after), created=row.created - by,
            jobs=tuple((o if o == PLANNED else o - by, s, p) for o, s, p in row.jobs),
            opens=tuple(Open(o.token, o.until - held_by, o.span) for o in row.opens),
            plan=(row.plan[0], row.plan[1] - by) if row.plan[0] else row.plan,
            begun=times(row.begun), closed=times(row.closed), expired=times(row.expired), dropped=times(row.dropped),
            owed=times(row.owed),
        )  # fmt: skip

    def slot_moved(slot: Slot) -> Slot:
        if slot.at == FREE:
            return slot
        occurrence = slot.occurrence if slot.occurrence == PLANNED else slot.occurrence - by
        return slot._replace(occurrence=occurrence)

    def ticker_moved(ticker: Ticker) -> Ticker:
        if ticker.at in (IDLE, CLAMPED, ENDED):
            return ticker
        return ticker._replace(now=ticker.now - by, settle=settled(ticker.settle), again=pairs(ticker.again))

    return State(
        tuple(map(row_moved, state.rows)), tuple(map(ticker_moved, state.tickers)),
        tuple(map(slot_moved, state.slots)), state.faults, state.heard - by,
        state.place._replace(until=state.place.until - held_by) if state.place.token else state.place,
    )  # fmt: skip
