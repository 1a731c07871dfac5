"""Wrong variants of the protocol, kept as expected counterexamples; and the searches in which all has to hold.

A variant turns one rule around. `repair` names what the search found missing in the statements themselves: the rule as
it should be holds in all searches, the rule as it was is a variant like the others. `LIMITS` are no faults of the
protocol, but what no protocol of this kind can promise.
"""

from dataclasses import dataclass, replace

from tests.model.rules import Bounds, Faults, Rules, timing

SHORT = (timing(2, 1, 1),)
EDITED = (timing(2, 1, 1), timing(4, 1, 3))
LONG = (timing(3, 1, 2),)


@dataclass(frozen=True)
class Variant:
    """`changes` are fields of Rules; `breaks` the invariant that must break within the bounds."""

    name: str
    changes: dict[str, object]
    breaks: str
    bounds: Bounds
    repair: str = ""

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
    Variant("no duplicate check", {"guard_checks_duplicates": False}, "S4", bounds(Faults(lost=1), workers=2)),
    Variant(
        "interval from the job, not the row", {"guard_reads_the_row": False}, "S7",
        bounds(Faults(edit=1), timings=EDITED),
    ),
    Variant("a start leaves its occurrence waiting", {"start_clears_waiting": False}, "S9", bounds()),
    Variant("sweep decides without the lock", {"sweep_locks": False}, "S9", bounds(Faults(wipe=1))),
    Variant("no expiry", {"sweep_expires": False}, "S10", bounds(workers=0)),
    Variant("lost jobs are not pushed again", {"sweep_pushes_again": False}, "L2", bounds(Faults(wipe=1), timings=(timing(6, 1, 1),), worst_wait=7)),
    Variant(
        "sweep frees the hold of a dead worker at once", {"sweep_keeps_the_hold": False}, "S2",
        bounds(Faults(crash=1, manual=1), workers=2, timings=LONG),
    ),
    Variant("no fence on the end", {"fence": False}, "S8", bounds(Faults(manual=1), workers=2)),
    Variant("no clamp", {"clamp": False}, "L2", bounds(Faults(back=1), beat=2)),
    Variant("box counted from the function's start", {"box_from_the_question": False}, "S3", bounds(slowest_answer=1, timings=LONG)),
    Variant("RQ's time-out alone", {"hard_limit": False}, "S3", bounds()),
    Variant("children left alive", {"children_die": False}, "S3", bounds()),
    Variant("look-ahead over the tolerance", {"look_ahead": 2}, "L2", bounds(timings=(timing(6, 1, 1),), worst_wait=7)),
    Variant(
        "FOR UPDATE: a reference hides the task", {"claim_ignores_references": False}, "L2", bounds(Faults(reference=1))
    ),
)  # fmt: skip

REPAIRS = (
    Variant(
        "a start takes an occurrence from ahead of the clock, and all later ones are duplicates",
        {"start_looks_past_a_future_occurrence": False}, "L2", bounds(Faults(back=1), beat=2),
        "start: last_occurrence counts only up to now; the records tell duplicates beyond it",
    ),
    Variant(
        "behind such an occurrence, what is pushed is not noted as waiting: lost without a record",
        {"advance_asks_the_records": False}, "S9", bounds(Faults(back=1, wipe=1), beat=2),
        "advance: an occurrence has started where a record says so, not where last_occurrence is later",
    ),
    Variant(
        "the clock is set back between a tick's clamp and its reading of now",
        {"one_reading_per_tick": False}, "L2", bounds(Faults(back=1), beat=2),
        "tick: `now` is the instant that the clamp read",
    ),
    Variant(
        "a pass from before a step advances, and another ticker has removed its heartbeat",
        {"advance_by_its_own_clock": False}, "L2", bounds(Faults(back=1), tickers=2, beat=2),
        "advance: next_run at most clock_timestamp() + I",
    ),
    Variant(
        "a clamp passes over a row that another ticker has locked, and its heartbeat removes the sign",
        {"clamp_comes_back": False}, "L2", bounds(Faults(back=1, lost=1), tickers=2, beat=2),
        "clamp: look at every row again in the next pass when one was locked",
    ),
    Variant(
        "a task whose first occurrence was dropped is taken for one with a `first`",
        {"clamp_trusts_no_first": False}, "L2", bounds(Faults(back=1, edit=2), beat=2, age=6),
        "clamp: remember that the task was pushed (a column, or created_at <> next_run of the first push)",
    ),
    Variant(
        "the record of a dead run stays open until the clock has caught up",
        {"sweep_mends_records": False}, "L5", bounds(Faults(back=1, crash=1), beat=2),
        "end_overdue: a running record with started_at ahead of now gets until = now + (until - started_at)",
    ),
    Variant(
        "a back-off from ahead of the clock lasts until it has caught up",
        {"clamp_mends_delays": False},
        "L2",
        bounds(Faults(ahead=1, back=1, refused=1), beat=2),
        "clamp: push_after is looked at by itself, and not only where another time lies ahead",
    ),
    Variant(
        "a planned run from ahead of the clock waits until it has caught up",
        {"plans_from_ahead_are_due": False},
        "L4",
        bounds(Faults(back=1, manual=1), beat=2),
        "claim_planned: also what was created ahead of the clock",
    ),
    Variant(
        "a pass from before a step ends a living run as lost",
        {"overdue_by_its_own_clock": False}, "S2", bounds(Faults(back=1, manual=1), workers=2, beat=2),
        "end_overdue: the clock that is read after the locks, as in clamp",
    ),
    Variant(
        "a job that a worker has just taken is recorded as expired, and then starts",
        {"start_refuses_settled": False}, "S9", bounds(Faults(crash=1)),
        "start: an occurrence with a record of the sweep is a duplicate",
    ),
)  # fmt: skip

