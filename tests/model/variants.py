"""Wrong variants of the protocol, kept as expected counterexamples; and the searches in which all has to hold.

A variant turns one rule around. `LIMITS` are what the product does not promise, with the rules as it has them.
"""

from dataclasses import dataclass, replace

from tests.model.rules import UNIT, Bounds, Faults, Rules, timing

SHORT = (timing(2, 1, 1),)
EDITED = (timing(2, 1, 1), timing(4, 1, 3))
LONG = (timing(3, 1, 2),)
SHARED: dict[str, object] = {"tasks": 2, "workers": 2, "limited": True, "worst_wait": 8}


@dataclass(frozen=True)
class Variant:
    """`changes` are fields of Rules; `breaks` the invariant that must break within the bounds."""

    name: str
    changes: dict[str, object]
    breaks: str
    bounds: Bounds

    def rules(self) -> Rules:
        return replace(Rules(), **self.changes)  # type: ignore[arg-type]


def bounds(faults: Faults | None = None, **values: object) -> Bounds:
    """Small ones: a trace that is short shows itself there."""
    usual: dict[str, object] = {"tickers": 1, "workers": 1, "timings": SHORT, "staleness": 0}
    return Bounds("variant", faults or Faults(), **{**usual, **values})  # type: ignore[arg-type]


WRONG = (
    Variant("commit before push", {"push_before_commit": False}, "S5", bounds()),
    Variant("advance although the push failed", {"advance_only_what_was_pushed": False}, "S5", bounds(Faults(lost=1))),
    Variant("a random job id for each push", {"id_per_occurrence": False}, "S10", bounds(Faults(lost=1))),
    Variant("guard reads, then writes", {"guard_is_atomic": False}, "S1", bounds(Faults(), workers=2, timings=LONG)),
    Variant("guard reads now before it has the lock", {"now_after_the_lock": False}, "S1", bounds(slowest_answer=1)),
    Variant("guard does not ask for the spacing", {"guard_checks_spacing": False}, "S1", bounds(timings=LONG)),
    Variant("guard does not ask whether enabled", {"guard_checks_enabled": False}, "S6", bounds(Faults(edit=1))),
    Variant(
        "no duplicate check", {"guard_checks_duplicates": False, "start_asks_what_waits": False}, "S4",
        bounds(Faults(lost=1), workers=2),
    ),
    Variant(
        "interval from the job, not the row", {"guard_reads_the_row": False}, "S7",
        bounds(Faults(edit=1), timings=EDITED),
    ),
    Variant("a start leaves its occurrence waiting", {"start_clears_waiting": False}, "S9", bounds()),
    Variant("sweep decides without the lock", {"sweep_locks": False}, "S9", bounds(Faults(wipe=1))),
    Variant("any number of waiting jobs", {"waiting_jobs": 0}, "S10", bounds(workers=0)),
    Variant("lost jobs are not pushed again", {"sweep_pushes_again": False}, "L4", bounds(Faults(wipe=1))),
    Variant(
        "sweep frees the hold of a dead worker at once", {"sweep_keeps_the_hold": False}, "S2",
        bounds(Faults(crash=1, manual=1), workers=2, timings=LONG),
    ),
    Variant(
        "what a neighbour's death interrupted waits for another start", {"interrupted_is_over": False}, "S9", bounds(Faults(crash=1), tasks=2, workers=2, grouped=True),
    ),
    Variant("no fence on the end", {"fence": False}, "S8", bounds(Faults(manual=1), workers=2)),
    Variant("no clamp", {"clamp": False}, "L2", bounds(Faults(back=1), beat=2)),
    Variant("box counted from the function's start", {"box_from_the_question": False}, "S3", bounds(slowest_answer=1, timings=LONG)),
    Variant("RQ's timeout alone", {"hard_limit": False}, "S3", bounds()),
    Variant("children left alive", {"children_die": False}, "S3", bounds()),
    Variant("look-ahead over the tolerance", {"look_ahead": 2}, "L2", bounds(timings=(timing(10, 1, 1),), prompt=True)),
    Variant(
        "FOR UPDATE: a reference hides the task", {"claim_ignores_references": False}, "L2", bounds(Faults(reference=1))
    ),
    Variant(
        "a heartbeat ahead of the clock is the only sign of a step", {"tickers_see_steps": False}, "L2",
        bounds(Faults(back=1), beat=2),
    ),
    Variant(
        "a start takes an occurrence from ahead of the clock, and all later ones are duplicates",
        {"future_counts_as_now": False}, "L2", bounds(Faults(back=1)),
    ),
    Variant(
        "a task whose first occurrence was dropped is taken for one with a `first`",
        {"clamp_asks_the_records": False}, "L2", bounds(Faults(back=1, edit=2), age=6),
    ),
    Variant(
        "a back-off from ahead of the clock lasts until it has caught up",
        {"clamp_mends_delays": False}, "L2", bounds(Faults(ahead=1, back=1, refused=1)),
    ),
    Variant(
        "the record of a dead run stays open until the clock has caught up",
        {"clamp_mends_runs": False}, "L5", bounds(Faults(back=1, crash=1)),
    ),
    Variant(
        "a planned run from ahead of the clock waits until it has caught up",
        {"clamp_mends_plans": False}, "L4", bounds(Faults(back=1, manual=1)),
    ),
    Variant(
        "a pass from before a step ends a living run as lost",
        {"overdue_by_its_own_clock": False}, "S2", bounds(Faults(back=1, manual=1), workers=2),
    ),
    Variant(
        "a job that a worker has just taken is recorded as expired, and then starts",
        {"start_asks_for_expired": False, "start_asks_what_waits": False}, "S9", bounds(Faults(wipe=1), backlog=2),
    ),
    Variant(
        "what has expired is known by last_occurrence alone, which a clamp lowers",
        {"start_asks_for_expired": False, "start_asks_what_waits": False, "expired_counts_as_started": True}, "S9",
        bounds(Faults(back=1, wipe=1), backlog=2),
    ),
    Variant(
        "what has expired ahead of the clock raises last_occurrence, and all that follow are duplicates",
        {"expired_counts_as_started": True}, "L2",
        bounds(Faults(back=1, wipe=1), backlog=2, ran=True, one_host=True, back_by=10 * UNIT + 1),
    ),
    Variant(
        "what a frozen worker holds is recorded as lost, and then starts",
        {"start_asks_for_lost": False, "start_asks_what_waits": False}, "S9",
        bounds(Faults(freeze=1), workers=2, at_most=30_000),
    ),
    Variant(
        "an occurrence that was dropped is pushed again by the next tick, and starts",
        {"start_asks_for_dropped": False}, "S9", bounds(Faults(crash=1, edit=2)),
    ),
    Variant(
        "the hold by the database's clock alone, which is set forward",
        {"uptime_counts": False}, "S2", bounds(Faults(ahead=1), one_host=True, workers=2),
    ),
    Variant(
        "a start looks whether the slot of a limit is free, and then takes it",
        {"place_is_locked": False}, "S15", bounds(tickers=0, backlog=1, **SHARED),
    ),
    Variant(
        "the end of a run frees the slot of a limit, whoever has it",
        {"place_freed_by_its_token": False}, "S15", bounds(tickers=0, backlog=2, **SHARED),
    ),
    Variant(
        "the slot of a dead run never comes back",
        {"place_freed_by_time": False}, "L2", bounds(Faults(crash=1), limited=True, worst_wait=8),
    ),
    Variant("an elastic interval without an upper bound", {"pace_is_bounded": False}, "L2", bounds(elastic=2)),
    Variant(
        "an occurrence whose job meets a full limit is forgotten",
        {"limited_goes_back": False}, "S9", bounds(tickers=0, backlog=1, age=-1, **SHARED),
    ),
)  # fmt: skip

