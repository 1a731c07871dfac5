"""The times in which people left a task alone."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from tests.faults.facts import FOREVER, History, Version


class Epoch(NamedTuple):
    """Nobody edited, paused, disabled or deleted the task in it; its first version stands for all."""

    begin: float
    end: float
    version: Version


@lru_cache(maxsize=1)
def epochs(history: History) -> Mapping[int, Sequence[Epoch]]:
    """Of each task while it was there; found once for each history."""
    return {id_: _epochs(task.versions) for id_, task in history.tasks.items()}


def _epochs(versions: Sequence[Version]) -> list[Epoch]:
    firsts = [versions[0]]
    firsts += [after for before, after in pairwise(versions) if before.definition != after.definition]
    ends = [version.at for version in firsts[1:]] + [FOREVER]
    return [Epoch(first.at, end, first) for first, end in zip(firsts, ends, strict=True) if first.op != "D"]
