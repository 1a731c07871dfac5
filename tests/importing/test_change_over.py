"""While rqscheduler is at work, its entries become tasks and go back, and nobody is polled twice: seen from outside."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from tests.importing.change_over import FORKING, IN_PROCESS, World, at_work, nearest
from tests.running import Ticking, until
from ticker.importing import take_over
from ticker.importing.sources import rq_scheduler
from ticker.importing.sources.rq_scheduler import PARKED, SCHEDULE, RqScheduler

Scheduler = pytest.importorskip("rq_scheduler").Scheduler

pytestmark = [pytest.mark.sources, pytest.mark.timeout(3600)]

PLANNED = ("--decide", "*:every=20s")  # asked of intervals below 60 s
TAKE_OVER = ("--take-over", "--old-jobs", "wait", "--without-worker")
FORGETS_FIRST = """
from ticker.importing import take_over
kept = take_over.task_of
take_over.task_of = lambda *given: {name: value for name, value in kept(*given).items() if name != "first"}
"""


@pytest.fixture
def world(redis, environ, monkeypatch, tmp_path):
    monkeypatch.setenv("TICKER_TICK", "0.5s")
    return World(redis, tmp_path)


def taken(db):
    return {task for (task,) in db.execute("SELECT name FROM ticker.tasks").fetchall()}


def in_both(world, db):
    return taken(db) & {id_.decode() for id_ in world.redis.zrange(SCHEDULE, 0, -1)}


@pytest.mark.parametrize(
    ("channels", "interval", "kills"),
    [(60, 20, 3), pytest.param(1000, 300, 50, marks=pytest.mark.long)],
    ids=["small", "whole"],
)
def test_a_take_over_that_is_killed_at_any_instant_polls_nobody_twice_and_loses_nobody(
    world, db, channels, interval, kills
):
    world = replace(world, interval=interval)
    world.scheduled(channels)
    with at_work(*IN_PROCESS), Ticking():
        until(lambda: world.polls(), "a poll")
        assert world.imported(*PLANNED) == 0
        began, lasts = time.time(), 2.0
        for number in range(kills):
            world.imported(*TAKE_OVER, kill_after=random.Random(number).uniform(0.2, lasts))
            since = time.monotonic()
            assert world.imported(*TAKE_OVER) == 0
            lasts = min(lasts + 1, time.monotonic() - since)
            assert (len(taken(db)), in_both(world, db), world.redis.hlen(PARKED)) == (channels, set(), 0)
            if number < kills - 1:
                world.imported("--give-back", kill_after=random.Random(-number).uniform(0.2, lasts))
                assert world.imported("--give-back") == 0
        ended = time.time()
        until(lambda: world.polled(channels, ended), "a poll of each channel by its task", 3 * interval)
        polls = world.polls()
    assert len(polls) == channels
    assert nearest(polls, began) >= world.nearest_allowed


def test_without_first_each_mailbox_is_polled_again_at_once(world, db):
    world.scheduled(30)
    with at_work(*IN_PROCESS), Ticking():
        until(lambda: world.polled(30, 0), "a poll of each channel")
        world.imported(*PLANNED)
        began = time.time()
        assert world.imported(*TAKE_OVER, patch=FORGETS_FIRST) == 0
        until(lambda: world.polled(30, began), "a poll of each channel by its task")
        assert nearest(world.polls(), began) < world.nearest_allowed


@pytest.mark.parametrize("is_held", [True, False])
def test_without_the_lock_a_pass_at_work_brings_entries_back(world, db, redis_url, monkeypatch, is_held):
    world.scheduled(20, spread=False)
    scheduler = Scheduler(connection=world.redis)
    assert scheduler.acquire_lock()
    jobs = scheduler.get_jobs_to_queue()
    scheduler.enqueue_job(next(jobs))
    source, began = RqScheduler(redis_url), Event()
    lock = source._lock

    def waits():
        began.set()
        lock()

    monkeypatch.setattr(
        source, "_lock", waits if is_held else lambda: world.redis.set(rq_scheduler.LOCK, source._token)
    )
    with ThreadPoolExecutor() as threads:
        call = threads.submit(take_over.take_over, source, db, "ticker", decided, old_jobs="remove")
        if is_held:
            assert began.wait(60)
        else:
            call.result(60)
        for job in jobs:
            scheduler.enqueue_job(job)
        scheduler.remove_lock()
        assert len(call.result(60).moved) == 20
    assert bool(in_both(world, db)) is not is_held


def decided(founds):
    return [replace(one, decisions=()) for one in founds]


@pytest.mark.parametrize(
    ("channels", "seconds", "backlog"),
    [(40, 0.7, 15), pytest.param(200, 0.2, 100, marks=pytest.mark.long)],
    ids=["small", "whole"],
)
def test_with_a_backlog_and_one_worker_nobody_is_polled_twice(world, db, channels, seconds, backlog):
    world.scheduled(channels, seconds)
    with at_work(*FORKING), Ticking():
        until(lambda: world.redis.llen("rq:queue:polling") > backlog, "a backlog", 120)
        assert world.imported(*PLANNED) == 0
        began = time.time()
        assert world.imported(*TAKE_OVER) == 0
        ended = time.time()
        until(lambda: world.polled(channels, ended), "a poll of each channel by its task", 300)
        polls = world.polls()
    assert nearest(polls, began) >= world.nearest_allowed
