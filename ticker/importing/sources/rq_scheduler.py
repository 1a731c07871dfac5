"""Reads rq-scheduler's entries from Redis as they are stored, and moves them out of its schedule and back.

An entry is a member of a sorted set, whose score is its next time, and the hash of its job. The job that rq-scheduler pushes
is this same job, so the hash also says when it last started. An entry that is taken leaves the sorted set for a hash of ours:
`parked` until its task is committed, then `taken`. Its job's hash stays where it is.
"""

import os
import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError

from ticker import clock, settings
from ticker.errors import ConfigurationError, QueueUnavailable
from ticker.importing.found import Found, LeftOver, Source, Waiting, Where
from ticker.importing.sources import rq_entries
from ticker.importing.sources.samplers import JobSampler, Sampler
from ticker.queue.bulk import PREFIX, script
from ticker.queue.rq import connect, translated
from ticker.schedules.duration import SECOND, milliseconds

SCHEDULE, LOCK = "rq:scheduler:scheduled_jobs", "rq:scheduler_lock"
PARKED, TAKEN = "ticker:parked:rq-scheduler", "ticker:taken:rq-scheduler"
LOCK_MS, KEEP_EVERY = 6_000, 1.5
LOCK_AT_LEAST, LOCK_AT_MOST = 30.0, 140.0  # seconds to wait for the lock: twice its time to live, if it has one
AT_ONCE = 500
ASTRAY_AFTER = 1.0  # seconds in which a worker that has taken a job from its list says that it runs


def opened(where: Where) -> "RqScheduler":
    return RqScheduler(where.text or settings.current().require_redis(), where.zone)


class LockLost(QueueUnavailable):
    def __init__(self) -> None:
        super().__init__(f"Redis (REDIS_URL) no longer has our lock {LOCK}; it may have expired: run the command again")


