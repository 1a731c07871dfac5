"""From the database's clock to the monotonic one: the harness noted both, twice a second."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

SAME = 0.2  # seconds: two stretches whose offsets differ by less are one; no step lies between them
NEIGHBOURS = 10  # pairs on either side, whose median passes over a pair that was read while the machine was slow
EDGE = 0.75  # seconds: an instant so close to the end of a stretch may still belong to it

Pair = tuple[float, float]  # (monotonic, the database's clock), in seconds


@dataclass(frozen=True)
class Stretch:
    """A time without a step of the clock: it began and ended at these monotonic instants."""

    begin: float
    end: float
    ats: Sequence[float]
    offsets: Sequence[float]  # the database's clock minus the monotonic one

    def offset(self, at: float) -> float:
        return self.offsets[max(bisect_right(self.ats, at) - 1, 0)]

    def at(self, wall: float) -> float:
        return wall - self.offset(wall - self.offsets[len(self.offsets) // 2])

    def distance(self, at: float) -> float:
        """How far outside it lies; 0 inside."""
        return max(self.begin - at, at - self.end, 0.0)


@dataclass(frozen=True)
class ClockMap:
    stretches: Sequence[Stretch]

    def stretch(self, at: float) -> int:
        """Which one; two instants with different ones have a step of the clock between them."""
        return min(range(len(self.stretches)), key=lambda number: self.stretches[number].distance(at))

    def at(self, wall: float, near: float | None = None) -> float:
        """The monotonic instant. A clock that was set back shows a time twice: the one closest to `near` is meant."""
        if len(self.stretches) == 1:
            return self.stretches[0].at(wall)
        found = [(stretch.distance(at := stretch.at(wall)), at) for stretch in self.stretches]
        inside = [at for distance, at in found if distance <= EDGE]
        if inside:
            return inside[0] if near is None else min(inside, key=lambda at: abs(at - near))
        return min(found)[1]

    def wall(self, at: float) -> float:
        return at + self.stretches[self.stretch(at)].offset(at)


def clock_map(pairs: Iterable[Pair], steps: Iterable[float]) -> ClockMap:
    """`steps` are the monotonic instants at which the clock may have been set. ValueError without a pair."""
    ordered = sorted(pairs)
    if not ordered:
        raise ValueError("the history holds no event 'clocks', so that no instant of the database can be placed")
    cuts = [float("-inf"), *sorted(steps), float("inf")]
    parts = [[pair for pair in ordered if begin <= pair[0] < end] for begin, end in pairwise(cuts)]
    stretches: list[Stretch] = []
    for (begin, end), part in zip(pairwise(cuts), parts, strict=True):
        if part:
            _append(stretches, Stretch(begin, end, [at for at, _ in part], _smoothed(part)))
    return ClockMap(stretches)


def _append(stretches: list[Stretch], new: Stretch) -> None:
    """Unless the clock was not set in between: then both are one."""
    if stretches and abs(stretches[-1].offsets[-1] - new.offsets[0]) < SAME:
        last = stretches.pop()
        new = Stretch(last.begin, new.end, [*last.ats, *new.ats], [*last.offsets, *new.offsets])
    stretches.append(new)


def _smoothed(part: Sequence[Pair]) -> list[float]:
    offsets = [wall - at for at, wall in part]
    return [median(offsets[max(i - NEIGHBOURS, 0) : i + NEIGHBOURS + 1]) for i in range(len(offsets))]