EVEN: dict[str, object] = {"back_by": 9 * UNIT + 1, "ahead_by": 9 * UNIT + 1}

LIMITS = (
    Variant(
        "forward and back by the same between two clamps: no ticker sees a step", {}, "L2",
        bounds(Faults(ahead=1, back=1, lost=1), ran=True, at_most=20_000, **EVEN),
    ),
    Variant(
        "the clock is set forward during a run: its hold is over, and another run starts beside it",
        {"steps_excuse": False}, "S2", bounds(Faults(ahead=1), workers=2),
    ),
)  # fmt: skip


def search(name: str, faults: Faults, **values: object) -> Bounds:
    return replace(bounds(faults, **values), name=name)


UNEVEN: dict[str, object] = {"ahead_by": 3 * UNIT + 2}  # so that both steps together are one, too
A_LITTLE: dict[str, object] = {"back_by": UNIT + 1}  # less than an interval: what was planned is not too far ahead
ONE_HOST: dict[str, object] = {"one_host": True}

QUICK = (
    search("an answer is lost", Faults(lost=1), at_most=4_000),
    search("the clock is set back, two tickers", Faults(back=1), tickers=2, at_most=4_000),
    search("back and forward on one host", Faults(back=1, ahead=1), ran=True, at_most=4_000, **UNEVEN, **ONE_HOST),
    search("a group of two dies", Faults(crash=1), tasks=2, workers=2, grouped=True, at_most=4_500),
    search("an edit, a manual run, two workers", Faults(edit=1, manual=1), workers=2, timings=EDITED, at_most=4_000),
    search("two tasks share a slot, a crash", Faults(crash=1), at_most=4_500, **SHARED),
    search("an elastic interval, a crash, a manual run", Faults(crash=1, manual=1), elastic=2, at_most=4_500),
)

