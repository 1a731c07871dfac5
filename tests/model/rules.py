"""What is checked: the rules of the protocol, each of which a wrong variant turns around, and the bounds of a search.

Times are whole quarters of a unit. A clock step is no whole number of units, so that an occurrence from before a step
never falls on one from after it by accident; in reality they are microseconds.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

UNIT = 4
MARGIN = 1  # what the statements write as one second: under a unit


class Timing(NamedTuple):
    """What a row says: interval, tolerance, and the hold B + g; T + B + g <= I."""

    every: int
    tolerance: int
    hold: int


def timing(every: int, tolerance: int, hold: int) -> Timing:
    """In units."""
    return Timing(every * UNIT, tolerance * UNIT, hold * UNIT)


@dataclass(frozen=True)
class Rules:
    """The product by default. Each field names one rule as it is; a variant sets it to False, or to its wrong value."""

    push_before_commit: bool = True
    advance_only_what_was_pushed: bool = True
    id_per_occurrence: bool = True
    claim_ignores_references: bool = True
    guard_is_atomic: bool = True
    now_after_the_lock: bool = True
    guard_checks_spacing: bool = True
    guard_checks_enabled: bool = True
    guard_checks_duplicates: bool = True
    guard_reads_the_row: bool = True
    start_clears_waiting: bool = True
    clamp: bool = True
    fence: bool = True
    sweep_locks: bool = True
    sweep_pushes_again: bool = True
    waiting_jobs: int = 2  # so many of a task wait; a tick pushes no more, and moves on; 0: any number
    sweep_keeps_the_hold: bool = True
    box_from_the_question: bool = True
    hard_limit: bool = True
    children_die: bool = True
    steps_excuse: bool = True  # a clock that is set forward ends a hold early
    look_ahead: int = 0  # units

    start_asks_for_expired: bool = True  # the records of occurrences that the sweep gave up
    start_asks_for_lost: bool = True
    start_asks_for_dropped: bool = True
    start_asks_what_waits: bool = True  # an occurrence that the row neither waits for nor has as its next run is stale
    expired_counts_as_started: bool = False  # by last_occurrence
    future_counts_as_now: bool = True  # a start of an occurrence from ahead of the clock notes now as the last one
    tickers_see_steps: bool = True  # by their uptime; False: a heartbeat ahead of the clock is the only sign
    clamp_asks_the_records: bool = True  # a task with a record of a scheduled run or drop has no `first` to keep
    clamp_mends_delays: bool = True
    clamp_mends_runs: bool = True
    clamp_mends_plans: bool = True
    overdue_by_its_own_clock: bool = True
    interrupted_is_over: bool = True  # False: what a neighbour's death interrupted waits for another start
    uptime_counts: bool = True  # a hold taken on the same host is judged by the uptime
    place_is_locked: bool = True  # False: a start looks whether the slot is free, and then takes it
    place_freed_by_its_token: bool = True  # False: an end frees the slot, whoever has it
    place_freed_by_time: bool = True
    pace_is_bounded: bool = True  # the interval in force of an elastic task, by its upper bound
    limited_goes_back: bool = True  # an occurrence whose job meets a full limit is the next run again


class Faults(NamedTuple):
    """How often each may still happen."""

    crash: int = 0  # a ticker, a worker, a horse, or both of the last two at once
    wipe: int = 0  # Redis loses everything
    freeze: int = 0  # a worker stands still for minutes with a job in its hand
    lost: int = 0  # the answer to a push or to a commit, or the request itself
    refused: int = 0  # Redis refuses one job of a push
    back: int = 0  # the database's clock is set back
    ahead: int = 0  # or forward
    edit: int = 0  # interval, disable, enable, delete
    manual: int = 0  # run_now
    reference: int = 0  # an application keeps an uncommitted row that refers to the task


@dataclass(frozen=True)
class Bounds:
    """One search: how many of everything, which timings, which faults."""

    name: str
    faults: Faults = field(default_factory=Faults)
    timings: tuple[Timing, ...] = (timing(3, 1, 2),)
    tasks: int = 1
    tickers: int = 2
    workers: int = 2
    staleness: int = 1  # units: a pass takes no longer
    slowest_answer: int = 0  # units: how long a start may wait for its answer
    prompt: bool = False  # no time passes while a worker has a job to take, or to begin
    least_expiry: int = 0  # units: an occurrence expires after max(2 I, this)
    back_off: int = 1  # units
    grouped: bool = False  # all workers are the slots of one process: what kills one of them kills all
    limited: bool = False  # all tasks have the same key, with a limit of one active run
    elastic: int = 1  # the upper bound of each interval, in lower bounds; 1: it is fixed
    one_host: bool = False  # for all tickers and workers; else nobody knows the uptime of another's runs
    age: int = 0  # units since the tasks were registered
    backlog: int = 0  # occurrences of each task that wait already, an interval apart, as after hours without a worker
    ran: bool = False  # each task has run an interval ago
    back_by: int = 5 * UNIT + 1
    ahead_by: int = 5 * UNIT + 1
    beat: int = 0  # units: some ticker's pass ends at least so often; 0: whenever it likes
    worst_wait: int = 0  # units until the next start when nothing fails any more; 0: as the promises say
    at_most: int = 0  # states; 0: all of them

    @property
    def longest(self) -> int:
        return max(t.every for t in self.timings) * self.elastic

    def in_force(self, timing: int, pace: int) -> int:
        """The interval in force; `pace` is what the row says, in lower bounds."""
        return self.timings[timing].every * pace

    def expiry(self, every: int) -> int:
        return max(2 * every, self.least_expiry * UNIT)

    @property
    def memory(self) -> int:
        """How far back two times are told apart by more than their order: no rule looks further."""
        return self.expiry(self.longest) + self.staleness * UNIT + self.faults.back * self.back_by + MARGIN

    @property
    def patience(self) -> int:
        """Units: interval + hold (a dead run) + two ticks + the queue's delay, and a back-off where there are any."""
        every = self.longest // UNIT
        return self.worst_wait or every + 3 + (self.back_off if self.faults.refused else 0)
