"""Histories written by hand, for tests of the checker: what a harness would write, call by call, in seconds since 0.

    book = Book(folder)
    task = book.task(every=10)
    run = book.round(task, at=0)      # pushed, noted, started, ended
    assert broken(book) == set()

Calls are made in the order of their times. Whatever is not said is well behaved.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.faults.checks import check, judge
from tests.faults.facts import FOREVER, History
from tests.faults.history import load

EPOCH = 1_790_000_000.0  # what the database's clock shows at second 0
FUNCTION = "poll.plain"


class Book:
    def __init__(self, folder: Path, **setup: Any) -> None:
        self._folder = folder
        self._files: dict[str, list[str]] = {}
        self._setup: dict[str, Any] = {
            "tick": 1.0,
            "seed": 1,
            "minutes": 1,
            "queue_delay": 2.0,
            "restart": 3.0,
            "secrets": [],
        } | setup
        self._tasks: dict[int, dict[str, Any]] = {}
        self._notes: list[dict[str, Any]] = []
        self._runs: dict[int, dict[str, Any]] = {}
        self._xid = self._seq = self._ids = 0
        self._shift = 0.0  # of the database's clock
        self._last = True
        (folder / "witness").mkdir(parents=True)
        self.clocks(0.0)

    # ---------------------------------------------------------------------------------------- the harness, the client

    def clocks(self, at: float, *, shift: float | None = None) -> None:
        """A pair of clocks; `shift` sets the database's clock so many seconds off from here on."""
        self._shift = self._shift if shift is None else shift
        self.event("clocks", at, wall=self.wall(at))

    def event(self, event: str, at: float, *, file: str = "events.jsonl", **more: Any) -> None:
        self.line(file, json.dumps({"at": at, "event": event, **more}))

    def line(self, file: str, text: str) -> None:
        """One line as it is; of a log, or torn."""
        self._files.setdefault(file, []).append(text)

    def fault(self, kind: str, begin: float, end: float | None = None, *effects: str) -> None:
        about: dict[str, Any] = {"id": len(self._files["events.jsonl"]), "kind": kind, "effects": effects}
        self.event("fault", begin, phase="begin", target=None, **about)
        self.event("fault", begin if end is None else end, phase="end", target="x", **about)

    def wipe(self, at: float) -> None:
        self.event("wipe", at)

    def calm(self, begin: float, end: float) -> None:
        self.event("calm", begin, phase="begin")
        self.event("calm", end, phase="end")

    def client(self, op: str, task: int, sent: float, acked: float | None = None, **more: Any) -> None:
        """Without `acked` it failed, 0.1 s after it was sent."""
        about = {"op": op, "id": len(self._files["events.jsonl"]), "task": task, "tasks": [], "owner": None, **more}
        self.event("client", sent, phase="sent", **about)
        phase, answered = ("failed", sent + 0.1) if acked is None else ("acked", acked)
        self.event("client", answered, phase=phase, **about)

    def limit(self, key: str, sent: float, acked: float | None = None, **limit: Any) -> None:
        """A declaration; answered 0.01 s after it was sent, unless it is said when. FOREVER: never."""
        columns = {"concurrency": None, "count": None, "seconds": 1, "burst": None} | limit
        about = {"id": len(self._files["events.jsonl"]), "key": key, **columns}
        self.event("limit", sent, phase="sent", **about)
        if acked != FOREVER:
            self.event("limit", sent + 0.01 if acked is None else acked, phase="acked", **about)

    # ------------------------------------------------------------------------------------------------------- the rows

    def wall(self, at: float) -> float:
        return EPOCH + at + self._shift

    def task(self, at: float = 0.0, *, every: float = 10.0, **columns: Any) -> int:
        """A new interval task, due at once: T = I/20, B = I/2, g = 0.1 s."""
        self._ids += 1
        row = {
            "id": self._ids, "function": FUNCTION, "kwargs": {"box": 1}, "kind": "interval",
            "every_ms": round(every * 1000), "tolerance_ms": round(every * 50), "box_ms": round(every * 500), "grace_ms": 100,
            "enabled": True, "owner_active": True, "paused_by": None, "paused_until": None, "next_run": self.wall(at),
            "waiting": [], "push_after": None, "push_errors": 0, "last_run": None, "last_occurrence": None,
            "run_token": None, "running_until": None, "cursor": None, "last_run_id": None, "last_outcome": None,
            "updated_at": self.wall(at), "failures": 0, "retries": 0, "alone_until": None,
            "every_most_ms": None, "pace_ms": None, "again_at": None, "queue": "polling", "group_name": "", "owner_type": "",
            "limits": None, "pause_id": None, "resumed_at": None, "waits_again": None, "enough_jobs_event": None,
        }  # fmt: skip
        self._tasks[self._ids] = row | columns
        self._change("tasks", "I", at, self._ids, None, dict(self._tasks[self._ids]))
        return self._ids

    def slot(self, key: str, run: int, until: float, *, n: int = 1) -> None:
        """A place that is taken at the end."""
        row = {"key": key, "kind": "run", "n": n, "token": self._runs[run]["token"], "until": self.wall(until)}
        self.line("database.jsonl", json.dumps({"at": None, "event": "slot", "row": row}))

    def change(self, task: int, at: float, *, xid: int | None = None, **columns: Any) -> None:
        """An update of the task's row by anybody."""
        row = self._tasks[task]
        new = {column: value for column, value in columns.items() if row[column] != value}
        old = {column: row[column] for column in new}
        row.update(new)
        self._change("tasks", "U", at, task, old, new, xid)

    def edit(self, task: int, at: float, **columns: Any) -> None:
        """An update by people."""
        self.change(task, at, updated_at=self.wall(at), **columns)

    def delete(self, task: int, at: float, *, recorded: bool = True) -> None:
        """With a record of each occurrence that waits, in the same transaction."""
        row = self._tasks.pop(task)
        self._change("tasks", "D", at, task, row, None)
        for occurrence in row["waiting"] if recorded else ():
            self._drop(task, occurrence, at, self._xid, outcome="dropped", reason="gone", job_id=None)

    def note(self, what: str, at: float, task: int = 0, run: int | None = None, words: str = "") -> None:
        """A row of `events`."""
        row = {"id": len(self._notes) + 1, "at": self.wall(at), "task_id": task, "what": what, "run_id": run}
        self._notes.append(row | {"words": words})

    def process(self, id_: str, begin: float, end: float | None = None) -> None:
        """A start of a supervised process: "worker-1#3"."""
        for phase, at in (("begin", begin), ("end", end)):
            if at is not None:
                self.event("process", at, phase=phase, id=id_, name=id_.partition("#")[0])

    def signal(self, process: str, at: float, number: int, pid: int = 99) -> None:
        self.event("signal", at, process=process, pid=pid, number=number)

    def take(self, job: str | None, at: float) -> None:
        """A worker got this job; None: nobody knows which."""
        self.event("take", at, file="redis.jsonl", job=job)

    def occurrence(self, at: float) -> int:
        return round(self.wall(at) * 1_000_000)

    def push(
        self,
        task: int,
        due: float,
        at: float,
        answer: str | None = "stored",
        *,
        delivered: bool = True,
        prefix: str = "",
        **more: Any,
    ) -> None:
        job = f"{prefix}t{task}-{self.occurrence(due)}"
        self.pushed(job, at, answer, delivered=delivered, **more)

    def pushed(self, job: str, at: float, answer: str | None = "stored", **more: Any) -> None:
        self.event(
            "push",
            at,
            file="redis.jsonl",
            job=job,
            answer=answer,
            **{"delivered": True, "description": FUNCTION} | more,
        )

    def advance(self, task: int, due: float, at: float) -> None:
        """The row's side of a push."""
        row = self._tasks[task]
        waiting, following = [*row["waiting"], self.wall(due)], self.wall(at) + row["every_ms"] / 1000
        self.change(task, at, waiting=waiting, next_run=following)

    def start(self, task: int, due: float | None, at: float, *, begins: bool = True, **columns: Any) -> int:
        """A run that starts, and whose function begins 10 ms later; `due` None makes it a manual one. `columns` are
        those of `runs`."""
        row, occurrence = self._tasks.get(task), None if due is None else self.wall(due)
        changes = {} if row is None else self._taken(row, occurrence, at, columns.get("token"))
        run = self._record(task, occurrence, at, changes, columns)
        if row is not None:
            self.change(task, at, xid=self._xid, **changes)
        if begins:
            self.begin(run, at + 0.01)
        return run

    def _taken(self, row: dict[str, Any], occurrence: float | None, at: float, token: str | None) -> dict[str, Any]:
        hold = (row["box_ms"] + row["grace_ms"]) / 1000
        taken = {"run_token": token or f"token-{self._ids + 1}", "running_until": self.wall(at) + hold}
        if occurrence is None:
            return taken
        waiting = [other for other in row["waiting"] if other != occurrence]
        return taken | {"waiting": waiting, "last_run": self.wall(at), "last_occurrence": occurrence}

    def _record(
        self, task: int, occurrence: float | None, at: float, taken: dict[str, Any], columns: dict[str, Any]
    ) -> int:
        self._ids += 1
        row = self._tasks.get(task, {})
        self._runs[self._ids] = {
            "id": self._ids, "task_id": task, "kind": "manual" if occurrence is None else "scheduled",
            "occurrence": occurrence, "attempt": 1, "parent_id": None, "state": "running", "outcome": None, "reason": "",
            "traceback": "", "token": taken.get("run_token", f"token-{self._ids}"), "function": row.get("function", ""),
            "started_at": self.wall(at), "until": taken.get("running_until", self.wall(at) + 1),
            "every_ms": row.get("every_ms", 1000), "tolerance_ms": row.get("tolerance_ms", 50),
            "job_id": f"r{self._ids}" if occurrence is None else f"t{task}-{round(occurrence * 1_000_000)}",
        } | columns  # fmt: skip
        self._xid += 1
        self._change("runs", "I", at, self._ids, None, dict(self._runs[self._ids]), self._xid)
        return self._ids

    def end(self, run: int, at: float, outcome: str = "succeeded", *, witnessed: bool = True, **columns: Any) -> None:
        """The run's own end, fenced by its token: the hold is given back."""
        if witnessed:
            self.witness("end", run, at - 0.001)
        self.close(run, at, outcome, **columns)
        task = self._runs[run]["task_id"]
        if task in self._tasks:
            freed = {"run_token": None, "running_until": None, "last_run_id": run, "last_outcome": outcome}
            self.change(task, at, xid=self._xid, **freed)

    def close(self, run: int, at: float, outcome: str, **columns: Any) -> None:
        """The record alone."""
        self._xid += 1
        new = {"state": "ended", "outcome": outcome} | columns
        old = {column: self._runs[run].get(column) for column in new}
        self._runs[run] |= new
        self._change("runs", "U", at, run, old, new, self._xid)

    def drop(
        self, task: int, due: float, at: float, reason: str, outcome: str = "dropped", *, by_sweep: bool = False
    ) -> int:
        """By a worker, whose job it had; or by the sweep of a ticker."""
        self._xid += 1
        job = None if by_sweep else f"t{task}-{self.occurrence(due)}"
        run = self._drop(task, self.wall(due), at, self._xid, outcome=outcome, reason=reason, job_id=job)
        if task in self._tasks:
            waiting = [other for other in self._tasks[task]["waiting"] if other != self.wall(due)]
            self.change(task, at, xid=self._xid, waiting=waiting)
        return run

    def _drop(self, task: int, occurrence: float, at: float, xid: int, **columns: Any) -> int:
        self._ids += 1
        self._runs[self._ids] = {
            "id": self._ids, "task_id": task, "kind": "scheduled", "occurrence": occurrence, "attempt": 1, "state": "ended",
            "every_ms": self._tasks.get(task, {}).get("every_ms"),
        } | columns  # fmt: skip
        self._change("runs", "I", at, self._ids, None, dict(self._runs[self._ids]), xid)
        return self._ids

    def plan(self, task: int, at: float) -> int:
        """A manual run that is pushed, and has not started."""
        self._ids += 1
        self._runs[self._ids] = {"id": self._ids, "task_id": task, "kind": "manual", "state": "pushed", "outcome": None}
        self._change("runs", "I", at, self._ids, None, dict(self._runs[self._ids]))
        self.pushed(f"r{self._ids}", at)
        return self._ids

    def again(self, run: int, at: float) -> None:
        """A planned run starts, 10 ms before its function begins."""
        row = self._tasks[self._runs[run]["task_id"]]
        taken = self._taken(row, None, at, f"token-{run}")
        new = {"state": "running", "started_at": self.wall(at), "until": taken["running_until"], "token": f"token-{run}",
               "job_id": f"r{run}", "function": row["function"], "occurrence": None, "every_ms": row["every_ms"],
               "tolerance_ms": row["tolerance_ms"], "attempt": 1}  # fmt: skip
        self._xid += 1
        self._runs[run] |= new
        self._change("runs", "U", at, run, {}, new, self._xid)
        self.change(row["id"], at, xid=self._xid, **taken)
        self.begin(run, at + 0.01)

    def round(self, task: int, at: float, *, lasts: float = 0.1) -> int:
        """A whole life of one occurrence: due, pushed and started at `at`; brought there by hand if it is not due then."""
        if self._tasks[task]["next_run"] != self.wall(at):
            self.edit(task, at, next_run=self.wall(at))
        self.push(task, at, at)
        self.advance(task, at, at)
        run = self.start(task, at, at)
        self.end(run, at + lasts)
        return run

    def rounds(self, task: int, *ats: float) -> None:
        for at in ats:
            self.round(task, at)

    # -------------------------------------------------------------------------------------------------- the witnesses

    def begin(self, run: int, at: float, **more: Any) -> None:
        row = self._runs[run]
        task = self._tasks.get(row["task_id"], {})
        said = {
            "token": row["token"], "occurrence": row["occurrence"], "function": row["function"],
            "kwargs": task.get("kwargs", {}), "box": task.get("box_ms", 1000) / 1000,
        }  # fmt: skip
        self.witness("begin", run, at, **said | more)

    def witness(self, event: str, run: int, at: float, *, child: bool = False, **more: Any) -> None:
        task = more.pop("task", 0) or self._runs[run]["task_id"]
        pid = more.pop("pid", 2 if child else 1)
        self.event(event, at, file=f"witness/{pid}.jsonl", task=task, run=run, pid=pid, child=child, **more)

    # ---------------------------------------------------------------------------------------------------- and the end

    def copy(self) -> Any:
        """What the database holds now."""
        return deepcopy((self._files["database.jsonl"], self._tasks, self._runs, self._ids, self._notes))

    def put_away(self, name: str, dump: Any) -> None:
        """The database is exported under this name, and an older copy takes its place."""
        self._files[name] = [*self._files["database.jsonl"], *map(json.dumps, self._rows())]
        self._files["database.jsonl"], self._tasks, self._runs, self._ids, self._notes = deepcopy(dump)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for kind, rows in (("task", self._tasks.values()), ("run", self._runs.values()), ("noted", self._notes)):
            yield from ({"at": None, "event": kind, "row": row} for row in rows)

    def never_ends(self) -> None:
        self._last = False

    def history(self, *, end: float = 1000.0) -> History:
        """Written to the folder, and read from it."""
        self.clocks(end)
        self.event("setup", 0.0, **self._setup)
        if self._last:
            self.event("last", end)
        for row in self._rows():
            self.line("database.jsonl", json.dumps(row))
        for name, lines in self._files.items():
            (self._folder / name).write_text("\n".join(lines) + "\n")
        return load(self._folder)

    def _change(self, table: str, op: str, at: float, id_: int, old: Any, new: Any, xid: int | None = None) -> None:
        self._seq += 1
        if xid is None:
            self._xid += 1
        line = {"table": table, "op": op, "seq": self._seq, "xid": xid or self._xid, "clock": self.wall(at), "id": id_}
        self.line("database.jsonl", json.dumps({"at": None, "event": "row", **line, "old": old, "new": new}))


def broken(book: Book) -> set[str]:
    """The promises that the history breaks."""
    return {violation.invariant for violation in check(book.history())}


def judged(book: Book, name: str) -> int:
    """How many facts the check of this promise had to judge."""
    return judge(book.history())[name].facts


def excused(book: Book, name: str) -> list[str]:
    """The exemptions that the check of this promise made."""
    return list(judge(book.history())[name].excused)
