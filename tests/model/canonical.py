"""States that no rule can tell apart become one state."""

from tests.model.rules import UNIT, Bounds
from tests.model.state import DUE, FREE, PLANNED, TAKEN, WAITS, Open, Row, State

LONG_AGO = -(10**6)  # an occurrence that is older than all that may yet start


def canonical(state: State, bounds: Bounds) -> State:
    """The one state that stands for all that behave as this one does."""
    if not all(a <= b for a, b in zip(state.slots, state.slots[1:], strict=False)):
        state = with_sorted_slots(state)
    tickers = tuple(sorted(state.tickers)) if len(state.tickers) > 1 else state.tickers
    back = state.faults.back * bounds.back_by
    heard = max(state.heard, -max(back, bounds.beat * UNIT))
    rows = tuple([row_of(row, state, number, bounds, back) for number, row in enumerate(state.rows)])
    slots = state.slots
    horizon = -bounds.memory
    if any(oldest(row) < horizon for row in rows):
        rows, slots, tickers = compressed(rows, slots, tickers, horizon)
    place = state.place._replace(until=max(state.place.until, -back)) if state.place.token else state.place
    return State(rows, tickers, slots, state.faults, heard, place)


def with_sorted_slots(state: State) -> State:
    """Workers in one order; the tokens follow them."""
    order = sorted(range(len(state.slots)), key=state.slots.__getitem__)
    new = {old + 1: place + 1 for place, old in enumerate(order)}
    rows = tuple(
        row._replace(
            token=new.get(row.token, row.token),
            opens=tuple(sorted(Open(new.get(o.token, o.token), o.until, o.span) for o in row.opens)),
        )
        if row.token or row.opens
        else row
        for row in state.rows
    )
    place = state.place._replace(token=new.get(state.place.token, state.place.token))
    return state._replace(rows=rows, slots=tuple(state.slots[n] for n in order), place=place)


def row_of(row: Row, state: State, number: int, bounds: Bounds, back: int) -> Row:
    """Times that have passed for good are capped where the rules stop telling them apart."""
    if not row.alive:
        return buried(row, back)
    named = candidates(row, state, number)
    last, since = row.last_run, row.since
    hold = row.hold
    latest = row.last_occurrence
    if latest is not None and latest < -back - 1 and latest < min(named):
        latest = LONG_AGO
    begun = [o for o in row.begun if o > -back or o in named]  # a clock that is set back may name it again
    return row._replace(
        jobs=jobs_of(row, state, number),
        last_occurrence=latest,
        last_run=None if last is None else max(last, -bounds.longest - back),
        hold=None if hold is None or (row.token == 0 and hold <= -back) else max(hold, -back),
        push_after=None if row.push_after is None or row.push_after <= -back - bounds.staleness * 4
        else row.push_after,
        created=-back if row.recorded else max(row.created, -back),
        plan=(row.plan[0], max(row.plan[1], -back)) if row.plan[0] == DUE else (row.plan[0], 0),
        begun=tuple(begun),
        closed=tuple([o for o in row.closed if o in named]) if row.closed else row.closed,
        expired=tuple([o for o in row.expired if o in named]) if row.expired else row.expired,
        dropped=tuple([o for o in row.dropped if o in named]) if row.dropped else row.dropped,
        since=None if since is None else min(since, bounds.longest),
        opens=opens_of(row, back + bounds.staleness * 4 + 8),
    )  # fmt: skip


def buried(row: Row, back: int) -> Row:
    """Of a deleted task only its jobs and its records are left."""
    return Row(
        alive=False,
        jobs=tuple([job for job in row.jobs if job[1] in (WAITS, TAKEN)]),
        opens=opens_of(row, back + 16),
        plan=(row.plan[0], max(row.plan[1], -back) if row.plan[0] == DUE else 0),
    )


def jobs_of(row: Row, state: State, number: int) -> tuple[tuple[int, int, int], ...]:
    """A job that no worker will run, and no ticker will ask about, is as good as gone."""
    asked = {row.next_run, *row.waiting, PLANNED} if row.plan[0] else {row.next_run, *row.waiting}
    if all(job[1] in (WAITS, TAKEN) or job[0] in asked for job in row.jobs):
        return row.jobs
    asked.update(s.occurrence for s in state.slots if s.at and s.task == number)
    return tuple([job for job in row.jobs if job[1] in (WAITS, TAKEN) or job[0] in asked])


def opens_of(row: Row, age: int) -> tuple[Open, ...]:
    if not row.opens:
        return row.opens
    return tuple(sorted(Open(o.token, max(o.until, -age), o.span) for o in row.opens))


def candidates(row: Row, state: State, number: int) -> set[int]:
    """The occurrences that may yet be pushed, started or settled."""
    named = {o for o, _, _ in row.jobs}
    named.update(row.waiting)
    named.add(row.next_run)
    named.update([s.occurrence for s in state.slots if s.at and s.task == number])
    for ticker in state.tickers:
        if ticker.settle or ticker.again:
            named.update([pair[1] for pair in (*ticker.settle, *ticker.again) if pair[0] == number])
    return named


def oldest(row: Row) -> int:
    first = row.next_run
    for values in (row.waiting, row.begun, row.closed, row.owed):
        if values and values[0] < first:
            first = values[0]
    if row.last_occurrence is not None and LONG_AGO < row.last_occurrence < first:
        first = row.last_occurrence
    return min(first, *(o for o, _, _ in row.jobs)) if row.jobs else first


def compressed(rows, slots, tickers, horizon):  # type: ignore[no-untyped-def]
    """Occurrences behind the horizon keep their order, and lose their distances."""
    old = set()
    for row in rows:
        old.update((row.next_run, *row.waiting, *row.begun, *row.closed, *row.owed, *(o for o, _, _ in row.jobs)))
        if row.last_occurrence not in (None, LONG_AGO):
            old.add(row.last_occurrence)
    old.update(s.occurrence for s in slots if s.at != FREE)
    for ticker in tickers:
        old.update(pair[1] for pair in (*ticker.settle, *ticker.again))
    ordered = sorted((o for o in old if o < horizon), reverse=True)
    place = {o: horizon - 1 - rank for rank, o in enumerate(ordered)}

    def of(value):  # type: ignore[no-untyped-def]
        return place.get(value, value)

    return (
        tuple(row_compressed(row, of) for row in rows),
        tuple(s._replace(occurrence=of(s.occurrence)) if s.at != FREE else s for s in slots),
        tuple(
            t._replace(
                settle=tuple((n, of(o), expired) for n, o, expired in t.settle),
                again=tuple((n, of(o)) for n, o in t.again),
            )
            if t.settle or t.again
            else t
            for t in tickers
        ),
    )


def row_compressed(row, of):  # type: ignore[no-untyped-def]
    return row._replace(
        next_run=of(row.next_run), last_occurrence=of(row.last_occurrence), waiting=tuple(map(of, row.waiting)),
        begun=tuple(map(of, row.begun)), closed=tuple(map(of, row.closed)), expired=tuple(map(of, row.expired)), dropped=tuple(map(of, row.dropped)),
        owed=tuple(map(of, row.owed)),
        jobs=tuple((of(o), s, p) for o, s, p in row.jobs),
    )  # fmt: skip
