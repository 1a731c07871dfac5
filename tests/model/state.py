"""One state of the whole system, as a tuple: the rows, the tickers, the workers, and the faults that are left.

Every time is relative to the database's clock, so that states which differ in the time of day alone are one state.
`canonical` merges what no rule can tell apart: the order of tickers and workers, and times that lie too far back.
"""

from typing import NamedTuple

from tests.model.rules import UNIT, Bounds, Faults

PLANNED = 10**6  # in the place of an occurrence: the job of a planned run
NOBODY = 9  # the token of a dead run which still holds its row

# tickers, in the order of a pass
IDLE, CLAMPED, AWAKE, PLAN_PUSHED, LOCKED, PUSHED, SWEEPING, ASKED_QUEUE, SWEPT, BEATING = range(10)
# workers
FREE, POPPED, ASKED, ANSWERED, RUNNING, CLOSING, CHILD, JUDGED = range(8)
# jobs in Redis: in the list; taken from it, though its hash still says that it waits; started; dead
WAITS, LIMBO, TAKEN, DEAD = range(4)
# planned runs
NO_PLAN, DUE, SENT = range(3)


class Open(NamedTuple):
    """A record whose run has not ended. `token` names a worker (1, 2 ...), NOBODY, or 0: gone, and holds nothing."""

    token: int
    until: int
    span: int


class Row(NamedTuple):
    """A task, with its jobs in Redis and its records; `since`, `begun`, `closed` and `owed` are what the checks need.

    `begun` are occurrences that have started, `closed` those that were recorded without a start, `owed` those that
    Redis took and nothing was recorded of. `since` is the time since the last scheduled start, by the monotonic clock.
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
    owed: tuple[int, ...] = ()
    since: int | None = None
    referred: bool = False


class Ticker(NamedTuple):
    """`now` as it was read; `fresh`: its first pass looks at every row; `mask` the locked tasks, `done` those pushed.

    `settle` are the (task, occurrence) that its sweep is about to record, `again` those that it is about to push.
    """

    at: int = IDLE
    now: int = 0
    fresh: bool = False
    mask: int = 0
    done: int = 0
    settle: tuple[tuple[int, int], ...] = ()
    again: tuple[tuple[int, int], ...] = ()


class Slot(NamedTuple):
    """A worker with its horse. `left` is what is left of the hard limit, `waited` since the start was asked for.

    `over`: by how much the process outlives its hold. `jumped`: the clock was set forward since its start.
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


class State(NamedTuple):
    rows: tuple[Row, ...]
    tickers: tuple[Ticker, ...]
    slots: tuple[Slot, ...]
    faults: Faults
    heard: int = 0  # the latest heartbeat of a ticker


def initial(bounds: Bounds) -> State:
    """New tasks, due at once; all tickers have made their first pass over every row."""
    return State(
        (Row(created=-bounds.age * UNIT, next_run=-bounds.age * UNIT),) * bounds.tasks, (Ticker(),) * bounds.tickers, (Slot(),) * bounds.workers, bounds.faults
    )  # fmt: skip


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


def holding(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return values if value in values else tuple(sorted((*values, value)))


def due_at(row: Row, next_run: int) -> Row:
    """The row is due at another time. A push of the old one that was never committed is owed no record."""
    if next_run == row.next_run:
        return row
    owed = row.owed if row.next_run in row.waiting else without(row.owed, row.next_run)
    return row._replace(next_run=next_run, owed=owed)


def moved(state: State, by: int) -> State:
    """The database's clock moves by so much; what is stored stays where it is."""

    def times(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v - by for v in values) if values else values

    def pairs(values: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple((n, o - by) for n, o in values) if values else values

    def time(value: int | None) -> int | None:
        return None if value is None else value - by

    def row_moved(row: Row) -> Row:
        return row._replace(
            next_run=row.next_run - by, last_run=time(row.last_run), last_occurrence=time(row.last_occurrence),
            hold=time(row.hold), waiting=times(row.waiting), push_after=time(row.push_after), created=row.created - by,
            jobs=tuple((o if o == PLANNED else o - by, s, p) for o, s, p in row.jobs),
            opens=tuple(Open(o.token, o.until - by, o.span) for o in row.opens),
            plan=(row.plan[0], row.plan[1] - by) if row.plan[0] else row.plan,
            begun=times(row.begun), closed=times(row.closed), owed=times(row.owed),
        )  # fmt: skip

    def slot_moved(slot: Slot) -> Slot:
        if slot.at == FREE:
            return slot
        occurrence = slot.occurrence if slot.occurrence == PLANNED else slot.occurrence - by
        return slot._replace(occurrence=occurrence)

    def ticker_moved(ticker: Ticker) -> Ticker:
        if ticker.at in (IDLE, CLAMPED):
            return ticker
        return ticker._replace(now=ticker.now - by, settle=pairs(ticker.settle), again=pairs(ticker.again))

    return State(
        tuple(map(row_moved, state.rows)), tuple(map(ticker_moved, state.tickers)),
        tuple(map(slot_moved, state.slots)), state.faults, state.heard - by,
    )  # fmt: skip
