"""Plays a timing table row by row, and says of each row what happened, and which columns differ.

Two things happen by themselves, as they would in production: the ticker ticks every so often, and a run is forced to
end when its box is used up. What of this no row speaks of, and would change what follows, is a line of its own.
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
    """A column in which the file and the truth differ; `event` is one, too."""

    column: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.column}: {self.expected} expected, {self.found} found"


@dataclass(frozen=True, slots=True)
class Line:
    """One row as it was played: the event that it says, and what happened. `number` None: it happened without a row."""

    number: int | None
    at: timedelta
    event: Event
    found: str
    differences: tuple[Difference, ...] = ()

    @property
    def says(self) -> str:
        return NO_ROW if self.number is None else str(self.event)


@dataclass(frozen=True, slots=True)
class Played:
    """A table, its lines, and what they are drawn from: all ticks, and all jobs in the order of their push."""

    table: Table
    lines: tuple[Line, ...]
    ticks: tuple[Ticked, ...]
    jobs: tuple[Job, ...]

    @property
    def differing(self) -> list[Line]:
        return [line for line in self.lines if line.differences]

    def first_difference(self) -> str:
        """In one sentence."""
        line = self.differing[0]
        place = f"at {self.table.clock(line.at)}, without a line" if line.number is None else f"line {line.number}"
        return f"{place}: {'; '.join(map(str, line.differences))}"


def play(table: Table, scratch: Scratch) -> Played:
    """Plays the whole table, also behind a row that differs. DatabaseUnavailable if the server goes away."""
    with world(scratch, table.timing, table.rows[0]) as found:
        player = _Player(table, found)
        for row in table.rows:
            player.pass_time(row.at)
            player.play(row)
        return Played(table, tuple(player.lines), tuple(found.ticks), tuple(found.jobs.values()))


class _Player:
    """Where a replay has come to."""

    def __init__(self, table: Table, world: World) -> None:
        self.lines: list[Line] = []
        self._table, self._world = table, world
        self._ticks = deque(table.silent_ticks())
        self._ends = {(row.event.names[0], row.at) for row in table.rows if row.event.what in (Step.ENDS, Step.FORCED)}
        self._drops = {(row.event.names[0], row.at) for row in table.rows if row.event.what is Step.DROPPED}
        self._given_up: dict[str, str] = {}  # by a tick, for the row of this very time that says so

    def pass_time(self, until: timedelta) -> None:
        """What happens by itself up to `until`: the box before the tick, where both are due at once."""
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
        """None, too, where a row ends the run in that instant."""
        running = self._world.running
        if running is None or running.box_ends > until or (running.name, running.box_ends) in self._ends:
            return None
        return running.box_ends

    def _force(self, at: timedelta) -> None:
        running = self._world.running
        assert running is not None
        self._world.end(at, forced=True)
        if not any(name == running.name for name, _ in self._ends):  # such a row will say when it ended
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

    def _add_without_row(self, at: timedelta, found: Event) -> None:
        self.lines.append(Line(None, at, found, str(found), (Difference("event", NO_ROW, str(found)),)))

    def play(self, row: Row) -> None:
        """Makes the row's event happen, as far as it can, and compares."""
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
        """A worker takes the next job, whichever that is; unless a tick has just dropped the one that is named."""
        [name] = row.event.names
        if row.event.what is Step.DROPPED and name in self._given_up:
            taken: Taken | None = Taken(Event(Step.DROPPED, (name,), self._given_up.pop(name)), before)
        else:
            taken = self._world.take(row.at)
        if taken is None:
            self._compare(row, "no job waits", before)
        else:
            self._compare(row, taken.event, taken.checked, taken.numbers)

    def _end(self, row: Row) -> Event | str:
        """Ends the run, if it is the one that is named, and if this is when it can end so."""
        [name], running = row.event.names, self._world.running
        if running is None or running.name != name:
            return self._where(name)
        forced = row.event.what is Step.FORCED
        if forced and running.box_ends != row.at:
            return f"{name} still runs, its box ends at {self._table.clock(running.box_ends)}"
        self._world.end(row.at, forced=forced)
        return row.event

    def _where(self, name: str) -> str:
        """What became of a job that does not run."""
        job = self._world.jobs.get(name)
        if job is None:
            return f"there is no {name} yet"
        if job.dropped:
            return f"{name} was dropped: {job.dropped}"
        if job.ended is None:
            return f"{name} has not begun"
        return f"{name} {'was forced to end' if job.forced else 'ended'} at {self._table.clock(job.ended)}"

    def _compare(self, row: Row, found: Event | str, checked: timedelta | None, numbers: str = "") -> None:
        """One line; `checked` is the last_run that a start has read, or as it was before any other event."""
        state = self._world.state()
        values = {"next_run": state.next_run, "last_run": state.last_run, "checked": checked}
        agrees = isinstance(found, Event) and row.event.allows(found)
        told = f"{found}, {numbers}" if numbers else str(found)
        differences = [] if agrees else [Difference("event", str(row.event), told)]
        for column, expected in row.expected.items():
            if values[column] != expected:
                clock = self._table.clock
                differences.append(Difference(column, clock(expected), clock(values[column])))
        self.lines.append(Line(row.line, row.at, row.event, told, tuple(differences)))
