"""Polls of a server that has limits, with real tickers and workers: a part of `python -m tests.bench limits`.

polite       thousands of tasks of one host are due all the time. The host refuses connections above its limit, and answers with
             429 above its rate. Measured by the host: what it refused, and how much of its limits was used
retry-after  the host is overloaded for a while: it answers all requests with 429 and `Retry-After`, and the function raises
             `SlowDown`. Measured by the host: the requests after the first 429, and how they begin again
"""

import math
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import ticker
from tests.bench import usage
from tests.bench.answers import Polled
from tests.bench.day import OUTCOMES
from tests.bench.figures import Figure, Stage, stage
from tests.bench.polls import worker
from tests.bench.strict_answers import REFUSED, TOO_MANY, Request, Rules, overload, requests, strict
from tests.bench.usage import KEEPS_LOG, Meter, Used
from tests.running import until
from ticker.tasks.gates import Limit

KEY = "mail.example.org"
DEMAND = 1.5  # times what the limits allow
DUE = """
UPDATE ticker.tasks SET function = %(function)s, limits = ARRAY[%(key)s], every_ms = %(every)s, tolerance_ms = %(every)s / 20,
    box_ms = %(every)s / 2, next_run = clock_timestamp()"""
UNDER_WAY = """
SELECT count(*) FILTER (WHERE started_at <= to_timestamp(%(at)s)), count(*) FILTER (WHERE started_at > to_timestamp(%(at)s)),
    coalesce(extract(epoch FROM max(started_at)) - %(at)s, 0)::float
FROM ticker.runs WHERE started_at < to_timestamp(%(at)s) + interval '1 second' * %(retry_after)s / 2
    AND coalesce(ended_at, 'infinity') > to_timestamp(%(at)s)"""


@dataclass(frozen=True)
class Load:
    """What polls the server, and for how long. Times are in seconds, except `minutes`. A rate is written as `300/1m`."""

    tasks: int
    minutes: float
    warm: float
    group: bool
    answer: float
    spread: float
    concurrency: int
    rate: str
    burst: int
    workers: int
    tickers: int
    tick: int
    retry_after: float


class Polls:
    """Runs tickers and workers on a stage, until the end of the block `at_work`."""

    def __init__(self, on: Stage, load: Load) -> None:
        self.on, self.load = on, load
        with on.db.transaction():
            self.limit: Limit = ticker.limit(
                on.db, KEY, concurrency=load.concurrency or None, rate=load.rate or None, burst=load.burst or None
            )

    @property
    def by_concurrency(self) -> float:
        """Returns the starts per second that the limit of active runs allows, if a run is nothing but its answer."""
        return self.limit.concurrency / self.load.answer if self.limit.concurrency else math.inf

    @property
    def by_rate(self) -> float:
        return 1000 * self.limit.rate / self.limit.period_ms if self.limit.rate and self.limit.period_ms else math.inf

    @property
    def allowed(self) -> float:
        return min(self.by_concurrency, self.by_rate)

    def rules(self) -> Rules:
        """Returns what the server allows: the declared limit, as `docs/guides/limits.md` defines it."""
        count = self.limit.rate and self.limit.rate + (self.limit.burst or 0)
        period = (self.limit.period_ms or 0) / 1000
        return Rules(self.load.answer, self.load.spread, self.limit.concurrency, count, period, self.load.retry_after)

    @contextmanager
    def at_work(self, server: Polled) -> Iterator[Meter]:
        """Makes all tasks due, and yields after the first request and the time to warm up."""
        load, environ = self.load, {"DATABASE_URL": self.on.database_url, "REDIS_URL": self.on.redis_url}
        ticking = [sys.executable, "-m", "ticker", "run", "--tick", f"{load.tick}s"]
        with closing(Meter(self.on)) as meter, worker(self.on, meter, f"{server.url}/poll", load.workers):
            self._make_due()
            with usage.running(*[ticking] * load.tickers, **environ) as pids:
                meter.roots |= {"ticker": pids, "polled server": [server.pid]}
                until(server.begun, "the first request")
                time.sleep(load.warm)
                yield meter

    def _make_due(self) -> None:
        every = math.ceil(1000 * self.load.tasks / self.allowed / DEMAND)
        assert every > 3000 * self.load.answer, f"--tasks {self.load.tasks} is too few: a run must end within its box"
        function = "polls.limited_group" if self.load.group else "polls.limited"
        self.on.db.execute(DUE, {"function": function, "key": KEY, "every": every})
        self.on.db.execute("VACUUM ANALYZE ticker.tasks")

    def outcomes(self) -> Iterator[Figure]:
        for outcome, count in self.on.db.execute(OUTCOMES).fetchall():
            yield Figure(f"recorded as {outcome}", count, "")


def polite(load: Load) -> list[Figure]:
    """Polls for the minutes of a load, within the limits of the server."""
    with stage(load.tasks, KEEPS_LOG) as on:
        polls = Polls(on, load)
        with strict(polls.rules()) as server, polls.at_work(server) as meter:
            with meter.measured() as used:
                time.sleep(60 * load.minutes)
            time.sleep(2 * load.answer + 1)  # the measured time begins with a request, so it may end a little later
            made = requests(server)
        return [*by_the_server(made, polls), *cost(used, made, load), *polls.outcomes()]


