"""What happened, as the judge reads it. True time is in microseconds; `db` is the database's clock."""

from dataclasses import dataclass, field
from datetime import datetime

from tests.simulation.verdict import Job
from tests.slots import Limit
from ticker.model import Outcome


@dataclass
class Activity:
    """A run, from the reading before its start statement to the last instant at which its function was alive."""

    job: Job
    run_id: int
    token: str
    began: int
    started: int
    db: datetime
    every_ms: int
    tolerance_ms: int
    box_ms: int
    grace_ms: int
    boot: str | None = None
    ended: int | None = None
    recorded: int | None = None
    keys: tuple[str, ...] = ()
    outcome: Outcome | None = None

    @property
    def limit(self) -> int:
        """When it must be dead."""
        return self.began + (self.box_ms + self.grace_ms) * 1000


@dataclass(frozen=True)
class Push:
    """One answer of the queue, whether it reached the ticker or not."""

    t: int
    job_id: str
    answer: str


@dataclass(frozen=True)
class Advance:
    """A committed advance: which pushes the same pass had answered, and how late the task was found due."""

    t: int
    task_id: int
    job_id: str
    answered: bool
    late: float


@dataclass(frozen=True)
class Drop:
    t: int
    job: Job
    reason: str


@dataclass(frozen=True)
class Hold:
    """A run closed the key for `length` microseconds: until `until`, by the database's clock."""

    t: int
    key: str
    until: datetime
    length: int


@dataclass
class History:
    """In the order in which it happened. `complaints` are violations that an actor saw with its own eyes."""

    activities: list[Activity] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    advances: list[Advance] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    taken: list[tuple[int, str]] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    peaks: list[tuple[int, datetime]] = field(default_factory=list)  # the database's clock just before a step
    popped: set[str] = field(default_factory=set)
    abandoned: set[str] = field(default_factory=set)  # jobs of dead workers that RQ has not found yet
    wipes: list[int] = field(default_factory=list)
    waits: list[tuple[int, int, int]] = field(default_factory=list)
    limits: dict[str, list[tuple[int, Limit]]] = field(default_factory=dict)  # of each key: since when, oldest first
    holds: list[Hold] = field(default_factory=list)
    returned: dict[str, int] = field(
        default_factory=dict
    )  # jobs that met a full limit or a pause, and when they last did
    moved: dict[int, int] = field(
        default_factory=dict
    )  # when people last enabled or resumed a task, or a run moved its due time
    asked: list[tuple[int, int]] = field(default_factory=list)  # when a run asked for the next due time of a task
    complaints: list[str] = field(default_factory=list)
    lines: list[tuple[int, datetime, str]] = field(default_factory=list)
    calm_from: int = 0
    ended: int = 0

    def limit_of(self, key: str, at: int | None = None) -> Limit:
        """The limit in force then; None: now."""
        return [limit for t, limit in self.limits[key] if at is None or t <= at][-1]

    def complain(self, invariant: str, text: str) -> None:
        self.complaints.append(f"{invariant}: {text}")
