"""What the demo shows of failures: their output, a retry that succeeds, work in pieces, and what `ticker why` says of them."""

import re
from datetime import timedelta

from ticker.demo.evidence import Check, Evidence
from ticker.model import Outcome, Reason, RunKind
from ticker.read.entries import JournalEntry
from ticker.read.tasks import FullRun, RunRecord

IMPORT, REFRESH = "feeds.import", "feeds.refresh"
ROUNDING = 0.01  # seconds: of three figures that are rounded to a millisecond
ARITHMETIC = re.compile(
    r"too_early: ([\d.]+) s after the last start at [\d:.]+, ([\d.]+) s too early"
    r" \(([\d.]+) s interval, ([\d.]+) s tolerance"
)


def retried(evidence: Evidence) -> Check:
    """A failure whose output is kept, and the further attempt of the same occurrence that succeeded."""
    claim = "a failure kept its output, and its retry succeeded"
    for first in evidence.failed.values():
        again = [run for run in first.attempts if run.kind == RunKind.RETRY and run.outcome == Outcome.SUCCEEDED]
        if first.run.task_name == IMPORT and "503" in first.error_output and again:
            detail = f"{IMPORT} printed {first.error_output.strip()!r}; attempt {again[0].attempt} succeeded"
            return Check(claim, True, detail)
    return Check(claim, False, f"not seen; {len(evidence.failed)} runs failed")


def in_pieces(evidence: Evidence) -> Check:
    """A run whose pieces were worked on one by one, of which one failed."""
    claim = "work was done in pieces, and the one that failed is named"
    for parent in evidence.failed.values():
        if parent.run.task_name == REFRESH and parent.pieces:
            return Check(claim, is_as_it_should_be(parent), f"{REFRESH}: {parent.run.reason}")
    return Check(claim, False, "not seen")


def is_as_it_should_be(parent: FullRun) -> bool:
    outcomes = sorted(str(piece.outcome) for piece in parent.pieces)
    return outcomes == ["failed", *["succeeded"] * 4] and parent.run.reason == "1 of 5 pieces failed"


def explained(evidence: Evidence) -> Check:
    """`ticker why` names the failure, the retry, the pieces and the drop; its figures agree with each other and the record."""
    claim = "ticker why explains each of them, and its arithmetic is right"
    lines = [line for why in evidence.whys.values() for line in why.lines]
    drops = [line for line in lines if line.run and line.run.reason == Reason.TOO_EARLY]
    wrong = [str(line) for line in drops if not adds_up(line)]
    told = {
        "the failure": any("503" in line.words for line in lines),
        "the retry": any("attempt 2 of 3" in line.words for line in lines),
        "the pieces": any("5 pieces" in line.words for line in lines),
        "the drop": bool(drops),
    }
    missing = [what for what, is_there in told.items() if not is_there]
    detail = "; ".join([*wrong, *(f"{what} is missing" for what in missing)]) or str(drops[0])
    return Check(claim, not wrong and not missing, detail)


def adds_up(line: JournalEntry) -> bool:
    """What it says of a drop, by the drop's own record, and by itself: after + early = interval - tolerance."""
    found = ARITHMETIC.search(line.words)
    if not found or line.run is None:
        return False
    after, early, interval, tolerance = map(float, found.groups())
    return abs(after + early - (interval - tolerance)) < ROUNDING and abs(after - since(line.run)) < ROUNDING


def since(drop: RunRecord) -> float:
    passed = drop.checked_at - drop.checked_last_run if drop.checked_at and drop.checked_last_run else timedelta()
    return passed.total_seconds()
