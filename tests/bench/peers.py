"""Other schedulers over as many due entries: `python -m tests.bench peers [--due N] [--most N] [--rounds N]`.

Each peer that is installed has its own loop step called, as its own process would, with so many entries due at once; a
figure is the time per job that then stands in its queue. `ticker` is the production tick over as many due of as many
tasks. "at work" is the other half of the truth: entries of five minutes, spread over them, as they are after a day; rq
cron goes round its loop for a while (each wake looks at every entry and, where one was due, writes them all to Redis),
the ticker ticks over what comes due in 30 seconds, and a figure is the busy time per job. Peers: rq cron (part of RQ), rq-scheduler, celery beat, redbeat, APScheduler (its jobs enqueue into RQ), huey,
procrastinate:

    uv run --group bench python -m tests.bench peers
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from rq import Queue

from tests.bench.figures import Figure, Stage, middle, parser, show, stage, timed
from ticker.daemon.tick_job import PushThreads
from ticker.db.store import PostgresStore
from ticker.engine.tick import TickOptions, tick
from ticker.queue.rq import RedisQueue

KEYS = ("rq:queue:polling", "polling", "huey.redis.bench")  # the queues of RQ, celery and huey

Peer = Callable[[Stage, int], float]
"""Seconds of its loop step over so many due entries."""

EVERY = 300  # seconds
TICK = 30  # seconds
AT_WORK = 10  # seconds that rq cron goes round its loop


def check(jobs: int, due: int) -> None:
    assert jobs == due, f"{jobs} jobs of {due} due entries"


def poll(number: int) -> None:
    """What every peer would have run."""


def ours(on: Stage, due: int) -> float:
    """A process that has ticked before."""
    with closing(PostgresStore(on.database_url)) as store, closing(RedisQueue.from_url(on.redis_url)) as queue:
        push_threads = PushThreads()
        on.make_due(1)
        tick(store, queue, options=TickOptions(push_threads=push_threads))
        on.make_due(due)
        return timed(lambda: tick(store, queue, options=TickOptions(push_threads=push_threads)))


def rq_cron(on: Stage, due: int) -> float:
    from rq.cron import CronScheduler

    scheduler = CronScheduler(connection=on.redis)
    for number in range(due):
        job = scheduler.register(poll, "polling", args=(number,), interval=EVERY)
        job.set_enqueue_time(datetime.now(UTC) - timedelta(seconds=EVERY + 1))

    return timed(lambda: go_round(scheduler))


def go_round(scheduler: Any) -> float:
    """`CronScheduler.start`, once round its loop: seconds that it would sleep."""
    if scheduler.enqueue_jobs():
        scheduler.save()
    scheduler.heartbeat()
    return float(scheduler.calculate_sleep_interval())


def rq_cron_at_work(on: Stage) -> float:
    """Busy seconds per job, once the first are due."""
    from rq.cron import CronScheduler

    scheduler = CronScheduler(connection=on.redis)
    begin = datetime.now(UTC) + timedelta(seconds=on.tasks / 20_000)  # time to register them
    for number in range(on.tasks):
        job = scheduler.register(poll, "polling", args=(number,), interval=EVERY)
        job.set_enqueue_time(begin - timedelta(seconds=EVERY * number / on.tasks))
    scheduler.register_birth()
    time.sleep(max(0.0, (begin - datetime.now(UTC)).total_seconds()))
    busy, end = 0.0, time.monotonic() + AT_WORK
    while time.monotonic() < end:
        began = time.perf_counter()
        nap = go_round(scheduler)
        busy += time.perf_counter() - began
        time.sleep(nap)
    return busy / int(on.redis.llen("rq:queue:polling"))


def rq_scheduler(on: Stage, due: int) -> float:
    from rq_scheduler import Scheduler

    scheduler = Scheduler("polling", connection=on.redis)
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1)
    for number in range(due):
        scheduler.schedule(before, poll, args=(number,), interval=EVERY, result_ttl=0)
    return timed(scheduler.enqueue_jobs)


def celery_app(on: Stage, due: int) -> Any:
    from celery import Celery

    app = Celery("bench", broker=as_socket_url(on.redis_url), backend=None)
    app.conf.update(task_ignore_result=True, task_default_queue="polling", beat_max_loop_interval=1)
    app.task(name="poll")(poll)
    before = datetime.now(UTC) - timedelta(seconds=EVERY + 1)
    entries = {
        f"poll {number}": {"task": "poll", "schedule": float(EVERY), "args": (number,), "last_run_at": before}
        for number in range(due)
    }
    return app, entries


def as_socket_url(url: str) -> str:
    """As kombu writes a Unix socket."""
    return url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")


def celery_beat(on: Stage, due: int) -> float:
    from celery.beat import ScheduleEntry, Scheduler

    app, entries = celery_app(on, due)
    scheduler = Scheduler(app, lazy=True)
    scheduler.schedule = {name: ScheduleEntry(name=name, app=app, **entry) for name, entry in entries.items()}

    def step() -> None:
        while scheduler.tick() == 0:
            pass

    return timed(step)


def redbeat(on: Stage, due: int) -> float:
    from celery.schedules import schedule
    from redbeat import RedBeatScheduler, RedBeatSchedulerEntry

    app, entries = celery_app(on, due)
    app.conf.update(redbeat_redis_url=on.redis_url, redbeat_lock_key=None)
    for name, entry in entries.items():
        before = entry.pop("last_run_at")
        made = RedBeatSchedulerEntry(name, entry["task"], schedule(EVERY, app=app), args=entry["args"], app=app)
        made.last_run_at = before
        made.save()
    scheduler = RedBeatScheduler(app=app, lazy=True)
    return timed(scheduler.tick)


def apscheduler(on: Stage, due: int) -> float:
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    queue = Queue("polling", connection=on.redis)
    scheduler = BackgroundScheduler(timezone="UTC", executors={"default": ThreadPoolExecutor(10)})
    begin = datetime.now(UTC) + timedelta(hours=1)
    for number in range(due):
        scheduler.add_job(
            partial(queue.enqueue, poll, number, result_ttl=0), "interval", seconds=EVERY, start_date=begin,
            misfire_grace_time=None, coalesce=True,
        )  # fmt: skip
    scheduler.start(paused=True)
    for job in scheduler.get_jobs():
        job.modify(next_run_time=datetime.now(UTC) - timedelta(seconds=1))

    def step() -> None:
        scheduler.resume()
        while on.redis.llen("rq:queue:polling") < due:
            time.sleep(0.001)

    took = timed(step)
    scheduler.shutdown(wait=True)
    return took


def huey(on: Stage, due: int) -> float:
    from huey import RedisHuey, crontab

    found = RedisHuey("bench", connection_pool=on.redis.connection_pool, results=False)
    for number in range(due):
        found.periodic_task(crontab(), name=f"poll_{number}")(partial(poll, number))
    scheduler = found.create_consumer(workers=1, periodic=True)._create_scheduler()
    return timed(lambda: scheduler.enqueue_periodic_tasks(datetime.now(UTC).replace(tzinfo=None)))


def procrastinate(on: Stage, due: int) -> float:
    from procrastinate import App, PsycopgConnector
    from procrastinate.exceptions import ProcrastinateException
    from procrastinate.periodic import PeriodicDeferrer

    async def play() -> float:
        app = App(connector=PsycopgConnector(conninfo=on.database_url))
        async with app.open_async():
            with suppress(ProcrastinateException):  # they are there since the last round
                await app.schema_manager.apply_schema_async()
            await app.connector.execute_query_async(
                "TRUNCATE procrastinate_jobs, procrastinate_periodic_defers CASCADE"
            )
            for number in range(due):
                app.periodic(cron="* * * * *", periodic_id=f"{number}")(
                    app.task(name=f"poll_{number}", queue="polling", pass_context=False)(take_timestamp)
                )
            deferrer = PeriodicDeferrer(registry=app.periodic_registry)
            began = time.perf_counter()
            await deferrer.defer_jobs(list(deferrer.get_previous_tasks(at=time.time())))
            took = time.perf_counter() - began
            found = await app.connector.execute_query_one_async("SELECT count(*) AS jobs FROM procrastinate_jobs")
            check(found["jobs"], due)
            return took

    return asyncio.run(play())


def take_timestamp(timestamp: int) -> None:
    """As procrastinate calls its periodic tasks."""


PEERS: dict[str, tuple[Peer, str, int]] = {
    "rq cron": (rq_cron, "rq", 100_000),
    "rq-scheduler": (rq_scheduler, "rq-scheduler", 10_000),
    "celery beat": (celery_beat, "celery", 10_000),
    "redbeat": (redbeat, "celery-redbeat", 10_000),
    "APScheduler + RQ": (apscheduler, "apscheduler", 10_000),
    "huey": (huey, "huey", 10_000),
    "procrastinate": (procrastinate, "procrastinate", 10_000),
}
"""How each is driven, its package, and the most entries that it is given."""


def installed() -> Iterator[tuple[str, Peer, int]]:
    for name, (peer, package, most) in PEERS.items():
        try:
            print(f"# {name}: {package} {version(package)}", flush=True)
        except PackageNotFoundError:
            print(f"# {name}: {package} is not installed", flush=True)
        else:
            yield name, peer, most


def compare(on: Stage, due: int, rounds: int) -> list[Figure]:
    rivals = [(name, peer) for name, peer, most in installed() if due <= most]
    found: dict[str, list[float]] = {"ticker": [], **{name: [] for name, _ in rivals}}
    for _ in range(rounds):
        for name, peer in [("ticker", ours), *rivals]:
            on.redis.flushall()
            try:
                took = peer(on, due)
                if name != "procrastinate":
                    check(sum(int(on.redis.llen(key)) for key in KEYS), due)
                found[name].append(1e6 * took / due)
            except Exception as error:
                print(f"# {name}: {type(error).__name__}: {error}", flush=True)
    figures = []
    for name, times in found.items():
        if times:
            shares = [theirs / mine for theirs, mine in zip(times, found["ticker"], strict=False)]
            figures.append(middle(f"{name}, {due:,} due", times, "us/job", f"{median(shares):.1f} times the ticker's"))
    return figures


def at_work(on: Stage, rounds: int) -> list[Figure]:
    due = on.tasks * TICK // EVERY
    theirs, mine = [], []
    for _ in range(rounds):
        on.redis.flushall()
        theirs.append(1e6 * rq_cron_at_work(on))
        mine.append(1e6 * ours(on, due) / due)
        check(int(on.redis.llen("rq:queue:polling")), due)
    share = median(a / b for a, b in zip(theirs, mine, strict=True))
    entries = f"{on.tasks:,} entries at work"
    return [
        middle(f"ticker, {entries}", mine, "us/job"),
        middle(f"rq cron, {entries}", theirs, "us/job", f"{share:.1f} times the ticker's"),
    ]


def main() -> None:
    options = parser(__doc__, due=10_000, most=100_000, rounds=3).parse_args()
    logging.disable(logging.CRITICAL)
    figures = []
    for due in sorted({options.due, options.most}):
        with stage(due) as on:
            figures += compare(on, due, options.rounds if due == options.due else 1)
            figures += at_work(on, options.rounds)
    show(figures, options.json, {})


if __name__ == "__main__":
    main()
