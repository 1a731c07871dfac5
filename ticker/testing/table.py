"""Plays a timing table through the real tick and the real start of a kit, and compares each row with what happens."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

from ticker import settings
from ticker.errors import BadInput
from ticker.model import Outcome, RunKind
from ticker.read.journal import list_runs
from ticker.read.tasks import AT_MOST, RunRecord, get
from ticker.schedules.duration import words
from ticker.tasks.fields import Task
from ticker.tasks.identity import Ref
from ticker.tasks.operations import run_now
from ticker.testing.kit import Kit
from wrappers import Run
from wrappers.pipeline import registry

EVENTS = (
    "initial state, tick enqueues A1, tick enqueues nothing, A1 begins, A1 ends, A1 is forced to end, A1 is dropped, "
    "A1 is dropped: too_early, tick enqueues nothing and A1 is dropped, run now, tick enqueues M1, A2"
)
MILLISECOND = timedelta(milliseconds=1)

_JOB = "[AM][1-9][0-9]{0,4}"
_DROP = rf"{_JOB} is dropped(?:: [a-z_]+)?"
_EVENT = re.compile(
    rf"initial state|run now|tick enqueues (?:nothing|{_JOB}(?:, {_JOB})*)(?: and {_DROP})*"
    rf"|{_JOB} (?:begins|ends|is forced to end)|{_DROP}"
)
_TIME = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5}):([0-5][0-9](?:\.[0-9]{1,3})?)")

Key = datetime | int
"""Identifies a job of the task: its occurrence, or the id of its planned run."""


def replay(kit: Kit, task: Ref, rows: Sequence[Sequence[str]]) -> list[str]:
    """Plays a timing table with a task of the kit. Returns what happened, one line for each event.

        replay(kit, task, [
            ("00:30", "tick enqueues A1", "01:30"),
            ("00:35", "A1 begins", "01:30", "00:35"),
        ])

    A row has a time since the call (MM:SS or HH:MM:SS), an event, and up to three times to compare: the task's
    `next_run` and `last_run` after the event, and the `last_run` before it, by which a start is judged. `-` stands for
    no time, and an empty text is not compared. A1, A2, ... are the scheduled jobs, and M1, M2, ... the manual ones.

    The ticker ticks only in rows that say so. The task's function is not called: a run lasts until the row of its end,
    or until its box is used up. No row can name a job of another task, so no other task of the kit should be due.

    Raises AssertionError if a row differs, with all rows and what happened instead. Raises BadInput if a row is not
    valid, before anything is played.
    """
    __tracebackhide__ = True
    table = _Replay(kit, get(kit.db, task), list(read(rows)))
    table.play()
    if not all(line.agrees for line in table.lines):
        raise AssertionError("\n".join(["the table differs (- expected, + happened):", *table.texts()]))
    return [text[2:] for text in table.texts()]


class _Row(NamedTuple):
    """A row, with times since the call. `times` are next_run, last_run and the last_run before; "" is not compared."""

    at: timedelta
    event: str
    times: tuple[timedelta | str, ...]


class _Line(NamedTuple):
    """What happened, and its row, if it has one. Numbers in parentheses after the event are not compared."""

    expected: _Row | None
    actual: _Row

    @property
    def agrees(self) -> bool:
        if self.expected is None or self.expected.times != self.actual.times:
            return False
        event = self.actual.event.partition(" (")[0]
        return self.expected.event in (event, event.partition(":")[0])


class _State(NamedTuple):
    """The task, its jobs in the queue, and the records of its dropped jobs."""

    task: Task
    queued: tuple[Key, ...]
    dropped: dict[Key, RunRecord]


def read(rows: Sequence[Sequence[str]]) -> Iterator[_Row]:
    """Yields the rows. Raises BadInput with the number of a row that is not valid."""
    before = timedelta(0)
    for number, row in enumerate(rows):
        field = f"rows[{number}]"
        if isinstance(row, str) or not 2 <= len(row) <= 5:
            raise BadInput(field, str(row), "is not a row; write (time, event), and up to three times after them")
        at, event, times = _time(field, row[0]), " ".join(row[1].split()), [*row[2:], "", "", ""][:3]
        if not _EVENT.fullmatch(event):
            raise BadInput(field, event, f"is not an event; write one of: {EVENTS}")
        if at < before:
            raise BadInput(field, row[0], "is earlier than the row before; write rows in the order of their times")
        before = at
        yield _Row(at, event, tuple(text if text in ("", "-") else _time(field, text) for text in times))


def _time(field: str, text: str) -> timedelta:
    if not (match := _TIME.fullmatch(text)):
        raise BadInput(field, text, "is not a time; write MM:SS or HH:MM:SS, such as 01:30")
    return timedelta(hours=int(match[1] or 0), minutes=int(match[2]), seconds=float(match[3]))


def _clock(at: timedelta | str) -> str:
    """Formats a time as `_time` reads it."""
    if isinstance(at, str):
        return at
    seconds, rest = divmod(abs(at), timedelta(seconds=1))
    minutes, second = divmod(seconds, 60)
    head = f"{minutes // 60:02}:{minutes % 60:02}" if minutes >= 60 else f"{minutes:02}"
    decimals = f".{rest // MILLISECOND:03}".rstrip("0") if rest else ""
    return f"{'-' if at < timedelta(0) else ''}{head}:{second:02}{decimals}"


class _Replay:
    """Plays the rows. While a run is at work, its body plays the rows that follow, up to its end."""

    def __init__(self, kit: Kit, task: Task, rows: Sequence[_Row]) -> None:
        self.lines: list[_Line] = []
        self._kit, self._task_id, self._function, self._zero = kit, task.id, task.function, kit.now
        self._rows, self._names = deque(rows), dict[Key, str]()
        self._start: _Row | None = None  # the row of a start, until it is answered
        self._end: _Row | None = None  # the row that ended the last run
        self._state = self._look()

    def play(self) -> None:
        config = settings.from_environment()
        registry.load(config.tasks, config.functions)  # before each run, a worker imports those that are missing
        body = registry.Function(self._function, registry.Step.of(self._body), None, "", "", 1, 1, False, {})
        with patch.dict(registry.functions(), {self._function: body}):
            while self._rows:
                self._play(self._rows.popleft())

    def _play(self, row: _Row) -> None:
        self._kit.move(to=self._zero + row.at)
        match row.event.replace(":", "").split()[:3]:
            case ["tick", *_]:
                self._note(row, self._tick())
            case [_, "begins"] | [_, "is", "dropped"]:
                self._take(row)
            case [name, "ends"] | [name, "is", "forced"]:
                self._note(row, f"{name} is not running")
            case _:
                if row.event == "run now":
                    run_now(self._kit.db, self._task_id)
                self._note(row, row.event)

    def _tick(self) -> str:
        """Makes a pass of the ticker. Returns what it did to the task."""
        self._kit.tick()
        after = self._look()
        pushed = [self._name(key) for key in after.queued if key not in self._state.queued]
        return " and ".join([f"tick enqueues {', '.join(pushed) or 'nothing'}", *self._drops(after)])

    def _take(self, row: _Row) -> None:
        """Lets the worker take the next job. If the job may start, the body plays on before this returns."""
        self._start, self._end = row, None
        self._kit.work(at_most=1, raises=True)
        if self._end is not None:
            self._note(self._end, self._end.event)
        if self._start is not None:
            self._start = None
            self._note(row, " and ".join(self._drops(self._look())) or "no job of the task starts")

    def _body(self, run: Run, **_: Any) -> None:
        """Stands for the task's function."""
        name = self._name(_key(run))
        row, self._start = self._start, None
        self._note(row, f"{name} begins")
        box_ends = self._kit.now + timedelta(seconds=run.quota.remaining) - self._zero
        while self._rows:
            row = self._rows[0]
            self._kit.move(to=self._zero + min(row.at, box_ends))
            if row.at > box_ends and run.quota.exceeded:
                self._note(None, f"{name} is forced to end")
                return
            self._rows.popleft()
            is_forced = row.event == f"{name} is forced to end"
            if row.event == f"{name} ends" or (is_forced and run.quota.exceeded):
                self._end = row
                return
            if is_forced:
                self._note(row, f"{name} may run until {_clock(box_ends)}")
            else:
                self._play(row)

    def _look(self) -> _State:
        task = get(self._kit.db, self._task_id)
        runs = list_runs(self._kit.db, task=task, limit=AT_MOST)[::-1]
        planned = [run.id for run in runs if run.kind is not RunKind.SCHEDULED and run.state == "pushed"]
        dropped = {_key(run): run for run in runs if run.outcome is Outcome.DROPPED}
        return _State(task, (*planned, *task.waiting), dropped)

    def _drops(self, after: _State) -> list[str]:
        """Returns an event for each job that has been dropped since the last line."""
        new = [(key, run) for key, run in after.dropped.items() if key not in self._state.dropped]
        return [f"{self._name(key)} is dropped: {run.reason}{_numbers(run)}" for key, run in new]

    def _name(self, key: Key) -> str:
        letter = "A" if isinstance(key, datetime) else "M"
        count = sum(name.startswith(letter) for name in self._names.values())
        return self._names.setdefault(key, f"{letter}{count + 1}")

    def _note(self, row: _Row | None, event: str) -> None:
        """Adds a line for what has just happened, with those times that the row compares."""
        before, self._state = self._state, self._look()
        times = (self._state.task.next_run, self._state.task.last_run, before.task.last_run)
        compared = ("", "", "") if row is None else row.times
        since = ("-" if time is None else time - self._zero for time in times)
        actual = tuple("" if cell == "" else at for cell, at in zip(compared, since, strict=True))
        self.lines.append(_Line(row, _Row(self._kit.now - self._zero, event, actual)))

    def texts(self) -> list[str]:
        """Returns the lines as a diff. Leaves out columns that are empty."""
        marked = list[tuple[str, _Row]]()
        for line in self.lines:
            if line.expected and not line.agrees:
                marked.append(("- ", line.expected))
            marked.append(("  " if line.agrees else "+ ", line.actual))
        rows = [[_clock(row.at), row.event, *map(_clock, row.times)] for _, row in marked]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width) for row in rows]
        return [(mark + text).rstrip() for (mark, _), text in zip(marked, texts, strict=True)]


def _key(run: Run | RunRecord) -> Key:
    return run.id if run.kind is not RunKind.SCHEDULED or run.occurrence is None else run.occurrence


def _numbers(run: RunRecord) -> str:
    """Returns how much too early a start was, as in the log of a worker."""
    return "" if run.early_ms is None else f" ({words(run.early_ms)} early)"
