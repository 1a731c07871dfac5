"""Samples what the scheduler of a source enqueues while a shadow runs. Only reads."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from ticker.importing.sources.pickles import load, unpacked
from ticker.importing.sources.rq_entries import moment, took
from ticker.queue.bulk import PREFIX
from ticker.queue.rq import translated


@dataclass(slots=True)
class Seen:
    """What the scheduler has done with an entry: when it enqueued it, how often more, and how long its longest run took, in
    seconds.
    """

    times: list[datetime] = field(default_factory=list)
    more: int = 0
    longest: float = 0.0

    def add(self, other: "Seen") -> None:
        self.times += other.times
        self.more, self.longest = self.more + other.more, max(self.longest, other.longest)


class Sampler(Protocol):
    """Looks at a source again and again. What the first look finds happened before."""

    @property
    def within(self) -> Mapping[str, float]:
        """Returns the seconds after which a look at an entry comes too late to see everything, by its id."""

    def look(self) -> Mapping[str, Seen]:
        """Returns what has happened since the last look, by the ids of the entries."""


class JobSampler:
    """rq-scheduler pushes one job of an entry again and again. Its hash tells when it was last enqueued."""

    def __init__(self, redis: Any, intervals: Mapping[str, float | None]) -> None:
        self._redis, self._before = redis, dict[str, bytes | None]()
        self._ids, self.within = [*intervals], {id_: every for id_, every in intervals.items() if every}

    def look(self) -> Mapping[str, Seen]:
        seen: dict[str, Seen] = {}
        for id_, (enqueued, *run) in zip(self._ids, hashes(self._redis, self._ids, "enqueued_at", *RUN), strict=True):
            if id_ in self._before and enqueued not in (None, self._before[id_]):
                seen[id_] = Seen([*filter(None, [moment(enqueued)])], longest=took(*run) or 0.0)
            elif longest := took(*run):
                seen[id_] = Seen(longest=longest)
            self._before[id_] = enqueued
        return seen


class HistorySampler:
    """rq cron keeps when it enqueued jobs, by the name of their entry. Entries that share a name differ in their arguments."""

    def __init__(self, redis: Any, names: Mapping[str, str], calls: Mapping[str, tuple[Any, Any]]) -> None:
        self._redis, self._calls, self.within = redis, calls, dict[str, float]()
        self._named: dict[str, list[str]] = defaultdict(list)
        for id_, name in names.items():
            self._named[name].append(id_)
        self._since: dict[str, float] = {}
        self._at_work: dict[str, str] = {}

    def look(self) -> Mapping[str, Seen]:
        seen: dict[str, Seen] = defaultdict(Seen)
        with translated(), self._redis.pipeline(transaction=False) as calls:
            for name in self._named:
                calls.zrangebyscore(
                    f"{PREFIX}:cron_job:{name}:jobs", f"({self._since.get(name, 0)}", "+inf", withscores=True
                )
            answers = calls.execute()
        for (name, ids), jobs in zip(self._named.items(), answers, strict=True):
            for job, score in jobs if name in self._since else ():
                id_ = self._owner(ids, job.decode())
                seen[id_].times.append(datetime.fromtimestamp(score, UTC))
                self._at_work[job.decode()] = id_
            self._since[name] = max((score for _, score in jobs), default=self._since.get(name, 0))
        for (job, id_), run in zip([*self._at_work.items()], hashes(self._redis, [*self._at_work], *RUN), strict=True):
            if longest := took(*run):
                seen[id_].longest = max(seen[id_].longest, longest)
                del self._at_work[job]
        return seen

    def _owner(self, ids: Sequence[str], job: str) -> str:
        """Returns which of the entries with one name has enqueued the job."""
        if len(ids) > 1:
            [[data]] = hashes(self._redis, [job], "data")
            try:
                _, _, args, kwargs = load(unpacked(data or b""))
            except (ValueError, TypeError):
                return ids[0]
            return next((id_ for id_ in ids if self._calls[id_] == ([*args], kwargs)), ids[0])
        return ids[0]


class RowSampler:
    """Beat writes the last time and the count of an entry to its row, up to three minutes late."""

    def __init__(self, rows: Callable[[], Iterable[tuple[str, int, datetime | None]]]) -> None:
        self._rows, self._before, self.within = rows, dict[str, int](), dict[str, float]()

    def look(self) -> Mapping[str, Seen]:
        seen = {}
        for name, count, last in self._rows():
            new = count - self._before.get(name, count)
            if new > 0:
                seen[name] = Seen([last] if last else [], more=new - bool(last))
            self._before[name] = count
        return seen


RUN = ("started_at", "ended_at")


def hashes(redis: Any, ids: Sequence[str], *fields: str) -> Iterator[Sequence[bytes | None]]:
    """Reads fields of jobs, without a transaction: a user who may only read has no MULTI."""
    with translated(), redis.pipeline(transaction=False) as calls:
        for id_ in ids:
            calls.hmget(f"{PREFIX}:job:{id_}", fields)
        yield from calls.execute()
