"""Implements the ticker's queue port with RQ and Redis. In `ticker`, only `ticker.queue` imports them."""

import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError
from rq import Queue
from rq.command import send_command
from rq.job import Job, JobStatus

from ticker import clock
from ticker.engine import jobs
from ticker.engine.jobs import JobSpec
from ticker.engine.ports import JobState, Receipt, Refusal, RunAtWork
from ticker.errors import ConfigurationError, QueueUnavailable, escaped, start_worker, symptom
from ticker.queue import bulk, signing
from ticker.queue.bulk import PREFIX, script
from ticker.queue.sentinel import Client
from ticker.settings import Settings

log = logging.getLogger("ticker")

OLDEST_REDIS = (6, 2)
SOCKET_TIMEOUT = 2  # seconds: row locks are held during calls to Redis
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}  # as for PostgreSQL; not every system has them
LEASE = 300  # seconds: ten ticks of the default rhythm
FAILURE_PREFIX = "ticker:failure:"
"""How the keys begin under which tickers publish their failures, by installation."""
REFUSES_LATELY = 600  # seconds for which a refusal is worth a warning
ENDED_UNSTARTED = "a job ended there before it started; RQ's failed registry may say why"
ANSWERS = ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError
STORED, HELD = Receipt(stored=True), Receipt(held=True)
_STATES: dict[str, JobState] = {
    **dict.fromkeys((JobStatus.CREATED, JobStatus.QUEUED, JobStatus.DEFERRED, JobStatus.SCHEDULED), JobState.WAITING),
    JobStatus.STARTED: JobState.TAKEN,
}


TAKE_LEASES = script("take_leases")


def connect(url: str, *, retries: int = 1) -> Redis:
    """Returns a client with a timeout for every wait. It retries once by default, since a repeated push changes
    nothing.

    Callers that only read pass `retries=0`, because each retry costs another two seconds if Redis hangs.
    """
    try:
        client = kept_alive(Client.from_url(
            url, socket_timeout=SOCKET_TIMEOUT, socket_connect_timeout=SOCKET_TIMEOUT, retry=Retry(NoBackoff(), retries)
        ))  # fmt: skip
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # not connected; the first place where an unknown ?option fails
        pool.connection_kwargs.get("host", "").encode("idna")  # as a socket does
    except (ValueError, TypeError, RedisError):  # whose text quotes the URL, and with it the password
        raise ConfigurationError(
            "REDIS_URL cannot be read: check its host, port and options, and write special characters in a password as %XX"
        ) from None
    return client


def kept_alive(client: Redis) -> Redis:
    """Makes the kernel end each TCP connection whose other side has vanished, within 20 s. No answer may be awaited on
    it.
    """
    pool = client.connection_pool
    if issubclass(pool.connection_class, Connection):  # of TCP, also with TLS
        options = {getattr(socket, name): value for name, value in KEEPALIVE.items() if hasattr(socket, name)}
        pool.connection_kwargs.update(socket_keepalive=True, socket_keepalive_options=options)
    return client


@contextmanager
def translated() -> Iterator[None]:
    """Translates Redis' errors into ours, each with one sentence."""
    try:
        yield
    except MasterNotFoundError as error:
        if errors := str(error).partition(" : ")[2]:  # each with the sentinel's options before it
            sentence = f"REDIS_URL: no sentinel names a primary of the service: {errors.rpartition(' - ')[2]}"
            raise QueueUnavailable(sentence) from error
        raise QueueUnavailable("REDIS_URL: no sentinel that answers knows a primary of the service") from error
    except RedisError as error:
        did = "answers with an error" if isinstance(error, ANSWERS) else symptom(_sentence(error))
        raise QueueUnavailable(f"Redis (REDIS_URL) {did}: {_sentence(error)}") from error


def _sentence(error: RedisError) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class Crew(NamedTuple):
    """Living workers that listen to the same queues, and how many of them are busy."""

    queues: tuple[str, ...]
    workers: int
    busy: int


class Staff(NamedTuple):
    """How many jobs wait in each queue, and which workers listen."""

    waiting: Mapping[str, int]
    crews: Sequence[Crew]

    @property
    def unattended(self) -> dict[str, int]:
        attended = {name for crew in self.crews for name in crew.queues}
        return {name: count for name, count in self.waiting.items() if count and name not in attended}


