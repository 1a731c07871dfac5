"""Seeded corruptions of many jobs at once: each costs at most its own job, and RQ's lists are empty afterwards.

A stock worker promises nothing of this. The last test shows that the occurrences whose jobs it leaves end all the same.
"""

from random import Random
from typing import Any

import pytest
from redis import Redis
from rq import Queue

import ticker
from tests.factories import create_trace
from tests.queue import corruption
from tests.running import stock_worker, until, work
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue

KEY = "a key of enough length"
ENDED_EARLY = "found an unhandled exception, quitting"


class Scene:
    """Tasks whose jobs are corrupted (victims), good ones between them, and strangers, which are not due."""

    def __init__(self, db: Any, store: PostgresStore, redis: Redis) -> None:
        self.db, self.store, self.redis = db, store, redis
        self.queue = RedisQueue(redis, signing_key=KEY)

    def fill(self, count: int, seed: int) -> None:
        """Corrupts so many jobs, and puts ids among them that no ticker gives."""
        random, polling = Random(seed), Queue("polling", connection=self.redis)
        create_trace(self.db)
        with self.db.transaction():
            for number in range(count):
                ticker.register(self.db, "plain", name=f"victim {number}", every="1d")
                if number % 10 == 9:
                    ticker.register(self.db, "plain", name=f"good {number}", every="1d")
            for number in range(5):
                far = self.store.now().replace(year=2100)
                ticker.register(self.db, "plain", name=f"stranger {number}", every="1d", first=far)
        tick(self.store, self.queue)
        good = {id_ for (id_,) in self.db.execute("SELECT id FROM ticker.tasks WHERE name LIKE 'good%'")}
        for job_id in polling.get_job_ids():
            if int(job_id.split("-")[1].removeprefix("t")) not in good:
                corruption.corrupt(self.redis, job_id, random)
                if random.random() < 0.25:
                    corruption.put_strange_id(self.redis, polling, random)
        self.before = self.strangers()

    def strangers(self) -> Any:
        return self.db.execute("SELECT * FROM ticker.tasks WHERE name LIKE 'stranger%' ORDER BY id").fetchall()

    def outcomes(self, name: str) -> list[str]:
        """Of the tasks so named, one for each record."""
        of_tasks = "SELECT outcome FROM ticker.runs WHERE task_name LIKE %s"
        return [outcome for (outcome,) in self.db.execute(of_tasks, [f"{name}%"])]

    def has_waiting(self) -> bool:
        tick(self.store, self.queue)
        return self.db.execute("SELECT id FROM ticker.tasks WHERE waiting <> '{}' LIMIT 1").fetchone() is not None

    def has_left(self) -> set[str]:
        """The keys of RQ's in which an id still stands, though no job of it failed or finished."""
        lists = {"rq:queue:polling", "rq:queue:polling:intermediate", "rq:wip:polling", "rq:deferred:polling",
                 "rq:scheduled:polling", "rq:canceled:polling"}  # fmt: skip
        dead = {id_.decode() for id_ in self.redis.zrange("rq:failed:polling", 0, -1)}
        unknown = {id_ for id_ in dead if self.redis.hget(f"rq:job:{id_}", "status") != b"failed"}
        return {key for key in lists if self.redis.exists(key)} | unknown

    def check_records(self, count: int) -> None:
        """Each task that was due has one record, which is true, and no other task has changed."""
        good, victims = self.outcomes("good"), self.outcomes("victim")
        assert good == ["succeeded"] * (count // 10)
        assert len(victims) == count and {*victims} <= {"succeeded", "lost"}
        [(ran,)] = self.db.execute("SELECT count(*) FROM trace")
        assert ran == [*good, *victims].count("succeeded")
        assert self.strangers() == self.before and not self.outcomes("stranger")


@pytest.fixture
def scene(environ: dict[str, str], db: Any, store: PostgresStore, redis: Redis, monkeypatch: Any) -> Scene:
    monkeypatch.setenv("TICKER_SIGNING_KEY", KEY)
    return Scene(db, store, redis)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--hardened",)], ids=["plain", "hardened"])
@pytest.mark.parametrize(
    ("count", "seed"),
    [(60, 1), pytest.param(2000, 2, marks=[pytest.mark.long, pytest.mark.timeout(1800)])],
)
def test_corrupt_jobs_cost_only_themselves(count: int, seed: int, options: tuple[str, ...], scene: Scene) -> None:
    scene.fill(count, seed)
    log = work(*options, "polling", timeout=900)
    assert ENDED_EARLY not in log.stderr + log.stdout
    assert not scene.has_left()
    assert scene.outcomes("good") == ["succeeded"] * (count // 10)
    if scene.has_waiting():  # they are pushed again
        work(*options, "polling", timeout=900)
    assert not scene.has_waiting()
    scene.check_records(count)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_stock_worker_leaves_of_corrupt_jobs_runs_in_ours(scene: Scene) -> None:
    """It ends on the first job that it cannot read. Its id stays in RQ's list; the ticker pushes the job again."""
    scene.fill(60, seed=3)
    log = stock_worker()
    assert ENDED_EARLY in log.stderr + log.stdout
    assert "rq:queue:polling" in scene.has_left()

    def is_over() -> bool:
        work()
        return not scene.has_waiting()

    until(is_over, "every job of ours has ended")
    scene.check_records(60)