class RqScheduler(Source):
    """rq-scheduler's entries in the Redis at `url`. `zone` is that of its host, if the operator has said it."""

    name = rq_entries.SOURCE

    def __init__(self, url: str, zone: str = "") -> None:
        self._redis: Any = connect(url)
        self._zone, self._token = zone, f"ticker import {socket.gethostname()} {os.getpid()} {uuid4().hex}"
        self._astray = dict[str, float]()  # since when
        scripts = "ticker.importing.sources"
        self._park = self._redis.register_script(script("park", scripts))
        self._give_back = self._redis.register_script(script("give_back", scripts))

    def read(self, now: datetime) -> list[Found]:
        with translated():
            return self._found({**self._parked_scores(), **self._scores()}, now)

    def parked(self, now: datetime) -> list[Found]:
        with translated():
            there = self._scores()
            return self._found({id_: at for id_, at in self._parked_scores().items() if id_ not in there}, now)

    def _scores(self) -> dict[str, float]:
        return {id_.decode(): score for id_, score in self._redis.zrange(SCHEDULE, 0, -1, withscores=True)}

    def _parked_scores(self) -> dict[str, float]:
        return {id_.decode(): float(value.split(b"\n", 1)[0]) for id_, value in self._redis.hgetall(PARKED).items()}

    def _found(self, scores: Mapping[str, float], now: datetime) -> list[Found]:
        jobs = self._jobs([*scores])
        return [rq_entries.found(id_, score, jobs[id_], now, self._zone) for id_, score in scores.items()]

    def _jobs(self, ids: Sequence[str]) -> dict[str, rq_entries.Job]:
        jobs: dict[str, rq_entries.Job] = {}
        for start in range(0, len(ids), AT_ONCE):
            part = ids[start : start + AT_ONCE]
            with self._redis.pipeline(transaction=False) as calls:
                for id_ in part:
                    calls.hmget(f"{PREFIX}:job:{id_}", rq_entries.FIELDS)
                for id_, values in zip(part, calls.execute(), strict=True):
                    jobs[id_] = {name: value for name, value in zip(rq_entries.FIELDS, values, strict=True) if value}
        return jobs

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds rq-scheduler's lock, so that no pass of it is at work. Without it, a pass brings back entries that left its
        schedule meanwhile. A thread keeps the lock, which expires soon after this process dies.
        """
        self._lock()
        over = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(over,), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
            with suppress(RedisError):  # it expires
                self._if_ours("del")

    def _lock(self) -> None:
        began, pause = clock.monotonic(), threading.Event()
        with translated():
            left = self._redis.pttl(LOCK)
            patience = LOCK_AT_MOST if left == -1 else min(LOCK_AT_MOST, max(LOCK_AT_LEAST, 2 * left / 1000))
            while not self._redis.set(LOCK, self._token, nx=True, px=LOCK_MS):
                if clock.monotonic() - began > patience:
                    raise ConfigurationError(
                        f"{LOCK} has been held for {patience:.0f} s by a pass of rqscheduler, or by another import: "
                        "try again when it has ended"
                    )
                pause.wait(0.05)

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(KEEP_EVERY):
            with suppress(RedisError):  # `park` asks again whether the lock is ours
                self._if_ours("pexpire", LOCK_MS)

    def _if_ours(self, call: str, *more: int) -> None:
        text = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3)) end"
        self._redis.eval(text, 1, LOCK, self._token, call, *map(str, more))

    def waiting(self, ids: Collection[str]) -> Waiting:
        """Counts the jobs of entries that wait or run in RQ.

        A worker that listens to several queues takes a job from a list before it says that it runs. So a job whose status is
        queued or started, and which is nowhere, counts as running in the second after it is first seen so.
        """
        with translated():
            jobs = self._jobs([*ids])
            queues = sorted({job["origin"].decode() for job in jobs.values() if job.get("origin")})
            with self._redis.pipeline() as calls:
                for queue in queues:
                    calls.lrange(f"{PREFIX}:queue:{queue}", 0, -1)
                    calls.lrange(f"{PREFIX}:queue:{queue}:intermediate", 0, -1)
                    calls.zrangebyscore(f"{PREFIX}:wip:{queue}", clock.python_utc().timestamp(), "+inf")
                    calls.scard(f"{PREFIX}:workers:{queue}")
                found = calls.execute()
        waits = Counter(id_.decode() for listed in found[::4] for id_ in listed)
        runs = {id_.decode() for listed in found[1::4] for id_ in listed}
        runs |= {member.decode().rpartition(":")[0] or member.decode() for listed in found[2::4] for member in listed}
        moving = (
            {id_ for id_, job in jobs.items() if job.get("status") in (b"queued", b"started")} - waits.keys() - runs
        )
        now = clock.monotonic()
        self._astray = {id_: self._astray.get(id_, now) for id_ in moving}
        runs |= {id_ for id_, since in self._astray.items() if now - since < ASTRAY_AFTER}
        waits = Counter({id_: count for id_, count in waits.items() if id_ in jobs})
        took = rq_entries.mean(rq_entries.took(job.get("started_at"), job.get("ended_at")) for job in jobs.values())
        return Waiting(waits, runs & jobs.keys(), sum(found[3::4]), took)

    def remove_waiting(self, ids: Collection[str]) -> None:
        with translated():
            jobs = self._jobs([*ids])
            with self._redis.pipeline() as calls:
                for id_, job in jobs.items():
                    calls.lrem(f"{PREFIX}:queue:{job['origin'].decode()}", 0, id_)
                    calls.hset(f"{PREFIX}:job:{id_}", "status", "canceled")
                calls.execute()

    def sampler(self, founds: Sequence[Found]) -> Sampler:
        every = {one.id: one.wanted.get("every") for one in founds}
        return JobSampler(
            self._redis, {id_: milliseconds("every", one) / SECOND if one else None for id_, one in every.items()}
        )

    def park(self, db: Any, founds: Sequence[Found]) -> list[str]:
        values = [
            text for one in founds if one.next_there
            for text in (one.id, one.next_there.timestamp(), one.wanted["name"], one.stored["identity"])
        ]  # fmt: skip
        with translated():
            changed = self._park([LOCK, SCHEDULE, PARKED], [self._token, *values])
        if changed == b"no lock":
            raise LockLost
        return [id_.decode() for id_ in changed]

    def taken(self) -> list[LeftOver]:
        with translated():
            stored = {key: self._redis.hgetall(key) for key in (PARKED, TAKEN)}
        return [
            _left_over(id_.decode(), value, key == PARKED)
            for key, found in stored.items()
            for id_, value in found.items()
        ]

    def note(self, ids: Sequence[str]) -> None:
        self._move(PARKED, TAKEN, ids)

    def unpark_at(self, db: Any, times: Mapping[str, datetime]) -> None:
        self._move(TAKEN, PARKED, [*times], times)

    def _move(self, here: str, there: str, ids: Sequence[str], times: Mapping[str, datetime] | None = None) -> None:
        """Moves entries between our two hashes, with another next time if there are `times`."""
        if not ids:
            return
        with translated(), self._redis.pipeline() as calls:
            stored = zip(ids, self._redis.hmget(here, ids), self._redis.hmget(there, ids), strict=True)
            for id_, value, before in stored:
                if (value := value or before) is not None:
                    score = str(int(times[id_].timestamp())).encode() if times else value.split(b"\n", 1)[0]
                    calls.hset(there, id_, score + b"\n" + value.split(b"\n", 1)[1])
                    calls.hdel(here, id_)
            calls.execute()

    def give_back(self, ids: Sequence[str]) -> None:
        with translated():
            if self._give_back([LOCK, SCHEDULE, PARKED], [self._token, *ids]) == b"no lock":
                raise LockLost

    def forget(self, ids: Sequence[str]) -> None:
        """Forgets entries, and deletes their jobs, which rq-scheduler keeps forever.

        Keeps jobs that are scheduled, wait or run.
        """
        if ids:
            with translated():
                kept = self.waiting(ids).ids | self._scores().keys()
                with self._redis.pipeline() as calls:
                    calls.hdel(TAKEN, *ids)
                    for id_ in {*ids} - kept:
                        calls.unlink(f"{PREFIX}:job:{id_}")
                    calls.execute()


def _left_over(id_: str, stored: bytes, is_parked: bool) -> LeftOver:
    _, name, identity, _ = stored.split(b"\n", 3)
    return LeftOver(id_, name.decode(), identity.decode(), is_parked)