class RefusingWorker(NamedTuple):
    """A worker that takes jobs that it cannot run: when it refused the last one, and why."""

    host: str
    pid: str
    queues: str
    age: int  # seconds
    why: str


class TickFailure(NamedTuple):
    """Why the ticks of a ticker fail, and for how long they have failed."""

    ticker_id: str
    host: str
    pid: int
    lasts_ms: int
    sentence: str


class RedisQueue:
    """RQ's queues. `result_ttl` and `failure_ttl` are how long Redis keeps a job that has succeeded or failed, in
    seconds.

    With a `signing_key`, every job is signed (`ticker.queue.signing`). Workers that do not require signatures run such
    jobs as usual.
    """

    def __init__(
        self, connection: Redis, *, result_ttl: int = 0, failure_ttl: int = 3600, signing_key: str = ""
    ) -> None:
        self._connection = connection
        self._signing_key = signing_key
        self._result_ttl = result_ttl
        self._failure_ttl = failure_ttl
        self._push = connection.register_script(bulk.PUSH)
        self._states = connection.register_script(bulk.STATES)
        self._shorten = connection.register_script(script("shorten"))
        self._take_leases = connection.register_script(TAKE_LEASES)
        self._pushed_to: set[str] = set()
        self._incompatibility = bulk.incompatibility(connection)
        if self._incompatibility:
            log.warning(
                "this RQ does not support fast pushes: %s; jobs are pushed one by one",
                self._incompatibility,
                extra={"event": "push_slow"},
            )

    @classmethod
    def from_url(cls, url: str) -> "RedisQueue":
        return cls(connect(url))

    @classmethod
    def from_settings(cls, settings: Settings) -> "RedisQueue":
        return cls(
            connect(settings.require_redis()),
            result_ttl=settings.result_ttl,
            failure_ttl=settings.failure_ttl,
            signing_key=settings.signing_keys[0] if settings.signing_keys else "",
        )

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        """Pushes all jobs in one call to Redis, or one by one if this RQ is incompatible with `ticker.queue.bulk`."""
        if not specs:
            return []
        self._pushed_to.update({spec.queue for spec in specs})
        if self._incompatibility:
            return [self._enqueue(spec) for spec in specs]
        with translated():
            shared = bulk.shared_fields(self._connection, self._result_ttl, self._failure_ttl)
            answers = self._push(args=bulk.arguments(specs, shared, self._signing_key))
        receipts = [STORED] * len(specs)
        for number, answer in zip(answers[::2], answers[1::2], strict=True):
            receipts[number - 1] = HELD if answer == b"held" else Receipt(error=answer.decode("utf-8", "replace"))
        return receipts

    def _enqueue(self, spec: JobSpec) -> Receipt:
        """Pushes one job through RQ's public interface."""
        with translated():
            if Job.exists(spec.job_id, connection=self._connection):
                return HELD
            with self._connection.pipeline() as calls:
                job = Queue(spec.queue, connection=self._connection).enqueue_call(
                    spec.entry, spec.args, timeout=spec.timeout, ttl=spec.ttl, result_ttl=self._result_ttl,
                    failure_ttl=self._failure_ttl, description=spec.description, job_id=spec.job_id, pipeline=calls,
                )  # fmt: skip
                if self._signing_key:
                    calls.hset(job.key, signing.FIELD, bulk.signature(spec, job.data, self._signing_key))
                try:
                    calls.execute()
                except ResponseError as error:
                    if "WRONGTYPE" not in str(error):
                        raise
                    self._connection.unlink(job.key)
                    return Receipt(error=_sentence(error))
        return STORED

    def lengths(self, names: Sequence[str]) -> Mapping[str, int]:
        """Returns the number of jobs in each queue. A key of another type counts as empty; a push reports it."""
        with translated():
            keys = [Queue(name, connection=self._connection).key for name in names]
            found = answers(self._connection, [("LLEN", key) for key in keys])
        return {name: length if isinstance(length, int) else 0 for name, length in zip(names, found, strict=True)}

    def states(self, job_ids: Sequence[str]) -> Sequence[JobState]:
        """Returns the states of all jobs in one call to Redis."""
        if not job_ids:
            return []
        with translated():
            if self._incompatibility:
                jobs = Job.fetch_many(job_ids, connection=self._connection)
                return [_state(job.get_status(refresh=False) if job else "") for job in jobs]
            return [_state(answer.decode("utf-8", "replace")) for answer in self._states(args=job_ids)]

    def refusals(self, job_ids: Sequence[str]) -> Sequence[Refusal]:
        """Returns why dead jobs were refused, or ended otherwise, as workers noted it. If a worker of another class has
        ended a job without a note, notes this on that worker.
        """
        with translated():
            keys = [Job.key_for(job_id) + jobs.REFUSED for job_id in job_ids]
            found = [Refusal(int(count or 0), why) for count, why in texts(self._connection, keys, "count", "reason")]
            unexplained = [job_id for job_id, one in zip(job_ids, found, strict=True) if not one.reason]
            names = texts(self._connection, map(Job.key_for, unexplained), "worker_name")
            workers = [f"{PREFIX}:worker:{name}" for name in sorted({name for (name,) in names if name})]
            note = jobs.refusal(clock.python_utc(), ENDED_UNSTARTED)
            known = texts(self._connection, workers, "birth", jobs.OURS)
            for key, (birth, is_ours) in zip(workers, known, strict=True):
                if birth and not is_ours:
                    self._connection.hset(key, jobs.REFUSES, note)
        return found

    def forget(self, job_ids: Collection[str], queues: Collection[str] = ()) -> None:
        """Deletes the hashes, and the ids if they are among the oldest of a queue. A worker that finds another one
        skips it.
        """
        if job_ids:
            with translated():
                self._connection.unlink(*(Job.key_for(job_id) for job_id in job_ids))
                if queues:
                    self._shorten(
                        keys=[Queue(name, connection=self._connection).key for name in queues], args=[*job_ids]
                    )

    def stop(self, runs: Sequence[RunAtWork]) -> None:
        """Sends our command on the channel of each worker. A stock worker ignores it."""
        if runs:
            with translated(), self._connection.pipeline(transaction=False) as calls:
                for worker, token in runs:
                    send_command(calls, worker, jobs.STOP, token=token)
                calls.execute()

    def lease(self, installation: str, queues: Collection[str] = (), formerly: str = "") -> dict[str, str]:
        """Takes or renews our leases of these queues, and of those that we have pushed to.

        Returns the queues that other installations have leased, with the holders. The leases of `formerly` become ours.
        """
        names = sorted({*queues, *self._pushed_to})
        if not names:
            return {}
        with translated():
            holders = self._take_leases([jobs.LEASE_PREFIX + name for name in names], [installation, formerly, LEASE])
        return {name: holder.decode() for name, holder in zip(names, holders, strict=True) if holder}

    def holders(self, queues: Collection[str]) -> dict[str, str]:
        """Returns the installations that hold leases of these queues."""
        with translated():
            holders = answers(self._connection, [("GET", jobs.LEASE_PREFIX + name) for name in queues])
        return {
            name: holder.decode() for name, holder in zip(queues, holders, strict=True) if isinstance(holder, bytes)
        }

    def all_holders(self) -> dict[str, str]:
        """Returns the holders of the leases of all queues that RQ knows."""
        with translated():
            return self.holders([queue.name for queue in queues(self._connection)])

    def staff(self, names: Collection[str] = ()) -> "Staff":
        """Returns the waiting jobs and the living workers of these queues, and of those that RQ knows, in two calls to
        Redis.
        """
        with translated():
            known = sorted({*names, *(queue.name for queue in queues(self._connection))})
            waiting = self.lengths(known)
            keys = answers(self._connection, [("SMEMBERS", f"{PREFIX}:workers:{name}") for name in known])
            listens = {name: found for name, found in zip(known, keys, strict=True) if isinstance(found, set)}
            workers = [
                *{key for found in listens.values() for key in found}
            ]  # a killed one stays there; its own key expires
            states = answers(self._connection, [("HGET", key, "state") for key in workers])
        crews: Counter[tuple[str, ...]] = Counter()
        busy: Counter[tuple[str, ...]] = Counter()
        for key, state in zip(workers, states, strict=True):
            if state:
                crew = tuple(name for name, found in listens.items() if key in found)
                crews[crew] += 1
                busy[crew] += state == b"busy"
        return Staff(waiting, [Crew(queues, count, busy[queues]) for queues, count in crews.items()])

    def attended(self, *, ours: bool = False) -> set[str]:
        """Returns the queues to which workers listen, even if nothing was ever pushed to them.

        `ours`: only queues to which workers of our class listen.
        """
        workers = self._of_workers("queues", jobs.OURS)
        return {name for queues, is_ours in workers if is_ours or not ours for name in queues.split(",") if name}

    def refusing(self) -> list[RefusingWorker]:
        """Returns the workers that are alive and have refused jobs lately."""
        found, now = list[RefusingWorker](), clock.python_utc().timestamp()
        for host, pid, queues, note in sorted(self._of_workers("hostname", "pid", "queues", jobs.REFUSES)):
            at, _, why = note.partition(" ")
            if at.isdecimal() and abs(age := int(now) - int(at)) <= REFUSES_LATELY:  # clocks of hosts differ
                found.append(RefusingWorker(escaped(host), escaped(pid), escaped(queues), max(age, 0), escaped(why)))
        return found

    def _of_workers(self, *fields: str) -> list[list[str]]:
        """Returns fields of all workers that RQ knows."""
        with translated():
            keys = cast(set[bytes], self._connection.smembers(f"{PREFIX}:workers"))
            return texts(self._connection, keys, *fields)

    def ages(self, names: Sequence[str]) -> dict[str, float]:
        """Returns for how many seconds the first job of each queue has waited. Leaves out queues without jobs."""
        with translated():
            heads = answers(self._connection, [("LINDEX", f"{PREFIX}:queue:{name}".encode(), "0") for name in names])
            first = {name: head for name, head in zip(names, heads, strict=True) if isinstance(head, bytes)}
            times = answers(
                self._connection, [("HGET", f"{PREFIX}:job:".encode() + head, "enqueued_at") for head in first.values()]
            )
        now, ages = clock.python_utc(), {}
        for name, at in zip(first, times, strict=True):
            with suppress(ValueError, TypeError, AttributeError):  # no time of RQ
                ages[name] = max(0.0, (now - datetime.fromisoformat(at.decode())).total_seconds())
        return ages

    def publish_failure(self, installation: str, failure: TickFailure | None, keep_ms: int) -> None:
        """Stores why ticks fail, for readers, in case that PostgreSQL accepts no writes. None clears it."""
        with translated():
            if failure:
                self._connection.set(FAILURE_PREFIX + installation, json.dumps(failure), px=keep_ms)
            else:
                self._connection.unlink(FAILURE_PREFIX + installation)

    def published_failure(self, installation: str) -> TickFailure | None:
        """Returns what a ticker has published last, unless that has expired, or is nothing that we have written."""
        with translated(), suppress(ValueError, TypeError, RecursionError):
            [text] = answers(self._connection, [("GET", FAILURE_PREFIX + installation)])
            id_, host, pid, lasts_ms, sentence = json.loads(text)
            return TickFailure(str(UUID(id_)), escaped(str(host)), int(pid), int(lasts_ms), escaped(str(sentence)))
        return None

    def put_aside(self) -> int:
        """Returns how many jobs of other installations workers have put aside in the last hour."""
        with translated():
            since = clock.python_utc().timestamp() - jobs.FOREIGN_KEPT
            return self._connection.zcount(jobs.FOREIGN, since, "+inf")

    def check(self) -> str:
        """Returns the server's version. Raises QueueUnavailable, or ConfigurationError if Redis may lose or refuse
        jobs.
        """
        with translated():
            return check_server(self._connection.info())

    def place(self) -> str:
        """Returns what tells this database of Redis from all others. It changes when a replica is promoted."""
        with translated():
            return self._places(self._connection.info("replication"))[0]

    def places(self) -> tuple[list[str], float]:
        """Returns the place, also that of the primary that a promoted replica followed, and the seconds for which the server
        has run.
        """
        with translated():
            info = self._connection.info()
        return self._places(info), float(info.get("uptime_in_seconds", 0))

    def _places(self, info: Mapping[str, Any]) -> list[str]:
        database = self._connection.connection_pool.connection_kwargs.get("db") or 0
        return [f"{info.get(name, '')}/{database}" for name in ("master_replid", "master_replid2")]

    def refused(self, queues: Collection[str]) -> list[str]:
        """Returns the calls that a ticker needs but its Redis user may not make. Empty before Redis 7.0, which cannot
        tell.
        """
        with translated():
            return [call.decode() for call in self._connection.register_script(script("refused"))(args=queues)]

    def memory(self) -> tuple[int, int]:
        """Returns how many bytes Redis uses, and its maxmemory; 0 if it has none."""
        with translated():
            info = self._connection.info("memory")
        return int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))

    def refused_write(self) -> str:
        """Tries a write that changes nothing, as its key is missing. Returns the error of Redis, or an empty text."""
        with translated():
            try:
                self._connection.set(f"{FAILURE_PREFIX}none", "", xx=True)
            except ResponseError as error:
                return _sentence(error)
        return ""

    def close(self) -> None:
        self._connection.close()


