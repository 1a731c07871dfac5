"""Which changes of a task's row are a tick's advance, and of which occurrence."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.faults.facts import Task, Version


class Advance(NamedTuple):
    """The row after the advance, and the occurrence (microseconds) that was noted or passed."""

    version: Version
    occurrence: int


def advances(task: Task) -> Iterator[Advance]:
    """`waiting` gained an occurrence, or `next_run` moved on and nobody but a ticker moves it like that."""
    first = task.versions[0]
    yield from (Advance(first, occurrence) for occurrence in first.waiting)
    for before, after in pairwise(task.versions):
        passed = set(after.waiting).difference(before.waiting) if after.waiting is not before.waiting else set()
        if moved_on(before, after):
            assert before.next_run is not None
            passed.add(round(before.next_run * 1_000_000))
        yield from (Advance(after, occurrence) for occurrence in passed)


def moved_on(before: Version, after: Version) -> bool:
    """Later than before, or none any more, and not counted as enough_jobs. People and runs of elastic tasks move it, too, but change
    something else of the row with it; a clamp only brings it nearer."""
    if after.op != "U" or before.next_run is None or after.next_run == before.next_run or after.enough_jobs_event:
        return False
    later = after.next_run is None or after.next_run > before.next_run
    is_paced = (before.pace_ms, before.again_at) != (after.pace_ms, after.again_at)
    return later and not is_paced and before.definition == after.definition and before.updated_at == after.updated_at
