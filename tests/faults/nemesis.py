"""Draws a schedule of faults from a seed, writes it down, and then does what it says.

A run is a row of storms, each followed by a calm. In a storm, faults of different domains overlap; in a calm nothing
is wrong, and everything must have recovered by itself.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from tests.faults import failovers, wide  # noqa: F401
from tests.faults.kinds import ALONE, EXPECTED, KINDS, LIMITS, SHARE, Kind
from tests.faults.stage import Stage

EVERY, EVERY_IN_SHORT = 1.8, 0.7  # seconds between two faults of a storm, on average
STORM, CALM = 40.0, 16.0  # seconds
LAST_CALM = 110.0  # seconds: over 50 intervals of the 2 s tasks
RECOVERY = 40.0  # seconds: longer than everything that may be waited for; past it the product has not recovered
LONG_ENOUGH = 3 * 60.0  # seconds of a run that has room for the kinds that need a storm of their own


@dataclass(frozen=True)
class Planned:
    """One fault: so many seconds after the beginning of its storm, for so long; `draw` seeds what it chooses."""

    storm: int
    offset: float
    seconds: float
    kind: str
    draw: int


def schedule(
    seed: int, seconds: float, *, own_hosts: bool = False, only: Collection[str] = (), limits: bool = False,
    ha: bool = False,
) -> list[Planned]:  # fmt: skip
    """As many storms as fit, each kind equally often: a kind is drawn again only when all others have been drawn. What needs a
    storm of its own has one, somewhere among them, where the run is long enough, or where it is asked for by its name."""
    draw = Random(f"nemesis {seed}")
    kinds = [kind for kind in KINDS.values() if (kind.name in only or not only) and (ha or not kind.ha)]
    out = {ALONE} | (set() if own_hosts else {"cable"}) | (set() if limits else {LIMITS})
    turn = [kind for kind in kinds if kind.domain not in out]
    alone = [kind for kind in kinds if kind.domain == ALONE and (only or seconds >= LONG_ENOUGH)]
    left = seconds - last_calm(seconds) - sum(lasts(kind, seconds) + max(CALM, kind.calm) for kind in alone)
    storms: list[Kind | None] = [None] * max(1, int(left // (storm(seconds) + CALM))) if turn else []
    storms += alone
    draw.shuffle(storms)
    in_turn = _in_turn(draw, turn)
    return [
        fault
        for number, kind in enumerate(storms)
        for fault in (
            _one_storm(number, seconds, draw, in_turn) if kind is None else [_alone(number, kind, seconds, draw)]
        )
    ]


def lasts(kind: Kind, seconds: float) -> float:
    """How long a kind that has its own storm lasts in a run of so many seconds."""
    return min(kind.most, max(kind.least, seconds * SHARE))


def _alone(number: int, kind: Kind, seconds: float, draw: Random) -> Planned:
    return Planned(number, 0.0, round(lasts(kind, seconds), 3), kind.name, draw.randrange(10**9))


def storm(seconds: float) -> float:
    return min(STORM, seconds / 2)


def last_calm(seconds: float) -> float:
    return LAST_CALM if is_long(seconds) else min(CALM, seconds / 3)


def is_long(seconds: float) -> bool:
    return seconds >= 10 * 60


def _in_turn(draw: Random, kinds: list[Kind]) -> Iterator[Kind]:
    while True:
        yield from draw.sample(kinds, len(kinds))


def _one_storm(number: int, seconds: float, draw: Random, kinds: Iterator[Kind]) -> list[Planned]:
    """A fault that would meet one of its own domain waits for that one's end."""
    length, every = storm(seconds), EVERY if is_long(seconds) else EVERY_IN_SHORT
    planned, free_at = [], dict.fromkeys((kind.domain for kind in KINDS.values()), 0.0)
    offset = 0.0
    while (offset := offset + draw.expovariate(1 / every)) < length:
        kind = next(kinds)
        lasts = draw.uniform(kind.least, kind.most)
        begin = max(offset, free_at[kind.domain])
        if begin + lasts <= length:
            planned.append(Planned(number, round(begin, 3), round(lasts, 3), kind.name, draw.randrange(10**9)))
            free_at[kind.domain] = begin + lasts + 0.1
    return sorted(planned, key=lambda fault: fault.offset)


class Nemesis:
    """Performs a schedule on a stage. `healthy` says whether everything runs again; it is asked before each calm."""

    def __init__(
        self, stage: Stage, planned: list[Planned], folder: Path, healthy: Callable[[float], list[str]]
    ) -> None:
        self._stage = stage
        self._planned = planned
        self._healthy = healthy
        self.unhealed: list[str] = []
        self._worlds = 0
        self._turns = {kind.domain: threading.Lock() for kind in KINDS.values()}
        (folder / "schedule.json").write_text(json.dumps([asdict(fault) for fault in planned], indent=0))

    def play(self, seconds: float) -> None:
        """All storms and calms, the last calm the longest."""
        storms = 1 + max(fault.storm for fault in self._planned)
        for number in range(storms):
            faults = [fault for fault in self._planned if fault.storm == number]
            self._storm(faults)
            least = last_calm(seconds) if number == storms - 1 else min(CALM, seconds / 3)
            self._calm(max([least, *(KINDS[fault.kind].calm for fault in faults)]))

    def _storm(self, planned: list[Planned]) -> None:
        began = time.monotonic()
        running = []
        for fault in planned:
            time.sleep(max(0.0, began + fault.offset - time.monotonic()))
            thread = threading.Thread(target=self._perform, args=(fault, len(running)), daemon=True)
            thread.start()
            running.append(thread)
        for thread in running:
            thread.join()

    def _perform(self, fault: Planned, number: int) -> None:
        """A fault that waited for its moment keeps the next one of its domain waiting."""
        kind = KINDS[fault.kind]
        with self._turns[kind.domain]:
            self._act(fault, kind, number)

    def _act(self, fault: Planned, kind: Kind, number: int) -> None:
        effects = {*kind.effects, *self._stage.may_promote(kind.domain)}
        about = {"id": 1000 * fault.storm + number, "kind": fault.kind, "effects": sorted(effects)}
        journal = self._stage.journal
        journal.write("fault", phase="begin", target=None, **about)
        target, error = "", ""
        try:
            with kind.act(self._stage, Random(fault.draw)) as target:
                time.sleep(fault.seconds)
        except EXPECTED as problem:
            error = f"{type(problem).__name__}: {problem}"[:300]
        journal.write("fault", phase="end", target=target, error=error, **about)

    def _calm(self, seconds: float) -> None:
        began = time.time()
        self._stage.heal()
        if self._stage.edits.restores != self._worlds:
            self._worlds = self._stage.edits.restores
            wide.resume_all(self._stage)
        ill = [*self._stage.broken, *self._healthy(began)]
        self._stage.broken.clear()
        if ill:
            self.unhealed += ill
            self._stage.journal.write("unhealed", what=ill)
        self._stage.journal.write("calm", phase="begin")
        time.sleep(seconds)
        self._stage.journal.write("calm", phase="end")
