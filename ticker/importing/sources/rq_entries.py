"""Translates an entry of rq-scheduler, as it is stored in Redis, to a task. Reads no server."""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from ticker.engine import timing
from ticker.importing import dialects
from ticker.importing.found import Decision, Draft, Found, function_name
from ticker.importing.sources.pickles import load, misfits, named, unpacked
from ticker.schedules.duration import SECOND, words

SOURCE = "rq-scheduler"
TTLS = ("result_ttl", "ttl", "failure_ttl")
USUAL_RESULT_TTL = 500  # seconds, RQ's own
FIELDS = (
    "data", "meta", "origin", "timeout", "description", "started_at", "ended_at", *TTLS, "enqueue_at_front", "status",
    "dependency_ids", "success_callback_name", "failure_callback_name", "stopped_callback_name",
)  # fmt: skip
"""The fields of RQ's job that an entry consists of."""

USUAL_TIMEOUT, USUAL_PASS = (
    180,
    60,
)  # seconds: the defaults of RQ, and of the interval of rqscheduler, which Redis does not hold
SOON = timedelta(seconds=30)
"""How far ahead a time has to lie, so that it has not passed when the task is registered."""

Job = Mapping[str, bytes]


def found(id_: str, score: float, job: Job, now: datetime, zone: str) -> Found:
    """Returns the entry with this next time, a Unix time, and with these fields of its job.

    `zone` is that of the scheduler's host, if the operator has said it.
    """
    next_there = datetime.fromtimestamp(score, UTC)
    entry, times = Draft({"name": id_}), None
    if not job.get("data"):
        entry.refusals.append(
            "its job no longer exists in Redis, so there is nothing to import; rq-scheduler removes the entry at its next pass"
        )
        return entry.found(SOURCE, id_, next_there, stored={"identity": ""})
    meta, last = _meta(entry, job), moment(job.get("started_at"))
    _call(entry, job["data"])
    _not_taken(entry, job, meta)
    if not entry.refusals:
        times = _schedule(entry, meta, next_there, last, now, zone)
        _box(entry, job)
    identity = blake2b(job["data"] + repr((meta.get("interval"), meta.get("cron_string"))).encode(), digest_size=8)
    return entry.found(SOURCE, id_, next_there, times=times, stored={"identity": identity.hexdigest(), "last": last})


def _meta(entry: Draft, job: Job) -> dict[str, Any]:
    try:
        meta = load(job["meta"]) if job.get("meta") else {}
    except ValueError:
        meta = None
    if isinstance(meta, dict):
        return meta
    entry.refusals.append("its meta, which has its schedule, cannot be read; schedule it again")
    return {}


def _call(entry: Draft, data: bytes) -> None:
    """Reads the function and its arguments."""
    try:
        function, instance, args, kwargs = load(unpacked(data))
    except (ValueError, TypeError) as error:
        entry.refusals.append(f"its job cannot be read ({error}); schedule it again")
        return
    if instance is not None or not isinstance(function, str):
        entry.refusals.append(
            f"{function} is a method of an object of type {named(instance)}, and is stored with that object; schedule a function"
        )
    elif "<" in function:
        entry.refusals.append(f"{function} is defined inside a function, where no worker finds it; move it to a module")
    else:
        entry.wanted["function"] = function_name(function)
    if lost := [*misfits(args, "args"), *misfits(kwargs, "kwargs")]:
        entry.refusals.append(f"arguments are stored as JSON, but {'; '.join(lost)}: pass a text or an id")
        return
    if args:
        entry.wanted["args"] = list(args)
    if kwargs:
        entry.wanted["kwargs"] = kwargs


def _not_taken(entry: Draft, job: Job, meta: Mapping[str, Any]) -> None:
    """Refuses what a task cannot do, and names what is lost."""
    if callbacks := [
        name.removesuffix("_callback_name") for name in FIELDS if name.endswith("_callback_name") and job.get(name)
    ]:
        entry.refusals.append(
            f"a task has no callbacks, and this job has one for {', '.join(callbacks)}; call it in the function"
        )
    if job.get("dependency_ids"):
        entry.refusals.append(
            "it depends on another job (depends_on), which a task cannot do; call one function from the other"
        )
    if "queue_class_name" in meta:
        entry.refusals.append(
            "its queue has its own class (queue_class), but tasks use RQ's own queues; use one of those"
        )
    entry.wanted["queue"] = _text(job, "origin") or "default"
    own = {
        key: value
        for key, value in meta.items()
        if key not in ("interval", "repeat", "cron_string", "use_local_timezone")
    }
    if own and not [*misfits(own, "meta")]:
        entry.wanted["metadata"] = own
        entry.notes.append("its meta becomes the task's metadata: the function does not get it from get_current_job()")
    elif own:
        entry.changes.append(f"its meta is left out: {next(misfits(own, 'meta'))}")
    description = _text(job, "description")
    if description and not description.startswith(
        entry.wanted.get("function", "").replace(":", ".") + "("
    ):  # RQ's own is the call
        entry.wanted["description"] = description
    if _text(job, "enqueue_at_front") == "1":
        entry.notes.append("it goes to the front of its queue there; here, priority orders the tasks of an owner")
    entry.notes += notes_of_ttls({name: _whole(job, name) for name in TTLS})


