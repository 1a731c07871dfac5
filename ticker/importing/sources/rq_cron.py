"""Reads the entries of rq cron from the record that it keeps in Redis.

The record is a hash with a TTL of 120 s. It lacks arguments that are not JSON, and the classes of methods.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from ticker import clock, settings
from ticker.errors import ConfigurationError, escaped
from ticker.importing import dialects
from ticker.importing.found import Decision, Draft, Found, LeftOver, Source, Waiting, Where, function_name, unique
from ticker.importing.sources import rq_entries, taken_tasks
from ticker.importing.sources.pickles import load, unpacked
from ticker.importing.sources.samplers import HistorySampler, Sampler, hashes
from ticker.queue import rq
from ticker.queue.bulk import PREFIX

NAME = "rq-cron"
SCHEDULERS, RECORD, HISTORY = (
    f"{PREFIX}:cron_schedulers",
    f"{PREFIX}:cron_scheduler:{{}}",
    f"{PREFIX}:cron_job:{{}}:jobs",
)
TAKEN = "ticker:taken:rq-cron"  # the identities of entries; which of them are taken, their tasks say
CALL = "function", "args", "kwargs"
IDENTITY = "func_name", "queue_name", "args", "kwargs", "interval", "cron", "job_timeout"  # and the name
QUEUED, STARTED = "queued", "started"
NO_JSON = "<not JSON serializable>"
ALIVE = timedelta(minutes=2)  # rq cron shows a sign of life each minute, and its record lasts as long
HISTORY_AT_MOST = 1000  # jobs of a name that RQ's history keeps

Entry = Mapping[str, Any]
"""An entry as `CronJob.to_dict` stores it."""


def opened(where: Where) -> "RqCron":
    return RqCron(where)


class RqCron(Source):
    """rq cron's entries: those of the records in Redis, whose URL is --from.

    rq cron reads cron texts in the zone of its host, which no record names: --zone does. Nothing leaves rq cron when it is taken
    over, because its entries are code: it has to be stopped.
    """

    name = NAME

    def __init__(self, where: Where) -> None:
        self._redis: Any = rq.connect(where.text or settings.current().require_redis(), retries=0)
        self._zone, self._names = where.zone, dict[str, str]()
        self._calls = defaultdict[str, set[tuple[str, str]]](set)
        self._records, self._is_held = dict[str, tuple[str, list[Entry]]](), False

    def read(self, now: datetime) -> list[Found]:
        with rq.translated():
            entries = self.records()
            names = Counter(map(_name, entries))
            last = {name: self._last(name) for name in names}
        if not entries:
            raise ConfigurationError(
                "Redis holds no record of rq cron, which keeps one while it runs and for at least a minute after it was stopped: "
                "start it, then stop it; each start enqueues all interval entries at once"
            )
        self._names = dict(zip(unique(map(_name, entries)), map(_name, entries), strict=True))
        founds = []
        for entry, id_ in zip(entries, self._names, strict=True):
            enqueued, started = last[_name(entry)]
            newest, by_record = started, rq_entries.moment(entry.get("latest_enqueue_time"))
            if entry.get("cron"):  # its job may wait for longer than until its next time
                newest = enqueued
            if by_record and (newest is None or names[_name(entry)] > 1):
                newest = by_record  # the history is that of all entries with the name
            found = _found(entry, id_, self._zone, newest)
            if not found.refusals:
                self._calls[_name(entry)].add((found.wanted["queue"], _as_json(*map(found.wanted.get, CALL))))
            founds.append(found)
        return founds

    def records(self) -> list[Entry]:
        """Returns the entries of the newest record of each configuration, also if it has expired since an earlier call.

        A record expires one to two minutes after its process was stopped.
        """
        newest = self._records
        for key in sorted(self._redis.scan_iter(RECORD.format("*"))):
            record = {name.decode(): value.decode(errors="replace") for name, value in self._redis.hgetall(key).items()}
            config, created = record.get("config_file", ""), record.get("created_at", "")
            if created >= newest.get(config, ("", []))[0]:
                newest[config] = created, json.loads(record.get("cron_jobs") or "[]")
        return [entry for config in sorted(newest) for entry in newest[config][1]]

    def alive(self) -> str:
        """Returns a sentence if rq cron has shown a sign of life in the last two minutes."""
        with rq.translated():
            for name, beat in self._redis.zrevrange(SCHEDULERS, 0, 0, withscores=True):
                age = clock.python_utc() - datetime.fromtimestamp(beat, UTC)
                if age < ALIVE:
                    host, pid = self._redis.hmget(RECORD.format(name.decode()), "hostname", "pid")
                    process = f"host {(host or b'?').decode()}, pid {(pid or b'?').decode()}"
                    return escaped(
                        f"rq cron is alive ({process}, {max(int(age.total_seconds()), 0)} s ago): stop it first"
                    )
        return ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Does not stop rq cron. Within the block, counting and parking entries fail if it was started again."""
        self._check_stopped()
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def _check_stopped(self) -> None:
        if sentence := self.alive():
            raise ConfigurationError(sentence)

    def waiting(self, ids: Collection[str]) -> Waiting:
        if self._is_held:
            self._check_stopped()
        with rq.translated():
            jobs = {id_: self._jobs(self._names.get(id_, id_)) for id_ in ids}
            queues = {job["origin"] for of in jobs.values() for job in of if job["status"] in (QUEUED, STARTED)}
            workers = sum(self._redis.scard(f"{PREFIX}:workers:{queue}") for queue in queues)
        counts = {
            status: {id_: n for id_, of in jobs.items() if (n := sum(job["status"] == status for job in of))}
            for status in (QUEUED, STARTED)
        }
        return Waiting(
            counts[QUEUED], counts[STARTED], workers, rq_entries.mean(job["took"] for of in jobs.values() for job in of)
        )

    def remove_waiting(self, ids: Collection[str]) -> None:
        with rq.translated(), self._redis.pipeline() as pipeline:
            for name in {self._names.get(id_, id_) for id_ in ids}:
                for job in self._jobs(name):
                    if job["status"] == QUEUED:
                        pipeline.lrem(f"{PREFIX}:queue:{job['origin']}", 0, job["id"])
                        pipeline.hset(f"{PREFIX}:job:{job['id']}", "status", "canceled")
            pipeline.execute()

    def _jobs(self, name: str) -> list[dict[str, Any]]:
        """Returns the jobs of entries with this name that are in Redis, with how long each took."""
        ids = [id_.decode() for id_ in self._redis.zrange(HISTORY.format(name), 0, -1)]
        if len(ids) >= HISTORY_AT_MOST:
            ids += self._older(name, {*ids})
        fields = "status", "origin", "started_at", "ended_at"
        return [
            {"id": id_, "status": status.decode(), "origin": (origin or b"").decode(), "took": rq_entries.took(*times)}
            for id_, (status, origin, *times) in zip(ids, hashes(self._redis, ids, *fields), strict=True)
            if status
        ]

    def _older(self, name: str, known: Collection[str]) -> list[str]:
        """Returns the jobs that the history no longer has: those in the queues with the calls of the entries with this name."""
        older = list[str]()
        for queue in {queue for queue, _ in self._calls[name]}:
            listed = [id_.decode() for id_ in self._redis.lrange(f"{PREFIX}:queue:{queue}", 0, -1)]
            listed += [run.decode().rpartition(":")[0] for run in self._redis.zrange(f"{PREFIX}:wip:{queue}", 0, -1)]
            ids = [id_ for id_ in listed if id_ not in known]
            for id_, (data,) in zip(ids, hashes(self._redis, ids, "data"), strict=True):
                if (queue, _call(data)) in self._calls[name]:
                    older.append(id_)
        return older

    def _last(self, name: str) -> tuple[datetime | None, datetime | None]:
        """Returns when the last job of entries with this name was enqueued, which RQ keeps for a year, and when it started, or else
        when it was enqueued.
        """
        for id_, score in self._redis.zrevrange(HISTORY.format(name), 0, 0, withscores=True):
            started = self._redis.hget(f"{PREFIX}:job:{id_.decode()}", "started_at")
            enqueued = datetime.fromtimestamp(score, UTC)
            return enqueued, max(enqueued, rq_entries.moment(started) or enqueued)
        return None, None

    def sampler(self, founds: Sequence[Found]) -> Sampler:
        calls = {one.id: (one.wanted.get("args", []), one.wanted.get("kwargs", {})) for one in founds}
        return HistorySampler(self._redis, {one.id: self._names[one.id] for one in founds}, calls)

    def park(self, db: Any, founds: Sequence[Found]) -> list[str]:
        self._check_stopped()
        with rq.translated():
            self._redis.hset(TAKEN, mapping={one.id: one.stored["identity"] for one in founds})
        return []

    def taken(self) -> list[LeftOver]:
        with rq.translated():
            stored = {id_.decode(): value.decode() for id_, value in self._redis.hgetall(TAKEN).items()}
        return [LeftOver(id_, name, stored.get(id_, id_), is_parked=False) for id_, name in taken_tasks.taken(NAME)]

    def give_back(self, ids: Sequence[str]) -> None:
        """Forgets them: rq cron has them in its module, and runs each interval at once when it is started."""
        self._forget(ids)

    def forget(self, ids: Sequence[str]) -> None:
        taken_tasks.forget(NAME, ids)
        self._forget(ids)

    def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            with rq.translated():
                self._redis.hdel(TAKEN, *ids)

    def again(self, now: datetime) -> list[str]:
        return super().again(now) if self.alive() else []


