"""S15: how many runs of a key are active at the same time, how many start, that none starts while the key is closed, and
that the slots come back.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from tests.faults.checks import excuses
from tests.faults.checks.findings import Findings
from tests.faults.checks.keys import Use, concurrency, holds, in_force, uses
from tests.faults.facts import FOREVER, Declaration, History, Slot

ROUNDING = 0.001  # seconds
HELD_UP = "PostgreSQL was held up between the decision of a start and its trigger"
OUTLIVED = "a run was active after its B + g, which S3 judges"


def obeys_limits(history: History) -> Findings:
    found = Findings(history)
    for key, all_uses in uses(history).items():
        _at_the_same_time(history, key, all_uses, found)
        for limit, part in _by_limit(history, key, all_uses):
            _in_a_window(history, key, limit, part, found)
        _while_held(history, key, all_uses, found)
    for use in {use.run.id: use for found_uses in uses(history).values() for use in found_uses}.values():
        _started_before_it_was_active(history, use, found)
    for slot in history.slots:
        if slot.kind == "run":
            _is_back(history, slot, found)
    return found


# ---------------------------------------------------------------------------------------------- at the same time


def _at_the_same_time(history: History, key: str, all_uses: Sequence[Use], found: Findings) -> None:
    """Checks, whenever a run begins, that each active run could have a place of its own, below the limit that it met at its
    start. So runs above a lowered limit may go on, and runs that started later may not take more than the limit."""
    active: list[tuple[Use, float]] = []
    for use in sorted((use for use in all_uses if use.witnessed), key=lambda use: use.first):
        most = min(concurrency(history, key, use.at)[1], slow_start(history, key, all_uses, use.at))
        active = [(other, places) for other, places in active if _last(other) > use.first]
        if most == FOREVER:
            continue
        active.append((use, most))
        if found.judge(_have_places(active)):
            if _have_places([(other, places) for other, places in active if _over(other) > use.first or other is use]):
                found.excuse(OUTLIVED)
                continue
            told = ", ".join(f"{other.run.id} ({places:g} allowed)" for other, places in active)
            found.blame(
                use.run.task,
                use.first,
                f"key {key}: {len(active)} runs were active at {history.seconds(use.first)} s, when run {use.run.id} began:"
                f" {told}",
            )


def _have_places(active: Sequence[tuple[Use, float]]) -> bool:
    """A limit of N has the places 1 to N. The runs with the lowest limits choose first."""
    return all(places >= number for number, places in enumerate(sorted(places for _, places in active), 1))


def _last(use: Use) -> float:
    return use.witnessed.last if use.witnessed else use.at


def _over(use: Use) -> float:
    return min(_last(use), use.at + use.run.hold + excuses.CLOCK_ERROR)


def slow_start(history: History, key: str, all_uses: Sequence[Use], at: float) -> float:
    """Returns how many runs of the key may be active because of an earlier hold: one, and twice as many with each success.
    Each run that returned may have been a success."""
    until = max((hold.until for hold in holds(history).get(key, ()) if hold.since <= at), default=None)
    if until is None:
        return FOREVER
    error = excuses.CLOCK_ERROR
    ends = [use.witnessed.returned for use in all_uses if use.witnessed and use.at >= until - error]
    return float(2 ** min(sum(end is not None and end <= at + error for end in ends), 20))


# ------------------------------------------------------------------------------------------------------ in a window


def _by_limit(history: History, key: str, all_uses: Sequence[Use]) -> Iterator[tuple[Declaration, Sequence[Use]]]:
    """Yields the starts between two changes of the limit. While it is unknown which limit applies, starts are not judged."""
    for limits, part in groupby(all_uses, key=lambda use: tuple(in_force(history, key, use.at))):
        if len(limits) == 1 and limits[0].per_second:
            yield limits[0], list(part)


def _in_a_window(history: History, key: str, limit: Declaration, part: Sequence[Use], found: Findings) -> None:
    """By the trigger, whose instants are known to CLOCK_ERROR, and exactly by the database's clock."""
    error = 2 * excuses.CLOCK_ERROR
    for use, window in _too_many(limit, part, lambda use: use.at, error, found):
        if not any(_too_many(limit, window, lambda use: use.recorded, error)) and _was_held_up(window):
            found.excuse(HELD_UP)
            continue
        _too_fast(history, key, limit, use, window, "the audit trigger saw", found)
    by_stretch = groupby(part, key=lambda use: history.clocks.stretch(use.at))
    for _, same in by_stretch:
        for use, window in _too_many(limit, list(same), lambda use: use.run.started_at or 0.0, ROUNDING, found):
            _too_fast(history, key, limit, use, window, "the records say", found)


