"""The promises, each with the function that judges it. A function counts the facts that it judged, so that one which
had nothing to judge shows.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from tests.faults.checks.causes import recorded_as_returned
from tests.faults.checks.crowd import starts_again
from tests.faults.checks.findings import Findings, Violation
from tests.faults.checks.harm import harms_no_other, is_whole, keeps_secrets
from tests.faults.checks.jobs import bounded, pushed_before
from tests.faults.checks.limits import obeys_limits
from tests.faults.checks.liveness import keeps_its_rate, pushed_in_time, starts_often
from tests.faults.checks.neighbours import spares_neighbours
from tests.faults.checks.records import accounted_for, asked_for
from tests.faults.checks.recovery import covered_again, ends_in_time
from tests.faults.checks.requests import starts_after_the_run_at_work
from tests.faults.checks.room import uses_its_room
from tests.faults.checks.rows import fenced, obeys_people, reads_its_row
from tests.faults.checks.starts import dead_in_time, no_overlap, spacing, started_once
from tests.faults.facts import History

Check = Callable[[History], Findings]

INVARIANTS: Mapping[str, tuple[str, Check]] = {
    "S1": ("consecutive scheduled first attempts of an interval task start at least I - T apart", spacing),
    "S2": ("the activity of two runs of a task never overlaps, children included", no_overlap),
    "S3": ("no activity of a run after B + g", dead_in_time),
    "S4": ("per token one start; per task and occurrence at most one scheduled start", started_once),
    "S5": ("no committed advance without a push that Redis answered 'stored' or 'held'", pushed_before),
    "S6": ("nothing starts after its task or owner was deleted, or its task disabled or paused", obeys_people),
    "S7": ("function, arguments, interval and tolerance of a run are those of the row at its start", reads_its_row),
    "S8": ("a write of a run that lost its token changes nothing", fenced),
    "S9": (
        "every occurrence pushed ends in exactly one record, and no record is false about Redis or the worker",
        accounted_for,
    ),
    "S10": ("at most two jobs of a task wait", bounded),
    "S11": ("a bad row, job or task changes no other task's history", harms_no_other),
    "S12": ("no secret in a log, a job's description, a reason or a traceback", keeps_secrets),
    "S13": (
        "nothing starts for another installation's job, or for an occurrence that its row did not wait for",
        asked_for,
    ),
    "S14": (
        "a run that returned is recorded so, if its worker lived and no later run had started",
        recorded_as_returned,
    ),
    "S15": (
        "a key has no more active runs, and no more starts in any window, than its limit allows, and none while it is held",
        obeys_limits,
    ),
    "S16": (
        "a death leaves each neighbour one true record, and no second run that its task did not allow",
        spares_neighbours,
    ),
    "L1": ("in a calm, a due task is pushed within D + 1 s", pushed_in_time),
    "L2": ("in a calm, a task starts at least every I + D + Q", starts_often),
    "L3": ("over 50 intervals and more, steady tasks start 0.98 times as often as their interval says", keeps_its_rate),
    "L4": ("3 D + restart after the faults, everything is covered again", covered_again),
    "L5": ("a run has its outcome within B + g + 2 D + 2 s", ends_in_time),
    "L6": ("in a calm, a key with room and due tasks has a start at least every 5 s + D + Q", uses_its_room),
    "L7": ("in a calm, a task of a large group starts within 3 D + restart + a poll after it is due", starts_again),
    "L8": (
        "a run that was asked for is not dropped for a run at work, and starts after it",
        starts_after_the_run_at_work,
    ),
    "H": ("the history itself is whole", is_whole),
}


@lru_cache(maxsize=1)
def judge(history: History) -> Mapping[str, Findings]:
    """What each check found; judged once for each history."""
    return {name: check(history) for name, (_, check) in INVARIANTS.items()}


def check(history: History) -> list[Violation]:
    """All violations, in the order of the table and then of time."""
    return [violation for name, found in judge(history).items() for violation in found.violations(name)]