def by_the_server(made: Sequence[Request], polls: Polls) -> Iterator[Figure]:
    load = polls.load
    since = next(one.at for one in made if one.at >= made[0].at + load.warm)
    seconds = 60 * load.minutes
    begun = sum(since < one.at <= since + seconds for one in made)
    rate, tighter = begun / seconds, "the rate" if polls.by_rate <= polls.by_concurrency else "concurrency"
    yield Figure("requests, all of them", len(made), "")
    yield Figure("refused connections", sum(one.status == REFUSED for one in made), "", None, "0")
    yield Figure("answers with 429", sum(one.status == TOO_MANY for one in made), "", None, "0")
    yield Figure("starts per second", rate, "/s", None, f"{polls.allowed:g} by {tighter}, which is the tighter limit")
    yield Figure("starts, of what the limits allow", 100 * rate / polls.allowed, "%", None, "at least 95")
    if polls.limit.concurrency:
        busy = sum(max(0.0, min(end(one), since + seconds) - max(one.at, since)) for one in made) / seconds
        yield Figure(
            "requests at the same time, at most", max(active_at_arrivals(made)), "", None, f"{busy:.1f} on average"
        )
        between = polls.limit.concurrency / rate - load.answer
        yield Figure("between two runs of a slot, if all slots are used", 1000 * between, "ms")
    if polls.limit.rate:
        period = (polls.limit.period_ms or 0) / 1000
        note = f"its rate is {polls.limit.rate}, and {polls.limit.burst} at once"
        yield Figure(f"requests in any {period:g} s, at most", most_within(made, period), "", None, note)


def cost(used: Used, made: Sequence[Request], load: Load) -> Iterator[Figure]:
    runs = max(1.0, len(made) * used.seconds / (made[-1].at - made[0].at))
    for role, seconds in used.cpu.items():
        yield Figure(
            f"CPU of {role}, per run", 1000 * seconds / runs, "ms", None, f"{seconds / used.seconds:.2f} cores"
        )


def retry_after(load: Load) -> tuple[list[Figure], list[list[str]]]:
    """Overloads the server once. Returns figures, and the times of the slow start as a table."""
    with stage(load.tasks, KEEPS_LOG) as on:
        polls = Polls(on, load)
        with strict(polls.rules()) as server, polls.at_work(server):
            overload(server)
            until(lambda: any(one.status == TOO_MANY for one in requests(server)), "the first 429")
            time.sleep(load.retry_after + 60 * load.minutes)
            made = requests(server)
        first = next(number for number, one in enumerate(made) if one.status == TOO_MANY)
        again = bisect_right(made, made[first].at + load.retry_after / 2, key=lambda one: one.at)
        during, after = made[first:again], made[again:]
        under_way = [one for one in made[:first] if end(one) > made[first].at]
        figures = [*slowed_down(during, len(under_way), polls), *begun_again(during, after, load), *polls.outcomes()]
        return figures, [["requests at the same time", "first reached after"], *slow_start(after)]


def slowed_down(during: Sequence[Request], waiting: int, polls: Polls) -> Iterator[Figure]:
    """Yields the figures of the first 429 and of the requests after it, of which `waiting` answers were still to come."""
    values = {"at": during[0].at, "retry_after": polls.load.retry_after}
    [(under_way, late, seconds)] = polls.on.db.execute(UNDER_WAY, values).fetchall()
    note = f"{under_way} runs were under way, of which {waiting} waited for their answers, and one had the first 429"
    yield Figure("requests after the first 429", len(during) - 1, "", None, note)
    yield Figure(
        "of them, of runs that started later", late, "", None, f"the last one {seconds:.2f} s after the first 429"
    )


def begun_again(during: Sequence[Request], after: Sequence[Request], load: Load) -> Iterator[Figure]:
    if not after:
        yield Figure("requests after the hold", 0, "", None, f"within {load.minutes:g} minutes")
        return
    quiet = after[0].at - during[-1].at
    yield Figure("from the last 429 to the next request", quiet, "s", None, f"at least {load.retry_after:g}")
    yield Figure("answers with 429 after the hold", sum(one.status == TOO_MANY for one in after), "", None, "0")
    yield Figure("requests above the slow start", above(after, load), "", None, "0")


def slow_start(after: Sequence[Request]) -> Iterator[list[str]]:
    """Yields when 1, 2, 4 and so on requests were first active at the same time, from the first one on."""
    active = active_at_arrivals(after)
    most = max(active, default=0)
    for level in sorted({most, *(2**power for power in range(most.bit_length()))}):
        if level:
            number = next(number for number, count in enumerate(active) if count >= level)
            yield [str(level), f"{after[number].at - after[0].at:.1f} s"]


def above(after: Sequence[Request], load: Load) -> int:
    """Returns how often more requests were at work than the slow start allows: twice as many with each success."""
    ends = sorted(end(one) for one in after)
    return sum(
        active > min(2 ** min(bisect_right(ends, one.at), 20), load.concurrency or math.inf)
        for one, active in zip(after, active_at_arrivals(after), strict=True)
    )


def active_at_arrivals(made: Sequence[Request]) -> list[int]:
    """Returns, for each request, how many are at work when it has arrived."""
    ends = sorted(end(one) for one in made)
    return [number + 1 - bisect_right(ends, one.at) for number, one in enumerate(made)]


def most_within(made: Sequence[Request], period: float) -> int:
    """Returns the largest number of requests in any time of this length."""
    times = [one.at for one in made]
    return max(number - bisect_right(times, at - period) + 1 for number, at in enumerate(times))


def end(request: Request) -> float:
    return math.inf if request.ended is None else request.ended
