"""What the demo is judged by: all that was recorded, and one judgement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ticker.demo.mailbox import Delivery
from ticker.demo.pop3 import Retrieval
from ticker.model import Outcome, Task
from ticker.read.tasks import FullRun, RunRecord
from ticker.read.why import Why

Key = tuple[str, int]
"""A message: its mailbox and its UID there."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was to be seen, whether it was, and the numbers."""

    claim: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.ok else 'FAILED'}  {self.claim}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A channel that was deleted: at this time of the database's clock, and how many tasks it still had then."""

    mailbox: str
    at: datetime
    tasks_left: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was recorded, oldest first. `stored` has an item for each row; `tasks` those of deleted owners, too."""

    tasks: Sequence[Task] = ()
    runs: Sequence[RunRecord] = ()
    deletion: Deletion | None = None
    deliveries: Sequence[Delivery] = ()
    retrievals: Sequence[Retrieval] = ()
    stored: Sequence[Key] = ()
    failed: Mapping[int, FullRun] = field(default_factory=dict)
    """The failed runs of the feeds with all that is kept of them, by their ids."""
    whys: Mapping[int, Why] = field(default_factory=dict)
    """What `ticker why` says of the tasks that it is asked about, by their ids."""

    def task(self, run: RunRecord) -> Task:
        return next(task for task in self.tasks if task.id == run.task_id)

    def ended(self, outcome: Outcome) -> list[RunRecord]:
        return [run for run in self.runs if run.outcome == outcome]

    def deliveries_left(self, taken: Counter[Key]) -> set[Key]:
        """Mail of the deleted channel that was not taken, as it should be."""
        mailbox = self.deletion.mailbox if self.deletion else None
        return {(d.user, d.uid) for d in self.deliveries if d.user == mailbox and not taken[d.user, d.uid]}