def leased(queue: str, holder: str) -> str:
    """Returns the problem with a queue that another installation uses."""
    return f"the queue {queue} is leased by another installation ({holder}), until 5 minutes after its last tick"


def refuses(worker: RefusingWorker) -> str:
    """Returns the problem with a worker that took a job that it could not run. RQ lists a dead one for minutes."""
    return (
        f"{worker.age} s ago, the worker with pid {worker.pid} on {worker.host}, which listened to {worker.queues}, took a job that "
        f"it could not run, and delayed it: {worker.why}; if it still runs, stop or replace it: "
        f"{start_worker(worker.queues.replace(',', ' '))}"
    )


def without_worker(queue: str, count: int, attended: Collection[str] = ()) -> str:
    """Returns the problem with a queue that has jobs and no worker. `attended` are the queues that have one."""
    jobs = "1 job waits" if count == 1 else f"{count} jobs wait"
    others = f" (workers listen to {', '.join(sorted(attended)[:3])})" if attended else ""
    return f"{jobs} in the queue {queue}, to which no worker listens{others}; start one: {start_worker(queue)}"


def queues(connection: Redis) -> Iterator[Queue]:
    """Yields the queues in RQ's set. Skips members that are not names of queues."""
    for key in cast(set[bytes], connection.smembers(Queue.redis_queues_keys)):
        with suppress(ValueError):  # another prefix, or not UTF-8
            yield Queue.from_queue_key(key.decode(), connection=connection)


