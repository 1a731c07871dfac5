"""Checks that the servers answer, that a ticker has ticked recently, and that workers listen to every queue with jobs.

`ticker health`, `/readyz` and the page's list of processes all use this module.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ticker import clock
from ticker.db import connections, installation, sql
from ticker.errors import (
    KNOWS_NO_FUNCTION,
    ConfigurationError,
    Unavailable,
    escaped,
    not_announced,
    start_worker,
    unknown_here,
)
from ticker.model import Pause
from ticker.queue import rq
from ticker.queue.rq import RedisQueue, RefusingWorker
from ticker.read import entries, formatting, gates, overview, tasks, workers
from ticker.read.explain import ago, counted, span
from ticker.read.tasks import TickerStatus
from ticker.read.workers import Need
from ticker.schedules.duration import SECOND, words
from ticker.settings import Settings
from ticker.tasks.fields import Task

LONG = 1.0  # seconds; a server that took longer to fail is not asked again for a while
REFUSING_AT_MOST = 3  # workers that are named
KEPT = 10.0  # seconds for which the error is kept; two refreshes of a page
REDIS, POSTGRESQL = "Redis", "PostgreSQL"
OTHER_REDIS = (
    "the ticker {} pushes to another Redis than the one that REDIS_URL names here, or to another database of it; give all "
    "processes the same REDIS_URL"
)


class CircuitBreaker:
    """Remembers servers that kept a caller waiting. For ten seconds, further callers get the error at once, with its
    age.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, float, str]] = {}

    @contextmanager
    def asking(self, server: str) -> Iterator[None]:
        """Wraps the questions to a server. Raises Unavailable if it kept a caller waiting a moment ago.

        An error that the server itself returned is not remembered.
        """
        began = clock.monotonic()
        asked, until, error = self._kept.get(server, (0.0, -math.inf, ""))
        if began < until:
            raise Unavailable(f"{error} (asked {span(round(began - asked) * SECOND)} ago)")
        try:
            yield
        except Unavailable as silence:
            ended = clock.monotonic()
            if ended - began >= LONG and not connections.is_answer(silence):
                self._kept[server] = began, ended + KEPT, str(silence)
            raise


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a check. `problems` are sentences; without any, all is well. The error of a server that answers is
    "".

    `unattended`: how many jobs wait in each of our queues without a worker. `announced`: the queues that workers have
    announced. `ahead`: the database's clock minus this host's. `late`: how many tasks are late; up to 100,000 are
    counted, and they are no problem by themselves. `last_stop`: says when the last ticker stopped, if no other one
    ticked after it. `pauses` of many tasks are no problem. `needs`: how many workers each queue needs. `held`: how many
    tasks each limit has kept waiting for over an interval. `attended`: the queues to which workers listen. `elsewhere`:
    the tickers that push to another Redis. `foreign`: why the tables belong to another installation.
    `leased`: our queues that another installation has leased. `refusing`: the workers that have lately taken jobs that
    they cannot run, but others may.
    """

    database_error: str
    redis_error: str
    tickers: tuple[TickerStatus, ...] = ()
    unattended: dict[str, int] = field(default_factory=dict)
    announced: tuple[str, ...] = ()
    ahead: timedelta | None = None
    max_age_ms: int | None = None
    foreign: str = ""
    leased: dict[str, str] = field(default_factory=dict)
    last_stop: str = ""
    late: int = 0
    pauses: tuple[Pause, ...] = ()
    needs: tuple[Need, ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    attended: tuple[str, ...] = ()
    elsewhere: tuple[TickerStatus, ...] = ()
    refusing: tuple[RefusingWorker, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns sentences about queues with too few workers, workers that cannot run our jobs, limits that are too
        tight, and tickers whose ticks fail while another one ticks. No problems: a restart does not help.
        """
        few = [need for need in self._short_of_workers if need.is_overloaded]
        return (
            *(self.failures if self.ticks else ()),
            *(f"{need.sentence}; start {need.missing} more for now: {start_worker(need.queue)}" for need in few),
            *map(rq.refuses, self.refusing[:REFUSING_AT_MOST]),
            *self.hints,
            *(
                f"{counted(tasks, 'task')} with the limit {key} {'has' if tasks == 1 else 'have'} waited for room for over an interval; "
                "raise the limit, or the interval; ticker limit lists the keys without room"
                for key, tasks in self.held.items()
            ),
        )

    @property
    def hints(self) -> tuple[str, ...]:
        """Returns those warnings that name queues whose workers do all the work, although jobs may wait for them."""
        few = [need for need in self._short_of_workers if not need.is_overloaded]
        return tuple(
            f"{need.sentence}; jobs would wait for less time with {need.missing} more: {start_worker(need.queue)}"
            for need in few
        )

    @property
    def lateness(self) -> tuple[str, ...]:
        """Returns a sentence if tasks are late."""
        return (f"late: {counted(self.late, 'task')}; ticker top says why",) if self.late else ()

    @property
    def _short_of_workers(self) -> list[Need]:
        """Returns the needs that the workers of the last minutes do not meet. Without a tick, they say nothing about now."""
        known = self.needs if self.ticks and not self.elsewhere else ()
        return [need for need in known if need.has_too_few and need.queue not in self.unattended]

    @property
    def problems(self) -> tuple[str, ...]:
        down = (self.redis_error,) if self.redis_error else ()
        if self.database_error:
            return self.database_error, *down
        failing = () if self.ticks else self.failures
        silent = () if self.ticks or failing else (silence(self.tickers, self.max_age_ms, self.last_stop),)
        foreign = (self.foreign,) if self.foreign else ()
        leased = (rq.leased(*one) for one in self.leased.items())
        elsewhere = () if failing else tuple(f"pid {one.pid} on {one.host}" for one in self.elsewhere)
        apart = (OTHER_REDIS.format(", ".join(elsewhere)),) if elsewhere else ()
        unattended = () if failing or elsewhere else self.unattended  # a worker would not help
        return *failing, *foreign, *silent, *down, *apart, *leased, *map(self.without_worker, unattended)

    @property
    def ticks(self) -> bool:
        """Returns whether a ticker lives, and its ticks do not fail."""
        return any(ticker.ticks(self.max_age_ms) for ticker in self.tickers)

    @property
    def failures(self) -> tuple[str, ...]:
        """Returns a sentence for each live ticker whose ticks fail."""
        return tuple(filter(None, (ticker.fails for ticker in self.tickers)))

    @property
    def why_no_tick(self) -> str:
        """Returns why no tick pushes what is due, in a few words, or an empty text."""
        return "" if self.ticks else "the ticks of the ticker fail" if self.failures else "no ticker is ticking"

    def without_worker(self, queue: str) -> str:
        mistyped = not_announced("queue", queue, self.announced)
        return rq.without_worker(queue, self.unattended[queue], self.attended) + (f"; {mistyped}" if mistyped else "")

    @property
    def ok(self) -> bool:
        return not self.problems