def _too_many(
    limit: Declaration,
    part: Sequence[Use],
    instant: Callable[[Use], float],
    error: float,
    found: Findings | None = None,
) -> Iterator[tuple[Use, Sequence[Use]]]:
    """Yields each start that ends a window with too many starts, with the starts of that window. The window begins with the
    start that makes it worst."""
    assert limit.per_second
    ordered = sorted(part, key=instant)
    least, worst = FOREVER, 0
    for number, use in enumerate(ordered):
        tokens = number - limit.per_second * instant(use)
        if tokens < least:
            least, worst = tokens, number
        holds_true = tokens - least + 1 <= limit.burst + limit.per_second * error
        if found.judge(holds_true) if found else not holds_true:
            yield use, ordered[worst : number + 1]


def _was_held_up(window: Sequence[Use]) -> bool:
    return any(use.at - use.recorded > excuses.CLOCK_ERROR for use in window)


def _too_fast(
    history: History, key: str, limit: Declaration, use: Use, window: Sequence[Use], who: str, found: Findings
) -> None:
    found.blame(
        use.run.task,
        use.at,
        f"key {key}: {who} {len(window)} starts from {history.seconds(window[0].at)} s to {history.seconds(use.at)} s; the limit"
        f" is {limit.per_second:g} per second, with a burst of {limit.burst}",
    )


# ------------------------------------------------------------------------------------------------------- while held


def _while_held(history: History, key: str, all_uses: Sequence[Use], found: Findings) -> None:
    for hold in holds(history).get(key, ()):
        until = hold.until - excuses.CLOCK_ERROR
        inside = [use for use in all_uses if hold.since < use.at < until]
        found.judge(not inside)
        for use in inside:
            if use.recorded <= hold.since and _was_held_up([use]):
                found.excuse(HELD_UP)
                continue
            found.blame(
                use.run.task,
                use.at,
                f"key {key}: run {use.run.id} started at {history.seconds(use.at)} s, and run {hold.by} had held it off until"
                f" {history.seconds(hold.until)} s",
            )


def _started_before_it_was_active(history: History, use: Use, found: Findings) -> None:
    """The functions themselves confirm the instants of the starts."""
    if use.witnessed and found.judge(use.recorded <= use.witnessed.first + excuses.CLOCK_ERROR):
        found.blame(
            use.run.task,
            use.first,
            f"task {use.run.task}: run {use.run.id} was active at {history.seconds(use.first)} s, before its start at"
            f" {history.seconds(use.recorded)} s",
        )


# --------------------------------------------------------------------------------------------------------- at the end


def _is_back(history: History, slot: Slot, found: Findings) -> None:
    """Checks that the place of a run that had ended two ticks before is free."""
    end = history.last or history.end
    is_taken = slot.token is not None and (slot.until is None or slot.until > history.clocks.wall(end))
    run = history.by_token.get(slot.token or "")
    is_over = run is None or (run.state != "running" and _ended(history, slot) <= end - 2 * history.setup.tick)
    if found.judge(not (is_taken and is_over)):
        until = "" if slot.until is None else f" until {history.seconds(history.clocks.at(slot.until, near=end))} s"
        who = f"run {run.id}, which is {run.state}" if run else "no run that is known"
        found.blame(
            run.task if run else None, end, f"key {slot.key}: place {slot.n} is taken{until} by {who} at the end"
        )


def _ended(history: History, slot: Slot) -> float:
    run = history.by_token[slot.token or ""]
    return min((moment.at for moment in run.frees), default=FOREVER)