LIMITS = (
    Variant(
        "the clock is set forward during a run: its hold is over, and another run starts beside it",
        {"steps_excuse": False}, "S2", bounds(Faults(ahead=1), workers=2),
    ),
)  # fmt: skip


def search(name: str, faults: Faults, **values: object) -> Bounds:
    return replace(bounds(faults, **values), name=name)


BACK = {"beat": 2}  # units: with no tick at all, nothing notices that the clock was set back

QUICK = (
    search("an answer is lost", Faults(lost=1), at_most=4_000),
    search("the clock is set back, two tickers", Faults(back=1), tickers=2, at_most=4_000, **BACK),
    search("an edit, a manual run, two workers", Faults(edit=1, manual=1), workers=2, timings=EDITED, at_most=4_000),
)

SEARCHES = (
    search("nothing fails", Faults()),
    search("nothing fails, two tickers", Faults(), tickers=2),
    search("nothing fails, two workers", Faults(), workers=2, at_most=10_000),
    search("slow answers, a stale pass", Faults(), slowest_answer=1, staleness=1, timings=LONG, at_most=10_000),
    search("a crash and a wipe", Faults(crash=1, wipe=1), at_most=10_000),
    search("answers lost, two tickers", Faults(lost=2), tickers=2, at_most=10_000),
    search("two tasks, a crash", Faults(crash=1), tasks=2, at_most=8_000),
    search("back, a crash, two tickers", Faults(back=1, crash=1), tickers=2, at_most=10_000, **BACK),
    search("back and a wipe", Faults(back=1, wipe=1), at_most=10_000, **BACK),
    search("back and forward", Faults(back=1, ahead=1), at_most=10_000, **BACK),
    search("back, refused, a manual run", Faults(back=1, refused=1, manual=1), at_most=10_000, **BACK),
    search("edit, manual run, two workers", Faults(edit=1, manual=1), workers=2, timings=EDITED, at_most=10_000),
    search("strobing, a crash", Faults(ahead=1, back=1, crash=1), at_most=10_000, **BACK),
    search("forward, a crash, two workers", Faults(ahead=1, crash=1), workers=2, at_most=10_000),
)

NIGHTLY = (
    search("nothing fails, 2 tickers, 2 workers, stale", Faults(), tickers=2, workers=2, staleness=1, at_most=200_000),
    search("back, a lost answer, two tickers", Faults(back=1, lost=1), tickers=2, at_most=150_000, **BACK),
    search("back and a wipe, two workers", Faults(back=1, wipe=1), workers=2, at_most=100_000, **BACK),
    search("back and a crash, two workers", Faults(back=1, crash=1), workers=2, at_most=150_000, **BACK),
    search("strobing, a crash, a manual run", Faults(ahead=1, back=1, crash=1, manual=1), at_most=200_000, **BACK),
    search("back twice", Faults(back=2), at_most=150_000, **BACK),
    # A run that starts at an occurrence which an edit has set to this very instant + I; in microseconds none does.
    search("back and an edit", Faults(back=1, edit=1), timings=EDITED, worst_wait=9, at_most=150_000, **BACK),
    search(
        "one of every fault, 2 tickers, 2 workers",
        Faults(crash=1, wipe=1, lost=1, refused=1, back=1, ahead=1, edit=1, manual=1),
        tickers=2, workers=2, timings=EDITED, worst_wait=9, at_most=1_000_000, **BACK,
    ),
)  # fmt: skip