def longest_silence(tick_ms: int) -> int:
    """Returns how many milliseconds may pass between two signs of a live ticker: three times its tick, but at least 15
    s. The rule `silent_at` (ticker/db/sql/rules.sql) says the same.
    """
    return max(15 * SECOND, 3 * tick_ms)


def look(
    settings: Settings,
    *,
    max_age_ms: int | None = None,
    breaker: CircuitBreaker | None = None,
    counts_late: bool = True,
) -> Health:
    """Checks both servers. Raises ConfigurationError if DATABASE_URL is not set.

    `max_age_ms` is how old the last sign of a ticker may be; it defaults to the `longest_silence` of each. A caller
    that checks repeatedly passes its own `breaker`. `counts_late` is false if the caller has counted the late tasks.
    """
    settings.require_database()
    breaker = breaker or CircuitBreaker()
    here = _redis(settings, breaker)
    try:
        with breaker.asking(POSTGRESQL):
            return _database(settings, here, counts_late, max_age_ms=max_age_ms)
    except Unavailable as error:
        return Health(str(error), here.error, max_age_ms=max_age_ms)


def data(health: Health) -> dict[str, Any]:
    """Returns the health as JSON data."""
    return {
        "healthy": health.ok, "problems": list(health.problems), "max_age_ms": health.max_age_ms,
        "postgresql": _answer(health.database_error), "redis": _answer(health.redis_error),
        "tickers": [formatting.plain_data(ticker) for ticker in health.tickers], "unattended": health.unattended,
        "late": None if health.database_error else health.late,
        "leased": health.leased, "warnings": list(health.warnings), "pauses": formatting.plain_data(health.pauses),
    }  # fmt: skip


def silence(tickers: Sequence[TickerStatus], most: int | None, last_stop: str) -> str:
    """Says when the last ticker ticked or stopped, and how to start one."""
    if last_stop or not tickers:
        return f"{last_stop or 'no ticker is running here'}; start one: ticker run"
    last = f"the last one, pid {tickers[0].pid} on {tickers[0].host}, {last_tick(tickers[0])}"
    most = (tickers[0].patience_ms or 0) if most is None else most
    return f"no ticker has ticked within {words(most)}: {last}; start one: ticker run"


def last_tick(ticker: TickerStatus) -> str:
    if ticker.age_ms is None:
        return "has not ticked yet"
    return f"ticked {ago(ticker.age_ms)}"


def cause(task: Task, look: Health) -> str:
    """Explains why a late task has not started yet."""
    if task.waiting:
        unattended = "no worker listens to it" if task.queue in look.unattended else "its workers have not taken it yet"
        taken = "its workers are unknown, because Redis could not be asked" if look.redis_error else unattended
        return f"its job waits in the queue {task.queue}, and {taken}"
    if task.push_errors:
        return formatting.state_in_words(task)
    return look.why_no_tick or task.waits_because or "no tick has pushed it yet"


