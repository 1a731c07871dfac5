"""Reads the folder of a fault run into one frozen `History`. The checker sees nothing else.

Files of events at the top, `witness/*.jsonl` of the functions themselves, `*.log` of the processes. Witness files are
read line by line, and only what lies at the edges of a run is kept.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.clockmap import ClockMap, Pair, clock_map
from tests.faults.facts import (
    FOREVER,
    Calm,
    Declaration,
    Fault,
    History,
    Life,
    Operation,
    Push,
    Setup,
    Signal,
    Torn,
    bare,
)
from tests.faults.trail import Trail
from tests.faults.witnesses import Witnesses

DATABASE = "database.jsonl"  # read last: its instants need the clocks
EXPORTS = "database"  # and database-0.jsonl, where a restore replaced the database
OF_ALL_WORLDS = frozenset({"clocks", "setup", "fault", "wipe", "calm", "last", "process", "signal", "take"})
GAPS = {
    "restored": ("gap", frozenset({"wipe", "postgres_down", "no_tickers", "no_workers"})),
    "failed_over": ("lost", frozenset({"postgres_down"})),
}
"""What a world lacks between its copy and its return, as a fault. A restore stops everything, and what Redis keeps is of
another installation. After the promotion of a standby that lagged, all goes on, with the same Redis."""
RESTART = 10.0  # seconds, where the setup does not say

Line = Mapping[str, Any]
RunOfTask = tuple[int, int]
"""A promoted standby gives the numbers of lost runs again, usually to runs of other tasks."""


def load(folder: Path) -> History:
    """The only world of a run, or the last one. ValueError where the folder holds no setup or no clocks; a torn last line of
    a file is passed over."""
    return worlds(folder)[-1]


def worlds(folder: Path) -> list[History]:
    """A restore of an older dump, or the promotion of a standby that lagged, ends one world and begins another, in which what
    came between never was. Each is a history of its own: what the database of that world knew at its end, and what the others wrote of it."""
    restores = [line for line in lines(folder / "events.jsonl", []) if line["event"] in GAPS]
    seen, found = Seen(), []
    for number, restore in enumerate([*restores, None]):
        stopped = restore["stopped"] if restore else None
        database = folder / (f"database-{number}.jsonl" if restore else DATABASE)
        found.append(_world(folder, seen.until(stopped), database))
        if restore:
            seen = seen.without(_gap(restore))
    return found


def is_export(path: Path) -> bool:
    return path.name.startswith(EXPORTS)


class Gap(NamedTuple):
    begin: float
    end: float
    event: str
    ends: frozenset[int] = frozenset()

    @property
    def fault(self) -> Fault:
        kind, effects = GAPS[self.event]
        return Fault(f"gap {self.begin}", kind, "all", effects, self.begin, self.end)


@dataclass(frozen=True)
class Seen:
    """What belongs to a world: all instants but those in its gaps, and none after it was stopped for a restore."""

    gaps: tuple[Gap, ...] = ()
    stopped: float | None = None

    def until(self, stopped: float | None) -> "Seen":
        return replace(self, stopped=stopped)

    def without(self, gap: Gap) -> "Seen":
        """The world after a restore: what lay before the dump, and what comes from now on."""
        return Seen((*(other for other in self.gaps if other.begin < gap.begin), gap), None)

    def unknown(self, witnessed: Iterator[Line]) -> frozenset[RunOfTask]:
        """Runs that began in a gap, or after the end. Some go on in this world, in which their start never was."""
        return frozenset(_run(line) for line in witnessed if line["event"] == "begin" and line["at"] not in self)

    def lived(self, witnessed: Iterator[Line], unknown: frozenset[RunOfTask]) -> Iterator[Line]:
        """The lines of a process that belong to this world. Another run of it may have the number of an unknown one, and of the same
        task: then this process says that it began."""
        begun: set[RunOfTask] = set()
        for line in witnessed:
            if line["event"] == "begin":
                (begun.add if line["at"] in self else begun.discard)(_run(line))
            if line["at"] in self and (_run(line) not in unknown or _run(line) in begun):
                yield line

    def __contains__(self, at: float) -> bool:
        is_over = self.stopped is not None and at > self.stopped
        return not is_over and not any(gap.begin < at < gap.end for gap in self.gaps)


def _world(folder: Path, seen: Seen, database: Path) -> History:
    torn: list[Torn] = []
    events = Events(seen)
    for path in sorted(folder.glob("*.jsonl")):
        for line in () if is_export(path) else lines(path, torn):
            if line["event"] in OF_ALL_WORLDS or line["at"] in seen:
                events.add(line)
    setup, clocks = events.setup(folder), events.clocks()
    trail = Trail(clocks)
    for line in lines(database, torn):
        trail.add(line)
    witnesses = Witnesses(strict_children=setup.strict_children)
    files = sorted(folder.glob("witness/*.jsonl"))
    unknown = seen.unknown(line for path in files for line in lines(path, [])) if seen.gaps else frozenset()
    for path in files:
        witnesses.add_file(seen.lived(lines(path, torn), unknown))
    return _history(folder, setup, clocks, events, trail, witnesses, torn)


def lines(path: Path, torn: list[Torn]) -> Iterator[Line]:
    """Each line of a file as an object; what is no JSON is noted in `torn`. A file that is not there is empty."""
    if not path.exists():
        return
    number, broken = 0, 0
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if broken:
                torn.append(Torn(path.name, broken, False))
                broken = 0
            try:
                line = json.loads(text)
            except ValueError:
                broken = number
                continue
            if isinstance(line, dict):
                yield line
            else:
                broken = number
    if broken:
        torn.append(Torn(path.name, broken, True))


@dataclass
class Events:
    """What the harness, its client and the proxy in front of Redis wrote, by kind."""

    seen: "Seen"
    setups: list[Line] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    spare: list[Pair] = field(default_factory=list)
    faults: dict[Any, list[Line]] = field(default_factory=dict)
    operations: dict[Any, list[Line]] = field(default_factory=dict)
    limits: dict[Any, list[Line]] = field(default_factory=dict)
    calms: list[Line] = field(default_factory=list)
    wipes: list[float] = field(default_factory=list)
    promotions: list[float] = field(default_factory=list)
    pushes: dict[str, list[Push]] = field(default_factory=dict)
    takes: dict[str, list[float]] = field(default_factory=dict)
    unknown_takes: list[float] = field(default_factory=list)
    processes: dict[str, list[Line]] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    last: float | None = None
    latest: float = 0.0

    def add(self, line: Line) -> None:
        self.latest = max(self.latest, line["at"] or 0.0)
        match line["event"]:
            case "push":
                self.pushes.setdefault(bare(line["job"]), []).append(_push(line))
            case "take":
                ats = self.unknown_takes if line["job"] is None else self.takes.setdefault(line["job"], [])
                ats.append(line["at"])
            case "process":
                self.processes.setdefault(line["id"], []).append(line)
            case "signal":
                self.signals.append(Signal(line["at"], line["process"], line["pid"], line["number"]))
            case "clocks":
                self.pairs.append((line["at"], line["wall"]))
                self.spare.append((line["at"], line.get("spare", 1.0)))
            case "client":
                self.operations.setdefault(line["id"], []).append(line)
            case "limit":
                self.limits.setdefault(line["id"], []).append(line)
            case "fault":
                self.faults.setdefault(line["id"], []).append(line)
            case "promoted":
                self.promotions.append(line["at"])
            case "wipe":
                self.wipes.append(line["at"])
            case "calm":
                self.calms.append(line)
            case "setup":
                self.setups.append(line)
            case "last":
                self.last = line["at"]

    def setup(self, folder: Path) -> Setup:
        if not self.setups:
            raise ValueError(f"{folder} holds no event 'setup': it is no history of a fault run")
        line = self.setups[0]
        return Setup(
            line["at"], line["tick"], line["queue_delay"], line.get("restart", RESTART), line.get("strict_children", True),
            tuple(line.get("secrets", ())), frozenset(line.get("poison", ())), frozenset(line.get("steady", ())),
            frozenset(line.get("repeatable", ())), frozenset(line.get("crowd", ())), line.get("longest_poll", 0.0),
            line.get("crowd_workers", 3),
        )  # fmt: skip

    def clocks(self) -> ClockMap:
        steps = [at for fault in self.all_faults() if _sets_the_clock(fault) for at in (fault.begin, fault.end)]
        return clock_map(self.pairs, steps)

    def all_faults(self) -> list[Fault]:
        """A restore took everything away between its dump and its end: in the world after it, no process was there."""
        gaps = [gap.fault for gap in self.seen.gaps]
        return sorted([*gaps, *map(_fault, self.faults.values())], key=lambda fault: fault.begin)

    def all_operations(self) -> list[Operation]:
        return sorted((_operation(parts) for parts in self.operations.values()), key=lambda operation: operation.sent)

    def all_limits(self) -> list[Declaration]:
        return sorted(_declaration(parts) for parts in self.limits.values())

    def all_calms(self) -> list[Calm]:
        """A calm that has no end lasted as long as anybody wrote."""
        found = []
        ordered = sorted(self.calms, key=lambda line: line["at"])
        for number, line in enumerate(ordered):
            if line["phase"] == "begin":
                after = ordered[number + 1]["at"] if number + 1 < len(ordered) else self.latest
                found.append(Calm(line["at"], after))
        return [calm for calm in found if calm.begin in self.seen and calm.end in self.seen]

    def lives(self) -> dict[str, Life]:
        found = {}
        for id_, parts in self.processes.items():
            at = {part["phase"]: part["at"] for part in parts}
            begin = at.get("begin", 0.0)
            found[id_] = Life(parts[0]["name"], begin, at.get("end", FOREVER))
        return found


def _run(line: Line) -> RunOfTask:
    return line["run"], line["task"]


def _gap(line: Line) -> Gap:
    return Gap(line["dumped"], line["at"], line["event"], frozenset(line.get("ends", ())))


def _push(line: Line) -> Push:
    return Push(
        line["at"], bare(line["job"]), line["answer"], line.get("delivered") is not False, line.get("description") or "",
        line.get("carrier") or line["job"],
    )  # fmt: skip


def _fault(parts: Sequence[Line]) -> Fault:
    """Its beginning and its end; what it hit is sometimes known at its end only. Without an end it lasts for ever."""
    at = {part["phase"]: part["at"] for part in parts}
    target = next((part["target"] for part in parts if part.get("target")), "")
    effects = frozenset(effect for part in parts for effect in part.get("effects") or ())
    return Fault(
        parts[0]["id"], parts[0]["kind"], target, effects, at.get("begin", at.get("end", 0.0)), at.get("end", FOREVER)
    )


def _declaration(parts: Sequence[Line]) -> Declaration:
    at, line = {part["phase"]: part["at"] for part in parts}, parts[0]
    rate = None if line["count"] is None else line["count"] / line["seconds"]
    return Declaration(
        at.get("sent", line["at"]), at.get("acked"), line["key"], line["concurrency"], rate, line["burst"] or 1
    )


def _sets_the_clock(fault: Fault) -> bool:
    return "clock" in fault.kind or any("clock" in effect for effect in fault.effects)


def _operation(parts: Sequence[Line]) -> Operation:
    """All that is known of it: the id of a registered task is known when it was answered."""
    at = {part["phase"]: part["at"] for part in parts}
    tasks = {part["task"] for part in parts if part.get("task") is not None}
    tasks |= {task for part in parts for task in part.get("tasks") or ()}
    change = {name: value for part in parts for name, value in (part.get("change") or {}).items()}
    sent = at.get("sent", min(at.values()))
    return Operation(parts[0]["op"], tuple(sorted(tasks)), change, sent, at.get("acked"), at.get("failed"))


def _history(
    folder: Path, setup: Setup, clocks: ClockMap, events: Events, trail: Trail, witnesses: Witnesses, torn: list[Torn]
) -> History:
    return History(
        folder=folder, setup=setup, last=events.last if events.seen.stopped is None else events.seen.stopped, clocks=clocks, faults=events.all_faults(),
        wipes=sorted([*events.wipes, *(at for gap in events.seen.gaps if gap.event == "restored" for at in gap[:2])]), calms=events.all_calms(), operations=events.all_operations(),
        pushes={job: sorted(pushes, key=lambda push: push.at) for job, pushes in events.pushes.items()},
        tasks=trail.tasks(), runs=trail.runs(), changed_by=trail.changed_by(), witnessed=witnesses.all(),
        stale_writes=witnesses.stale_writes, logs=sorted(folder.rglob("*.log")), torn=torn,
        final_runs=trail.final_runs, final_tasks=frozenset(trail.final_tasks), spare=sorted(events.spare),
        events=trail.events(), takes={job: sorted(ats) for job, ats in events.takes.items()},
        unknown_takes=sorted(events.unknown_takes), lives=events.lives(), signals=sorted(events.signals),
        limits=events.all_limits(), holds=witnesses.holds(), slots=trail.slots,
        stopped=events.seen.stopped, promotions=events.promotions,
        lost_ends=frozenset(run for gap in events.seen.gaps for run in gap.ends),
    )  # fmt: skip
