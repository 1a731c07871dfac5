"""Witness files: a million beats, of which only the edges of each run are kept."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.faults.facts import Begin, HoldOff, StaleWrite, Witnessed
from tests.faults.trail import micros

FIRST, LAST, LAST_OWN = range(3)


class Witnesses:
    """`strict_children` False leaves out what children of a run say: a stock worker does not kill them."""

    def __init__(self, *, strict_children: bool) -> None:
        self._strict_children = strict_children
        self._edges: dict[int, list[float]] = {}
        self._tasks: dict[int, int] = {}
        self._begins: dict[int, list[Begin]] = {}
        self._returned: dict[int, float] = {}
        self._deeds: dict[int, str] = {}
        self._holds: dict[int, HoldOff] = {}
        self.stale_writes: list[StaleWrite] = []

    def add_file(self, lines: Iterable[Mapping[str, Any]]) -> None:
        for line in lines:
            is_child = line.get("child", False)
            if is_child and not self._strict_children:
                continue
            self._widen(line["run"], line["at"], is_child)
            event = line["event"]
            if event == "begin":
                self._tasks[line["run"]] = line["task"]
                self._begins.setdefault(line["run"], []).append(_begin(line))
            elif event == "stale_write":
                self.stale_writes.append(StaleWrite(line["at"], line["task"], line["run"], line["result"]))
            else:
                self._tasks.setdefault(line["run"], line["task"])
                if event == "does":
                    self._deeds[line["run"]] = line["deed"]
                if event == "holds":
                    self._holds[line["run"]] = HoldOff(line["at"], line["run"], line["key"], line["seconds"], None)
                if event == "held" and line["run"] in self._holds:
                    self._holds[line["run"]] = self._holds[line["run"]]._replace(held=line["at"])
                if event == "end" and not is_child:
                    self._returned[line["run"]] = line["at"]

    def _widen(self, run: int, at: float, is_child: bool) -> None:
        edges = self._edges.get(run)
        if edges is None:
            edges = self._edges[run] = [at, at, at if not is_child else float("-inf")]
        elif at < edges[FIRST]:
            edges[FIRST] = at
        if at > edges[LAST]:
            edges[LAST] = at
        if not is_child and at > edges[LAST_OWN]:
            edges[LAST_OWN] = at

    def holds(self) -> list[HoldOff]:
        return sorted(self._holds.values())

    def all(self) -> dict[int, Witnessed]:
        return {
            run: Witnessed(
                run,
                self._tasks.get(run, 0),
                tuple(sorted(self._begins.get(run, ()), key=_when)),
                *edges,
                self._returned.get(run),
                self._deeds.get(run, ""),
            )
            for run, edges in self._edges.items()
        }


def _when(begin: Begin) -> float:
    return begin.at


def _begin(line: Mapping[str, Any]) -> Begin:
    return Begin(
        line["at"],
        line["pid"],
        line["token"],
        micros(line["occurrence"]),
        line["function"],
        line["kwargs"],
        line["box"],
        line.get("process", ""),
    )