def _schedule(
    entry: Draft, meta: Mapping[str, Any], next_there: datetime, last: datetime | None, now: datetime, zone: str
) -> dialects.Times | None:
    """Reads the schedule. `first` is the next time there, but not before the last run there plus the interval."""
    try:
        every, repeat = int(meta.get("interval") or 0), meta.get("repeat")
        repeat = None if repeat is None else max(1, int(repeat))  # with 0, it is pushed once more
    except (TypeError, ValueError):
        entry.refusals.append("the interval or repeat in its meta is not a number; schedule it again")
        return None
    if (every or meta.get("cron_string")) and repeat is not None:
        entry.wanted["max_runs"] = repeat
        entry.notes.append(f"repeat: {repeat} more; rq-scheduler counts pushes, and max_runs counts starts")
    if every:
        first = next_there if last is None else max(next_there, last + timedelta(seconds=every))
        entry.wanted |= {"every": every, "first": first}
        if every % USUAL_PASS:
            in_force = math.ceil(every / USUAL_PASS) * USUAL_PASS
            entry.decisions.append(Decision(
                "every", f"with the default --interval of rqscheduler, {USUAL_PASS} s, an interval of {every} s becomes {in_force} s; "
                "which one is in force?",
            ))  # fmt: skip
        return None
    if text := meta.get("cron_string"):
        return _cron(entry, str(text), next_there, zone)
    entry.wanted |= {"at": max(next_there, now + SOON), "remove": True}
    if next_there < now:
        entry.changes.append("its time has passed: it runs once, immediately, as in rq-scheduler")
    return None


def _cron(entry: Draft, text: str, next_there: datetime, zone: str) -> dialects.Times | None:
    read = dialects.translate(SOURCE, text, zone or "UTC")
    if read.refusal:
        entry.refusals.append(read.refusal)
        return None
    entry.wanted |= {**read.wanted, "first": next_there}
    fits = read.times is not None and read.times(next_there - timedelta(seconds=1), 1) == [next_there]
    if zone and not fits:
        entry.changes.append(f"its next time there is not a time of {text!r} in {zone}: check --zone")
    elif not zone and not (fits and text.split()[1:5] == ["*"] * 4):
        entry.decisions.append(Decision(
            "zone", "rq-scheduler reads a cron text in the zone of its host, which it does not store; its next time "
            f"{'fits' if fits else 'does not fit'} UTC",
        ))  # fmt: skip
    return read.times


def _box(entry: Draft, job: Job) -> None:
    """Takes RQ's timeout as the box, if it fits into the interval."""
    timeout = _whole(job, "timeout") or USUAL_TIMEOUT
    last = (
        f"; its last run took less than {int(seconds) + 1} s"
        if (seconds := took(job.get("started_at"), job.get("ended_at"))) is not None
        else ""
    )
    every = entry.wanted.get("every", 0) * SECOND
    most = every - timing.grace(every) - timing.tolerance_by_default(every)
    if timeout < 0:
        entry.decisions.append(Decision("box", f"RQ never stops it (timeout -1), and a task needs a box{last}"))
    elif every and timeout * SECOND > most:
        entry.decisions.append(
            Decision(
                "box", f"RQ stops it after {timeout} s, and with its interval, a box lasts at most {words(most)}{last}"
            )
        )
    else:
        entry.wanted["box"] = timeout


def took(started_at: bytes | None, ended_at: bytes | None) -> float | None:
    """Returns how long a job's last run took, in seconds, or None if it has not ended."""
    began, ended = moment(started_at), moment(ended_at)
    return (ended - began).total_seconds() if began and ended and ended >= began else None


def mean(took: Iterable[float | None]) -> float:
    """Returns the mean of the durations that are known, in seconds, or 0 without any."""
    known = [seconds for seconds in took if seconds is not None]
    return sum(known) / len(known) if known else 0.0


def notes_of_ttls(ttls: Mapping[str, int | None]) -> Iterator[str]:
    """Yields a note for each of RQ's times to live that is set, by its name, in seconds."""
    for name, seconds in ttls.items():
        if seconds and seconds > 0 and (name, seconds) != ("result_ttl", USUAL_RESULT_TTL):
            yield f"{name} of {seconds} s is left out: Redis keeps no result of a task"


def _text(job: Job, name: str) -> str:
    return job.get(name, b"").decode("utf-8", "replace")


def _whole(job: Job, name: str) -> int | None:
    try:
        return int(_text(job, name))
    except ValueError:
        return None


def moment(text: bytes | str | None) -> datetime | None:
    """Returns one of RQ's times, which are in UTC, or None. The year 9999 stands for an interval that has never run."""
    try:
        at = datetime.fromisoformat(text.decode() if isinstance(text, bytes) else text or "")
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) if at.year < 9999 else None