SEARCHES = (
    search("nothing fails", Faults()),
    search("nothing fails, two tickers", Faults(), tickers=2),
    search("nothing fails, two workers", Faults(), workers=2, at_most=10_000),
    search("slow answers, a stale pass", Faults(), slowest_answer=1, staleness=1, timings=LONG, at_most=10_000),
    search("a crash and a wipe", Faults(crash=1, wipe=1), at_most=10_000),
    search("a crash and a wipe, a backlog", Faults(crash=1, wipe=1), backlog=2, at_most=10_000),
    search("answers lost, two tickers", Faults(lost=2), tickers=2, at_most=10_000),
    search("two tasks, a crash", Faults(crash=1), tasks=2, at_most=8_000),
    search("a group of two dies", Faults(crash=1), tasks=2, workers=2, grouped=True, at_most=8_000),
    search("back, a crash, two tickers", Faults(back=1, crash=1), tickers=2, at_most=10_000),
    search("back, an answer lost, one host", Faults(back=1, lost=1), tickers=2, ran=True, at_most=10_000, **ONE_HOST),
    search("back and a wipe", Faults(back=1, wipe=1), at_most=10_000),
    search("back by a little, a crash, a wipe", Faults(back=1, crash=1, wipe=1), at_most=10_000, **A_LITTLE),
    search("back and forward", Faults(back=1, ahead=1), at_most=10_000, **UNEVEN),
    search("back and forward, one host", Faults(back=1, ahead=1), ran=True, at_most=10_000, **UNEVEN, **ONE_HOST),
    search("back, refused, a manual run", Faults(back=1, refused=1, manual=1), at_most=10_000),
    search("edit, manual run, two workers", Faults(edit=1, manual=1), workers=2, timings=EDITED, at_most=10_000),
    search("strobing, a crash", Faults(ahead=1, back=1, crash=1), at_most=10_000, **UNEVEN),
    search("forward, a crash, two workers", Faults(ahead=1, crash=1), workers=2, at_most=10_000),
    search("forward on one host, two workers", Faults(ahead=1, manual=1), workers=2, at_most=10_000, **ONE_HOST),
    search("two tasks share a slot, a crash", Faults(crash=1), at_most=8_000, **SHARED),
    search("two share a slot, a backlog, manual run", Faults(manual=1), backlog=2, at_most=8_000, **SHARED),
    search("two share a slot, two tickers", Faults(lost=1), tickers=2, at_most=8_000, **SHARED),
    search("two share a slot, back, a crash", Faults(back=1, crash=1), at_most=8_000, **SHARED),
    search("elastic, an answer lost, two workers", Faults(lost=1), workers=2, elastic=4, at_most=8_000),
    search("elastic, a wipe, two tickers", Faults(wipe=1), tickers=2, elastic=2, at_most=8_000),
    search("elastic, back, a crash", Faults(back=1, crash=1), elastic=2, at_most=8_000),
    search(
        "elastic, back and forward, one host", Faults(back=1, ahead=1), elastic=2, at_most=8_000, **UNEVEN, **ONE_HOST
    ),
    search("two share a slot, forward, one host", Faults(ahead=1), at_most=8_000, **SHARED, **ONE_HOST),
)

NIGHTLY = (
    search("nothing fails, 2 tickers, 2 workers, stale", Faults(), tickers=2, workers=2, staleness=1, at_most=150_000),
    search("back, a lost answer, two tickers", Faults(back=1, lost=1), tickers=2, at_most=120_000),
    search("back, a crash, one host, two tickers", Faults(back=1, crash=1), tickers=2, at_most=120_000, **ONE_HOST),
    search("back and a wipe, two workers", Faults(back=1, wipe=1), workers=2, at_most=100_000),
    search("back and a crash, two workers", Faults(back=1, crash=1), workers=2, at_most=120_000),
    search("strobing, a crash, a manual run", Faults(ahead=1, back=1, crash=1, manual=1), at_most=120_000, **UNEVEN),
    search("strobing, a crash, one host", Faults(ahead=1, back=1, crash=1), at_most=100_000, **UNEVEN, **ONE_HOST),
    search("back twice", Faults(back=2), at_most=120_000),
    search("two share a slot, a crash, two tickers", Faults(crash=1, lost=1), tickers=2, at_most=120_000, **SHARED),
    search("elastic, one of most faults", Faults(crash=1, wipe=1, lost=1, manual=1), workers=2, elastic=2, at_most=120_000),
    # A run that starts at an occurrence which an edit has set to this very instant + I; in microseconds none does.
    search("back and an edit", Faults(back=1, edit=1), timings=EDITED, worst_wait=9, at_most=120_000),
    search(
        "one of every fault, 2 tickers, 2 workers",
        Faults(crash=1, wipe=1, freeze=1, lost=1, refused=1, back=1, ahead=1, edit=1, manual=1),
        tickers=2, workers=2, timings=EDITED, worst_wait=9, at_most=1_000_000, **UNEVEN,
    ),
)  # fmt: skip
