"""Reads how many workers each queue needs, as a ticker has measured it, and how many listen."""

import json
import math
from dataclasses import dataclass
from datetime import datetime

from ticker.db.steps import Steps, reads
from ticker.read.explain import ago
from ticker.schedules.duration import SECOND
from ticker.tasks.rows import query

OLD = 900  # seconds: a ticker measures the needs every two minutes
BUSY = 0.7  # the share of time for which enough workers are busy


@dataclass(frozen=True, slots=True)
class FunctionDemand:
    """The demand for one function in a queue. Its durations are None if they are unknown."""

    name: str
    starts_per_minute: float
    concurrency: int
    mean_ms: int | None
    p95_ms: int | None


@dataclass(frozen=True, slots=True)
class Need:
    """How many workers a queue needs, as of `at`. `age_ms` is how long ago that was.

    `average` workers are busy on average with functions of known durations. `enough` workers are busy for 70% of the time
    at most, and start within two ticks what is due at once; None if functions of unknown durations may need more than
    one worker, and 1 if no worker could have measured them. `peak` is the largest `enough` of the last day. `listening`
    is None if no ticker has counted the workers. A worker that listens to other queues, too, counts in `available` for
    its share.
    """

    queue: str
    at: datetime
    age_ms: int
    average: float
    enough: int | None
    peak: int | None
    listening: int | None
    busy: int | None
    available: float | None
    functions: tuple[FunctionDemand, ...]

    @property
    def unknown(self) -> list[str]:
        """Returns the functions without any measured duration."""
        return [one.name for one in self.functions if one.mean_ms is None]

    @property
    def is_old(self) -> bool:
        return not 0 <= self.age_ms <= OLD * SECOND

    @property
    def has_too_few(self) -> bool:
        """Returns whether jobs are late, or soon will be, because too few workers listen."""
        known = self.enough is not None and self.available is not None
        return known and not self.is_old and self.available + 0.01 < self.enough  # type: ignore[operator]

    @property
    def is_overloaded(self) -> bool:
        """Returns whether the workers cannot do the work even if it were spread evenly."""
        return self.has_too_few and self.average > (self.available or 0)

    @property
    def missing(self) -> int:
        """Returns how many more workers of this queue alone would be enough now. 0 if the numbers are unknown."""
        return max(0, math.ceil((self.enough or 0) - (self.available or 0) - 0.01))

    @property
    def sentence(self) -> str:
        """Returns a sentence such as: queue polling needs 5.2 workers on average, 9 at its peak; 4 listen."""
        most = max(self.enough or 0, self.peak or 0)
        average = f"{self.average:.1f} workers" if self.average >= 0.05 else "less than 0.1 of a worker"
        text = f"queue {self.queue} needs {average} on average"
        text += (
            f", {most} at its peak" if self.enough is not None else ", and more for functions with unknown durations"
        )
        if self.listening is None:
            return text
        is_shared = self.available is not None and self.available + 0.05 < self.listening
        shared = f" ({self.available:.1f} after subtracting their share for other queues)" if is_shared else ""
        return f"{text}; {self.listening or 'none'} {'listens' if self.listening < 2 else 'listen'}{shared}"

    @property
    def why_unknown(self) -> str:
        """Returns why `enough` cannot be relied on, or an empty string."""
        if self.is_old:
            return f"the need of queue {self.queue} was measured {ago(self.age_ms)}; start a ticker: ticker run"
        if self.enough is None:
            return (
                f"queue {self.queue}: when it was measured {ago(self.age_ms)}, no run of {', '.join(self.unknown)} in eight days had "
                "been counted (the last minutes were not yet), so its duration is unknown"
            )
        return ""


@reads
def needs() -> Steps[list[Need]]:
    """Returns the needs of all queues that tasks use, by queue."""
    rows = yield query("needs")
    weights = {row["queue"]: row["needed"] or row["average"] or 0.01 for row in rows}
    result = []
    for row in rows:
        crews = [crew for crew in json.loads(row["crews"] or "[]") if row["queue"] in crew[0]]
        shares = [weights[row["queue"]] / sum(weights.get(name, 0.01) for name in queues) for queues, _, _ in crews]
        known = row["crews"] is not None
        listening = sum(workers for _, workers, _ in crews) if known else None
        enough = row["needed"]
        if enough is None and listening == 0:  # somebody has to measure the unknown durations
            enough = max(1, math.ceil(row["average"] / BUSY))
        demand = [FunctionDemand(name, **one) for name, one in json.loads(row["functions"]).items()]
        result.append(Need(
            row["queue"], row["at"], round(row["age"] * SECOND), row["average"], enough, row["peak"],
            listening, sum(busy for *_, busy in crews) if known else None,
            sum(share * crew[1] for share, crew in zip(shares, crews, strict=True)) if known else None,
            tuple(sorted(demand, key=lambda one: -one.starts_per_minute)),
        ))  # fmt: skip
    return result