def _call(data: bytes | None) -> str:
    """Returns a job's call as JSON, or an empty text if it is none."""
    try:
        function, _, args, kwargs = load(unpacked(data or b""))
        return _as_json(function_name(function), args, kwargs)
    except (ValueError, TypeError, AttributeError):
        return ""


def _as_json(function: Any, args: Any, kwargs: Any) -> str:
    return json.dumps([function, args or [], kwargs or {}], sort_keys=True)


def _found(entry: Entry, id_: str, zone: str, latest: datetime | None) -> Found:
    wanted: dict[str, Any] = {"function": function_name(entry["func_name"]), "name": id_, "queue": entry["queue_name"]}
    notes = rq_entries.notes_of_ttls({name: entry.get(name) for name in rq_entries.TTLS})
    draft, times = Draft(wanted, refusals=[*_refusals(entry)], notes=[*notes]), None
    for field, ours in (("args", "args"), ("kwargs", "kwargs"), ("meta", "metadata")):
        if entry.get(field) not in (None, NO_JSON):
            wanted[ours] = json.loads(entry[field])
    if (timeout := entry.get("job_timeout") or rq_entries.USUAL_TIMEOUT) == -1:
        draft.decisions.append(
            Decision("box", "its jobs have no time limit (job_timeout -1); how long may a run last?")
        )
    else:
        wanted["box"] = timeout
    if text := entry.get("cron"):
        translated = dialects.translate(NAME, text, zone or "UTC")
        times, due = translated.times, rq_entries.moment(entry.get("next_enqueue_time"))
        wanted |= translated.wanted
        draft.refusals += [translated.refusal] if translated.refusal else []
        question = "rq cron uses the time zone of its host, which it does not store; which zone is it?"
        if zone:
            question = (
                f"its next time there is not one of {text!r} in {zone}; which is the time zone of rq cron's host?"
            )
        if not zone or (due and times and times(due - timedelta(seconds=1), 1) != [due]):
            draft.decisions.append(Decision("zone", question))
        is_due = due is not None and (latest is None or latest < due)
    else:
        wanted["every"] = entry["interval"]
        due = latest + timedelta(seconds=entry["interval"]) if latest else None
        is_due = due is not None
    wanted |= {"first": due} if is_due else {}
    if id_ != _name(entry):
        draft.changes.append(f"another entry has the name {_name(entry)}, so this one becomes {id_}")
    identity = json.dumps([_name(entry), *map(entry.get, IDENTITY)])
    return draft.found(NAME, id_, due, times=times, stored={"identity": identity, "last": latest})


def _refusals(entry: Entry) -> Iterator[str]:
    if str(entry["func_name"]).endswith(".<lambda>"):
        yield f"{entry['func_name']} is a lambda, which no worker can find by its name; give the function a name"
    for field in ("args", "kwargs", "meta"):
        if entry.get(field) == NO_JSON:
            yield f"a value in {field} is not JSON, and the record of rq cron does not name it; pass a text, a number, or an id"
    if entry.get("webhooks"):
        yield "webhooks have no counterpart; let the function call the address, or use notifications"


def _name(entry: Entry) -> str:
    return str(entry.get("name") or entry["func_name"])
