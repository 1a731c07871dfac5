"""Plays a timing table row by row, and reports what happened at each row and which columns differ.

As in production, two things happen by themselves: the ticker ticks regularly, and a run is forced to end when its box is
used up. Such an event gets its own line if no row mentions it and it affects later rows.
"""

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from ticker.replay.event import Event, Step
from ticker.replay.scratch import Scratch
from ticker.replay.table import Row, Table
from ticker.replay.world import Job, Taken, Ticked, World, world

NO_ROW = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """A column whose value differs from the file. `event` counts as a column."""

    column: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.column}: {self.expected} expected, {self.actual} found"


@dataclass(frozen=True, slots=True)
class Line:
    """A row as it was played: its event, and what happened. `number` is None for an event without a row."""

    number: int | None
    at: timedelta
    event: Event
    actual: str
    differences: tuple[Difference, ...] = ()

    @property
    def says(self) -> str:
        return NO_ROW if self.number is None else str(self.event)


@dataclass(frozen=True, slots=True)
class Played:
    """A table, its lines, and what the chart is drawn from: all ticks, and all jobs in the order of their push."""

    table: Table
    lines: tuple[Line, ...]
    ticks: tuple[Ticked, ...]
    jobs: tuple[Job, ...]

    @property
    def differing(self) -> list[Line]:
        return [line for line in self.lines if line.differences]

    def first_difference(self) -> str:
        """Describes the first difference in one sentence."""
        line = self.differing[0]
        where = f"at {self.table.clock(line.at)}, without a line" if line.number is None else f"line {line.number}"
        return f"{where}: {'; '.join(map(str, line.differences))}"


def play(table: Table, scratch: Scratch) -> Played:
    """Plays the whole table, even after a row that differs. Raises DatabaseUnavailable if the server goes away."""
    with world(scratch, table.timing, table.rows[0]) as here:
        player = _Player(table, here)
        for row in table.rows:
            player.pass_time(row.at)
            player.play(row)
        return Played(table, tuple(player.lines), tuple(here.ticks), tuple(here.jobs.values()))


class _Player:
    """The state of a replay."""

    def __init__(self, table: Table, world: World) -> None:
        self.lines: list[Line] = []
        self._table, self._world = table, world
        self._ticks = deque(table.silent_ticks())
        self._ends = {(row.event.names[0], row.at) for row in table.rows if row.event.what in (Step.ENDS, Step.FORCED)}
        self._drops = {(row.event.names[0], row.at) for row in table.rows if row.event.what is Step.DROPPED}
        self._given_up: dict[str, str] = {}  # reasons of jobs that a tick gave up, for the row of the same time

    def pass_time(self, until: timedelta) -> None:
        """Plays what happens by itself up to `until`. If a tick and the end of a box are due at once, the box ends first."""
        while True:
            box_ends = self._next_box_end(until)
            tick = self._ticks[0] if self._ticks and self._ticks[0] <= until else None
            if box_ends is not None and (tick is None or box_ends <= tick):
                self._force(box_ends)
            elif tick is not None:
                self._tick_silently(self._ticks.popleft())
            else:
                return

    def _next_box_end(self, until: timedelta) -> timedelta | None:
        """Returns when the box ends, or None if that is after `until` or if a row ends the run at that time."""
        running = self._world.running
        if running is None or running.box_ends > until or (running.name, running.box_ends) in self._ends:
            return None
        return running.box_ends

    def _force(self, at: timedelta) -> None:
        running = self._world.running
        assert running is not None
        self._world.end(at, forced=True)
        if not any(name == running.name for name, _ in self._ends):  # otherwise, a later row names its end
            self._add_without_row(at, Event(Step.FORCED, (running.name,)))

    def _tick_silently(self, at: timedelta) -> None:
        ticked = self._world.tick(at)
        if ticked.pushed:
            self._add_without_row(at, Event(Step.TICK, ticked.pushed))
        self._note_given_up(ticked)

    def _note_given_up(self, ticked: Ticked) -> None:
        for name, reason in ticked.given_up:
            if (name, ticked.at) in self._drops:
                self._given_up[name] = reason
            else:
                self._add_without_row(ticked.at, Event(Step.DROPPED, (name,), reason))

    def _add_without_row(self, at: timedelta, event: Event) -> None:
        self.lines.append(Line(None, at, event, str(event), (Difference("event", NO_ROW, str(event)),)))

    def play(self, row: Row) -> None:
        """Makes the row's event happen, as far as possible, and compares the result."""
        before = self._world.state().last_run
        match row.event.what:
            case Step.TICK:
                self._tick(row, before)
            case Step.BEGINS | Step.DROPPED:
                self._take(row, before)
            case Step.ENDS | Step.FORCED:
                self._compare(row, self._end(row), before)
            case Step.RUN_NOW:
                self._world.run_now(row.at)
                self._compare(row, row.event, before)
            case Step.INITIAL:
                self._compare(row, row.event, before)

    def _tick(self, row: Row, before: timedelta | None) -> None:
        ticked = self._world.tick(row.at)
        self._compare(row, Event(Step.TICK, ticked.pushed), before)
        self._note_given_up(ticked)

    def _take(self, row: Row, before: timedelta | None) -> None:
        """Lets a worker take the next job, unless a tick has just dropped the named one."""
        [name] = row.event.names
        if row.event.what is Step.DROPPED and name in self._given_up:
            taken: Taken | None = Taken(Event(Step.DROPPED, (name,), self._given_up.pop(name)), before)
        else:
            taken = self._world.take(row.at)
        if taken is None:
            self._compare(row, "no job is waiting", before)
        else:
            self._compare(row, taken.event, taken.checked, taken.numbers)

    def _end(self, row: Row) -> Event | str:
        """Ends the run if it is the named one and can end in this way now."""
        [name], running = row.event.names, self._world.running
        if running is None or running.name != name:
            return self._where(name)
        forced = row.event.what is Step.FORCED
        if forced and running.box_ends != row.at:
            return f"{name} is still running; its box ends at {self._table.clock(running.box_ends)}"
        self._world.end(row.at, forced=forced)
        return row.event

    def _where(self, name: str) -> str:
        """Describes what became of a job that is not running."""
        job = self._world.jobs.get(name)
        if job is None:
            return f"there is no {name} yet"
        if job.dropped:
            return f"{name} was dropped: {job.dropped}"
        if job.ended is None:
            return f"{name} has not begun"
        return f"{name} {'was forced to end' if job.forced else 'ended'} at {self._table.clock(job.ended)}"

    def _compare(self, row: Row, event: Event | str, checked: timedelta | None, numbers: str = "") -> None:
        """Adds a line. `checked` is the last_run that a start has read, or the one before any other event."""
        state = self._world.state()
        values = {"next_run": state.next_run, "last_run": state.last_run, "checked": checked}
        agrees = isinstance(event, Event) and row.event.allows(event)
        actual = f"{event}, {numbers}" if numbers else str(event)
        differences = [] if agrees else [Difference("event", str(row.event), actual)]
        for column, expected in row.expected.items():
            if values[column] != expected:
                clock = self._table.clock
                differences.append(Difference(column, clock(expected), clock(values[column])))
        self.lines.append(Line(row.line, row.at, row.event, actual, tuple(differences)))
