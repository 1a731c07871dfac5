"""What a spectator sees while the demo runs: a live table on a terminal, else one line per event."""

from collections import deque
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ticker.demo.chart import clock
from ticker.demo.watch import Watch
from ticker.model import Outcome, Task
from ticker.read.tasks import RunRecord

EVENTS = 10  # below the table
COLOURS: dict[str, str] = {"running": "", "-": "", "gone": "", Outcome.SUCCEEDED: "green", Outcome.PARTIAL: "yellow"}


class Show:
    """Inside the `with` block a terminal shows the table and the last events; behind it, and elsewhere, lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._stack = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = self._stack.enter_context(Live(console=self._console, auto_refresh=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live = None
        self._stack.__exit__(kind, error, trace)

    def say(self, line: str = "") -> None:
        """Shows a line."""
        if self._live is None:
            self._console.print(Text(line), soft_wrap=True)
        else:
            self._events.append(line)

    def refresh(self, watch: Watch, now: datetime, zero: datetime) -> None:
        """Draws the table as the tasks are now."""
        if self._live is not None:
            events = Text("\n".join(self._events), no_wrap=True, overflow="ellipsis")
            self._live.update(Group(tasks(watch, now, zero), events), refresh=True)


def tasks(watch: Watch, now: datetime, zero: datetime) -> Table:
    """The live table; times are MM:SS since `zero`."""
    table = Table("task", "owner", "next run", "last run", "outcome", "waiting", title=clock(now, zero))
    for task in watch.tasks.values():
        gone = task.id in watch.gone
        state = "gone" if gone else "running" if task.running_until else task.last_outcome or "-"
        table.add_row(
            task.name,
            f"{task.subject} ({task.owner.rpartition('.')[2]})",
            "-" if gone else clock(task.next_run, zero),
            clock(task.last_run, zero),
            Text(state, style=COLOURS.get(state, "red")),
            "" if gone else "▮" * len(task.waiting),
            style="dim" if gone else "",
        )
    return table


def ended(run: RunRecord, task: Task, zero: datetime) -> str:
    """A run's or a drop's end as one line."""
    facts = [run.reason, "" if run.result is None else f"result {run.result}"]
    took = f"{(run.ended_at - run.started_at).total_seconds():.2f} s" if run.started_at and run.ended_at else ""
    details = ", ".join(fact for fact in [took, *facts] if fact)
    return f"{clock(run.ended_at, zero)}  {task.subject:8} {task.name:23} {run.outcome:9} {details}"