def answers(connection: Redis, commands: Iterable[tuple[str, bytes | str] | tuple[str, bytes | str, str]]) -> list[Any]:
    """Runs all commands in one call to Redis. The answer for a key of another type is the error that Redis returned."""
    with connection.pipeline(transaction=False) as calls:
        for command in commands:
            calls.execute_command(*command)  # type: ignore[no-untyped-call]
        found = calls.execute(raise_on_error=False)
    for answer in found:
        if isinstance(answer, RedisError) and "WRONGTYPE" not in str(answer):
            raise answer
    return found


def texts(connection: Redis, keys: Iterable[bytes | str], *fields: str) -> list[list[str]]:
    """Returns fields of hashes, in one call to Redis. What is missing, or of another type, is empty."""
    keys = [*keys]
    found = answers(connection, [("HGET", key, field) for key in keys for field in fields]) if keys else []
    read = [one.decode("utf-8", "replace") if isinstance(one, bytes) else "" for one in found]
    return [read[start : start + len(fields)] for start in range(0, len(read), len(fields))]


def check_server(info: Mapping[str, Any]) -> str:
    """Returns the version in the INFO of a server. Raises ConfigurationError if the server is unfit for jobs."""
    version = str(info.get("redis_version", ""))
    policy = info.get("maxmemory_policy", "noeviction")
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        raise ConfigurationError(
            "REDIS_URL: this server is a sentinel and takes no jobs; write redis+sentinel://host1,host2,host3/service/0"
        )
    if info.get("cluster_enabled"):
        raise ConfigurationError("REDIS_URL: Redis Cluster is not supported; name a single server")
    if info.get("server_name") != "valkey" and _numbers(version) < OLDEST_REDIS:
        raise ConfigurationError(f"REDIS_URL: Redis {version} is too old; 6.2 or newer is needed, or any Valkey")
    if info.get("role", "master") != "master":
        raise ConfigurationError("REDIS_URL: this server is a replica and takes no jobs; name the primary")
    if policy != "noeviction":
        raise ConfigurationError(f"REDIS_URL: maxmemory-policy is {policy}, which loses jobs; set it to noeviction")
    return str(info.get("valkey_version", version))


def _numbers(version: str) -> tuple[int, ...]:
    """Returns 6.0.16 as (6, 0). Other texts count as new enough."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    return (int(match[1]), int(match[2])) if match else OLDEST_REDIS


def _state(answer: str) -> JobState:
    return JobState.MISSING if not answer else _STATES.get(answer, JobState.DEAD)