def _database(settings: Settings, there: "_Redis", counts_late: bool, **rest: Any) -> Health:
    with connections.translated(), closing(connections.connect(settings.require_database())) as db:
        execute = sql.on(db, settings.schema)
        here = installation.read(execute)
        known = tasks.tickers(db, ended=True)
        if not there.error:
            known = with_published(known, db, settings, here.id)
        others = {name: holder for name, holder in there.holders.items() if holder != here.id}
        functions = overview.functions(db)
        names = [function.name for function in functions]
        needs = workers.needs(db)
        few = [need.queue for need in needs if need.has_too_few]
        used = {row["queue"] for row in execute("used_queues", queues=[*others, *few])}
        return Health(
            "", tickers=present(known), last_stop=formatting.last_stop(known),
            ahead=_ahead(db), foreign=installation.foreign(here, settings.environment),
            unattended={name: there.unattended[name] for name in overview.waiting_queues(db, there.unattended)},
            attended=tuple(sorted(there.attended)), redis_error=there.error,
            refusing=tuple(worker for worker in there.refusing if delays(worker, names)),
            elsewhere=tuple(ticker for ticker in known if there.places and pushes_elsewhere(ticker, *there.places)),
            announced=tuple(sorted({name for function in functions for name in function.queues})),
            pauses=tuple(gates.list_pauses(db)), needs=tuple(need for need in needs if need.queue in used or not need.has_too_few),
            held=overview.waits_too_long_for_room(db), late=overview.late(db) if counts_late else 0,
            leased={name: others[name] for name in sorted(used & others.keys())}, **rest,
        )  # fmt: skip


def delays(worker: RefusingWorker, announced: Collection[str]) -> bool:
    """Returns whether another worker may run what this one has refused. It may not if no worker has announced the
    function.
    """
    is_unknown = bool(announced) and worker.why.startswith(KNOWS_NO_FUNCTION)
    return not is_unknown or worker.why in [escaped(unknown_here(name)) for name in announced]


def pushes_elsewhere(ticker: TickerStatus, places: Collection[str], uptime: float) -> bool:
    """Returns whether a live ticker has pushed to another Redis than ours, which has not been started since."""
    there = ticker.last_report.get("redis")
    was_here = ticker.age_ms is not None and uptime * SECOND > ticker.age_ms
    return bool(there and there not in places and was_here and ticker.lives())


def present(known: Sequence[TickerStatus]) -> tuple[TickerStatus, ...]:
    """Leaves out tickers that were stopped, and silent ones after whose last sign of life another one was started."""

    def is_replaced(silent: TickerStatus) -> bool:
        return any(silent.seen_at and silent.seen_at < other.started_at for other in known if other is not silent)

    return tuple(one for one in known if not one.has_ended and (one.lives() or not is_replaced(one)))


def with_published(
    known: Sequence[TickerStatus], db: Any, settings: Settings, installation_id: str
) -> list[TickerStatus]:
    """Adds the failure that a ticker has published in Redis, because PostgreSQL did not take it."""
    with (
        suppress(Unavailable, ConfigurationError),
        closing(RedisQueue(rq.connect(settings.require_redis(), retries=0))) as queue,
    ):
        if failure := queue.published_failure(installation_id):
            id_ = UUID(failure.ticker_id)
            began = entries.instant(db) - timedelta(milliseconds=failure.lasts_ms)
            unknown = TickerStatus(id_, failure.host, failure.pid, began, None, {}, None, "", 0, None, None, None)
            row = next((one for one in known if one.id == id_), unknown)
            patience_ms = longest_silence(settings.tick_ms) if row.patience_ms is None else row.patience_ms
            failing = replace(
                row, failure=failure.sentence, failing_ms=failure.lasts_ms, seen_ms=0, patience_ms=patience_ms
            )
            return [failing, *(one for one in known if one.id != id_)]
    return [*known]


class _Redis(NamedTuple):
    """What Redis says: its error, the queues with jobs and no worker, those with a worker, the leased queues with their
    holders, which Redis it is, since when, and the workers that have lately refused jobs.
    """

    error: str = ""
    unattended: Mapping[str, int] = {}
    attended: Collection[str] = ()
    holders: Mapping[str, str] = {}
    places: tuple[Collection[str], float] | None = None
    refusing: Sequence[RefusingWorker] = ()


def _redis(settings: Settings, breaker: CircuitBreaker) -> _Redis:
    try:
        with breaker.asking(REDIS), closing(RedisQueue(rq.connect(settings.require_redis(), retries=0))) as queue:
            queue.check()
            unattended = queue.staff().unattended
            attended = queue.attended() if unattended else ()
            return _Redis("", unattended, attended, queue.all_holders(), queue.places(), queue.refusing())
    except (Unavailable, ConfigurationError) as error:
        return _Redis(str(error))


def _ahead(db: Any) -> timedelta:
    before = clock.python_utc()
    now = entries.instant(db)
    return now - before - (clock.python_utc() - before) / 2


def _answer(error: str) -> dict[str, Any]:
    return {"answers": not error, "error": error or None}
