"""Compares what an import would push with what the old scheduler enqueues, entry by entry. Pushes nothing.

Our half is the real tick over tables of its own, in the schema `ticker_shadow`, with a queue that keeps nothing. Each push counts
as a start. The other half looks at what the old scheduler leaves in its stores. Drops, time boxes and overlaps do not happen here,
so the longest run there is compared with the box.
"""

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from ticker import clock, migrations, settings
from ticker.db import connections
from ticker.db.store import PostgresStore
from ticker.engine import timing
from ticker.engine.jobs import JobSpec
from ticker.engine.passes import TickOptions
from ticker.engine.ports import JobState, Receipt, Refusal, RunAtWork
from ticker.engine.tick import tick
from ticker.errors import BadInput, ConfigurationError, Unavailable
from ticker.importing.found import Found, Source
from ticker.importing.sources.samplers import Sampler, Seen
from ticker.schedules.duration import SECOND, words
from ticker.tasks import many

WARM_UP = 90.0  # seconds at the beginning that are not counted
LATE = 60.0  # seconds by which the old scheduler may be late: rqscheduler looks once a minute
LOOK_AT_MOST, LOOK_AT_LEAST = 5.0, 0.5  # seconds between two looks
MADE_BY = "made by ticker import --shadow"
IRRELEVANT = ("args", "kwargs", "metadata", "owner", "limits")
"""What of a task does not change when it is pushed."""
STARTED = """
UPDATE "{schema}".tasks SET waiting = '{{}}', batch_jobs = NULL, started = started + 1,
    enabled = enabled AND coalesce(started + 1 < max_runs, true)
WHERE id = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """What was seen of an entry. Durations are seconds: `every_there` and `every_here` are medians, `apart` is the largest
    difference between a time of the side with fewer and the nearest one of the other, and `missed` counts looks that came too late.
    """

    id: str
    there: int
    here: int
    every_there: float | None
    every_here: float | None
    apart: float | None
    longest: float
    box: float
    missed: int
    differences: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.differences:
            return "differs"
        if self.there and self.here:
            return "same"
        return "too short" if self.there or self.here else "not due"


@dataclass(slots=True)
class Nowhere:
    """A queue that takes every job and keeps none. Remembers which tasks were pushed."""

    pushed: list[int] = field(default_factory=list)

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        self.pushed += [spec.args[0] for spec in specs]
        return [Receipt(stored=True)] * len(specs)

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(names, 0)

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        return [JobState.WAITING] * len(job_ids)

    def refusals(self, job_ids: Sequence[str]) -> Sequence[Refusal]:
        return [Refusal()] * len(job_ids)

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None: ...

    def stop(self, runs: Sequence[RunAtWork]) -> None: ...


def shadow(source: Source, founds: Sequence[Found], lasts_ms: int, tell: Callable[[str], None]) -> list[Compared]:
    """Runs for this long, or until it is interrupted, and returns a comparison for each entry. `tell` gets a sentence if a server
    does not answer. Raises BadInput if the source keeps no record of its runs.
    """
    sampler = source.sampler(founds)
    if lasts_ms <= WARM_UP * SECOND:
        raise BadInput(
            "--shadow", words(lasts_ms), f"is too short: the first {words(int(WARM_UP * SECOND))} are not counted"
        )
    with (
        own_tables() as given,
        settings.use(given),
        closing(PostgresStore(given.require_database(), given.schema)) as store,
    ):
        ids, boxes = _registered(given, founds)
        half = Half(store, given, ids)
        seen, missed = half.watch(sampler, lasts_ms / SECOND, tell)
        since = clock.python_utc() - timedelta(seconds=half.counted_for)
    return [
        compared(
            one.id,
            seen[one.id],
            [at for at in half.here[one.id] if at >= since],
            boxes[one.id],
            missed[one.id],
            given.tick_ms / SECOND,
            since,
        )
        for one in founds
    ]


class Half:
    """Our half of a shadow, and the samples of the other half."""

    def __init__(self, store: PostgresStore, given: settings.Settings, ids: Mapping[int, str]) -> None:
        self._store, self._settings, self._ids = store, given, ids
        self._queue = Nowhere()
        self.here: dict[str, list[datetime]] = defaultdict(list)
        self.counted_for = 0.0

    def watch(
        self, sampler: Sampler, lasts: float, tell: Callable[[str], None]
    ) -> tuple[Mapping[str, Seen], Mapping[str, int]]:
        """Ticks, and samples the old scheduler. Returns its actions, and how many samples came too late, by entry id."""
        seen, missed = defaultdict[str, Seen](Seen), defaultdict[str, int](int)
        every = min([LOOK_AT_MOST, *(seconds / 4 for seconds in sampler.within.values())])
        began = looked = clock.monotonic()
        next_tick, pause = began, threading.Event()
        try:
            while (now := clock.monotonic()) < began + lasts:
                try:
                    if now >= next_tick:
                        next_tick += self._settings.tick_ms / SECOND
                        self._tick()
                    for id_, news in sampler.look().items():
                        seen[id_].add(news)
                except Unavailable as error:
                    tell(str(error))
                gap, looked = clock.monotonic() - looked, clock.monotonic()
                for id_ in [id_ for id_, within in sampler.within.items() if gap > within]:
                    missed[id_] += 1
                pause.wait(
                    max(
                        0.0,
                        min(
                            max(every, LOOK_AT_LEAST), next_tick - clock.monotonic(), began + lasts - clock.monotonic()
                        ),
                    )
                )
        except KeyboardInterrupt:
            tell("interrupted: the report covers what was seen until now")
        self.counted_for = clock.monotonic() - began - WARM_UP
        return seen, missed

    def _tick(self) -> None:
        period = self._settings.tick_ms
        options = TickOptions(look_ahead=timing.LOOK_AHEAD, batch=self._settings.batch, period=period, beat=period)
        tick(self._store, self._queue, options=options)
        now, pushed = clock.python_utc(), self._queue.pushed
        self._queue.pushed = []
        with self._store.pool.connection() as db:
            db.execute(STARTED.format(schema=self._settings.schema), [pushed])
        for id_ in pushed:
            self.here[self._ids[id_]].append(now)


def compared(
    id_: str, seen: Seen, here: Sequence[datetime], box: float, missed: int, tick: float, since: datetime
) -> Compared:
    """Compares an entry. Each difference is a sentence."""
    there: Sequence[datetime] = sorted(at for at in seen.times if at >= since)
    count, differences = len(there) + seen.more, list[str]()
    fewer, more = sorted((there, here), key=len)  # at the edges, a time may lack its counterpart
    apart = max((min(abs((at - other).total_seconds()) for other in more) for at in fewer), default=None)
    if abs(count - len(here)) > 1:
        differences.append(f"enqueued {count} times there and {len(here)} times here")
    if apart is not None and apart > LATE + tick:
        differences.append(f"times are up to {apart:.0f} s apart")
    if seen.longest > box:
        differences.append(f"a run took {seen.longest:.1f} s; its box here is {box:g} s, so it would be stopped")
    return Compared(
        id_, count, len(here), _rhythm(there), _rhythm(here), apart, seen.longest, box, missed, tuple(differences)
    )


def table(results: Sequence[Compared]) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    """Returns the names of the columns, and a line for each entry."""
    names = ["entry", "verdict", "there", "here", "every there", "every here", "apart", "longest", "box"]
    lines: list[tuple[object, ...]] = []
    for one in results:
        spans = (one.every_there, one.every_here, one.apart, one.longest or None, one.box)
        cells = ("" if span is None else f"{span:.1f}".removesuffix(".0") + " s" for span in spans)
        lines.append((one.id, one.verdict, one.there, one.here, *cells, "; ".join(one.differences)))
    if any(one.differences for one in results):
        return [*names, "why"], lines
    return names, [line[:-1] for line in lines]


def _rhythm(times: Sequence[datetime]) -> float | None:
    return median((b - a).total_seconds() for a, b in pairwise(times)) if len(times) > 1 else None


@contextmanager
def own_tables() -> Iterator[settings.Settings]:
    """Creates the shadow's tables, and drops them afterwards. Also drops those of a killed shadow. Yields settings for them."""
    given = replace(settings.current(), schema=f"{settings.current().schema}_shadow")
    url, name = given.require_database(), f'"{given.schema}"'
    with closing(connections.connect(url, name="ticker-shadow")) as db, connections.translated():
        [(is_ours,)] = db.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [MADE_BY + name]).fetchall()
        if not is_ours:
            raise ConfigurationError(f"another shadow uses the schema {given.schema}: wait until it ends")
        [(exists, comment)] = db.execute(
            "SELECT s IS NOT NULL, obj_description(s, 'pg_namespace') FROM to_regnamespace(%s) AS s", [name]
        ).fetchall()
        if exists and comment != MADE_BY:
            raise ConfigurationError(f"the schema {given.schema} exists, but no shadow created it: rename or drop it")
        drop = f"DROP SCHEMA IF EXISTS {name} CASCADE"
        db.execute(f"{drop}; CREATE SCHEMA {name}; COMMENT ON SCHEMA {name} IS '{MADE_BY}'")
        try:
            migrations.upgrade(url, given.schema)
            yield given
        finally:
            with suppress(Unavailable), connections.translated(), closing(connections.connect(url)) as fresh:
                fresh.execute(drop)  # otherwise, the next shadow does


def _registered(given: settings.Settings, founds: Sequence[Found]) -> tuple[Mapping[int, str], Mapping[str, float]]:
    """Registers the entries' tasks. Returns the entries' ids by those of the tasks, and the boxes in seconds."""
    tasks = [{name: value for name, value in one.wanted.items() if name not in IRRELEVANT} for one in founds]
    with closing(connections.connect(given.require_database(), name="ticker-shadow")) as db, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = many.register_many(db, [{**task, "name": one.id} for task, one in zip(tasks, founds, strict=True)])
        boxes = dict(db.execute(f'SELECT id, box_ms FROM "{given.schema}".tasks').fetchall())
    ids = dict(zip(done.ids, (one.id for one in founds), strict=True))
    return ids, {ids[task]: box / SECOND for task, box in boxes.items()}
