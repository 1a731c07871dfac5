"""Lists the undocumented names of RQ that our worker relies on, and finds those that a release of RQ changed.

`tests/worker/test_compatibility.py` fails with one sentence per name that RQ moved, renamed or gave other parameters.
It also fails if one of our modules overrides or uses such a name without an entry here.
"""

import inspect
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from types import FunctionType
from typing import Any

from rq import Queue
from rq import job as rq_job
from rq.executions import Execution
from rq.utils import utcformat
from rq.version import VERSION

log = logging.getLogger("ticker.run")

TRIED = "3.0.0"
"""The newest RQ that the tests ran with. The oldest is the lower bound in pyproject.toml."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name in RQ. `parameters` are those of a method that we override, without `self` or `cls`, else None.

    A parameter in brackets exists only in some versions. RQ has the name from major version `since` up to, but not
    including, `before`.
    """

    name: str
    reason: str
    parameters: str | None = None
    since: int = 2
    before: int = 4


def used(name: str, reason: str, since: int = 2, before: int = 4) -> Use:
    return Use(name, reason, None, since, before)


def overridden(name: str, parameters: str, reason: str, since: int = 2) -> Use:
    return Use(name, reason, parameters, since)


TABLE: Mapping[str, tuple[Use, ...]] = {
    "rq.worker.Worker": (
        # for one job
        overridden("execute_job", "job queue", "leftover memory and processes of a job are counted from before it"),
        overridden("prepare_execution", "job", "the start is requested before the fork, so that a dropped job costs no fork"),
        overridden(
            "prepare_job_execution", "job remove_from_intermediate_queue", "the worker informs Redis before the fork"
        ),
        overridden("fork_work_horse", "job queue", "a dropped or stopped job gets no process; a batch gets our connection"),
        overridden("main_work_horse", "job queue", "the process writes its id; `entry.in_a_horse` looks for this frame"),
        overridden("monitor_work_horse", "job queue [execution]", "a job without a process is not waited for"),
        overridden("wait_for_horse", "", "the end of a run is written, and its children are killed, before RQ continues"),
        overridden("kill_horse", "sig", "RQ would kill the worker's own process group if the process does not lead one"),
        overridden("handle_payload", "message", "a run is stopped by a command of ours on the worker's channel"),
        overridden("handle_execution_ended", "job queue heartbeat_ttl", "our jobs need no heartbeat for callbacks"),
        overridden(
            "handle_job_success", "job queue started_job_registry [execution]", "the worker forgets the job, in one call to Redis"
        ),
        used("handle_job_failure", "a job that was stopped before it had a process fails as RQ's own would"),
        used("cleanup_execution", "a job that broke RQ's code leaves no execution"),
        used("execution", "the execution of a forgotten job is removed with it"),
        used("executions", "without an execution, RQ 3's `execution` would query Redis", since=3),
        used("default_result_ttl", "a job is forgotten only if its result would be"),
        used("is_horse", "the process of a job leaves the ends of others to its worker"),
        used("_horse_pid", "0 means that no process is left; RQ's handler of a second SIGTERM reads it"),
        used("_stopped_job_id", "a job may be stopped before it has a process"),
        # between jobs
        overridden(
            "work", "burst logging_level date_format log_format max_jobs max_idle_time with_scheduler dequeue_strategy",
            "a group takes no further jobs if their number is limited",
        ),
        overridden(
            "dequeue_job_and_maintain_ttl", "timeout max_idle_time", "waiting ends are tried while the worker waits for jobs"
        ),
        overridden("_set_connection", "connection", "TCP keepalive detects a connection that has vanished"),
        used("worker_ttl", "a worker waits for a job for 15 s less, and RQ drops it from its list a minute later"),
        overridden("heartbeat", "timeout pipeline", "waiting ends are written; a worker that Redis lost registers again"),
        overridden("register_birth", "", "its hash in Redis says that it is of our class"),
        overridden("check_for_suspension", "burst", "a busy worker asks once a second"),
        overridden("set_state", "state pipeline", "a state that Redis has is not written again"),
        overridden("maintain_heartbeats", "job [execution]", "RQ does not store a heartbeat of a job that was forgotten"),
        overridden("run_maintenance_tasks", "", "a corrupt job in a registry ends one pass, not the worker"),
        overridden("handle_warm_shutdown_request", "", "a group begins nothing new after a request to stop"),
        overridden("teardown", "", "waiting ends are tried before the worker ends"),
        overridden("_start_scheduler", "burst logging_level date_format log_format", "RQ's scheduler takes unsigned jobs"),
        used("max_connection_wait_time", "with RQ's pauses of up to a minute, a worker sleeps long after Redis is back"),
        used("_state", "a signal during the start request waits for the job, though Redis does not know of it yet"),
        used("_stop_requested", "a request to stop holds although a library swallowed RQ's exception"),
        used("_shutdown_requested_date", "a worker that is asked to stop gives waiting ends less time"),
        used("_ordered_queues", "RQ's command line has filled it with queues of RQ's own class"),
        used("last_cleaned_at", "an interrupted maintenance pass is not repeated at once"),
        used("death_penalty_class", "the queues that replace RQ's need it"),
    ),
    "rq.worker_registration": (used("register", "a wiped worker registers again"),),
    "rq.job.Job": (
        overridden("fetch", "id connection serializer", "a job that cannot be read is put aside"),
        overridden("refresh", "", "the hash is read within limits"),
        overridden("restore", "raw_data", "values out of range are refused; only few fields of a signed job are read"),
        overridden("prepare_for_execution", "worker_name pipeline", "the same call makes the job outlive its time to live"),
        overridden("perform", "", "the process of a job does not repeat the worker's report to Redis"),
        used("_execute", "our `perform` calls the function as RQ's does"),
        used("_result", "RQ reads the result there"),
        used("_func_name", "a signed job is not unpickled: the call is set from what was signed"),
        used("_instance", "as `_func_name`"),
        used("_args", "as `_func_name`"),
        used("_kwargs", "as `_func_name`"),
        used("_success_callback_name", "a job with callbacks is left to RQ; the property would import what it names"),
        used("_failure_callback_name", "as `_success_callback_name`"),
        used("_stopped_callback_name", "as `_success_callback_name`"),
        used("get_result_ttl", "a job is forgotten only if its result would be"),
        used("group_id", "a job of a group is left to RQ"),
        used("dependents_key", "a job that others wait for is not forgotten"),
        used("dependents_key_for", "a corrupt job's other keys are removed"),
        used("dependencies_key", "a forgotten job's other keys are removed"),
        used("execution_registry", "a forgotten job's other keys are removed"),
        used("started_job_registry", "a forgotten job is removed from it"),
        used("redis_job_namespace_prefix", "our script stores the jobs"),
    ),
    "rq.job": (
        used("_job_stack", "our `perform` makes `get_current_job` answer", before=3),
        used("_current_job", "as `_job_stack`", since=3),
    ),
    "rq.queue.Queue": (
        overridden(
            "dequeue_any", "queues timeout connection job_class serializer death_penalty_class",
            "corrupt jobs are put aside, and those of other installations put back",
        ),
        overridden("lmove", "connection queue_key timeout", "an id without a job is removed from the intermediate list at once"),
        overridden(
            "enqueue_dependents", "job [pipeline] exclude_job_id refresh_job_status", "names of dependents are not signed"
        ),
        overridden(
            "move_dependents_to_ready", "job pipeline exclude_job_id refresh_job_status", "as `enqueue_dependents`", since=3
        ),
        used("release_maintenance_lock", "an interrupted maintenance pass still holds it"),
        used("intermediate_queue_key", "a job that is put aside or forgotten is removed from that list"),
        used("redis_queues_keys", "our script stores the jobs"),
        used("redis_queue_namespace_prefix", "our script stores the jobs"),
        used("DEFAULT_TIMEOUT", "RQ compares a job's timeout with numbers"),
    ),
    "rq.intermediate_queue.IntermediateQueue": (
        used("get_intermediate_queue_key", "an id without a job is removed from that list at once"),
    ),
    "rq.executions.Execution": (used("composite_key", "a forgotten job is removed from the registry of started jobs"),),
    "rq.executions.ExecutionRegistry": (used("key_template", "a corrupt job's other keys are removed"),),
    "rq.results.Result": (used("get_key", "a corrupt job's results are removed"),),
    "rq.registry.BaseRegistry": (used("key_template", "a corrupt job is removed from RQ's registries"),),
}  # fmt: skip
"""The names by the RQ module or class that holds them."""


def incompatibilities() -> Iterator[str]:
    """Yields one sentence for each entry of the table that does not fit the installed RQ."""
    for owner, uses in TABLE.items():
        for use in uses:
            if use.since <= version_of(VERSION)[0] < use.before and (sentence := incompatibility(owner, use)):
                yield sentence


def incompatibility(owner: str, use: Use) -> str:
    """Returns a sentence with the name, RQ's version and why we need it; an empty string if the entry fits."""
    name, version = f"{owner}.{use.name}", f"RQ {VERSION}"
    try:
        place = resolve_name(owner)
    except (ImportError, AttributeError):
        return f"{owner} is gone from {version}, and we need {name}: {use.reason}"
    if use.name not in names_of(place):
        return f"{name} is gone from {version}, and we need it: {use.reason}"
    if use.parameters is not None and not are_taken(there := parameters_of(place, use.name), use.parameters.split()):
        return f"{name} has the parameters ({', '.join(there)}) in {version}, and we override ({use.parameters}): {use.reason}"
    return ""


def are_taken(there: list[str], ours: list[str]) -> bool:
    return there == [name for one in ours if (name := one.strip("[]")) in there or name == one]


def version_of(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def parameters_of(place: Any, name: str) -> list[str]:
    return [parameter for parameter in inspect.signature(getattr(place, name)).parameters if parameter != "self"]


def names_of(place: Any) -> set[str]:
    """Returns the names in a module or a class, and for a class also the attributes that its methods set or read."""
    if not isinstance(place, type):
        return set(vars(place))
    names: set[str] = set()
    for base in place.__mro__[:-1]:
        for name, value in vars(base).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            names |= {name, *(function.__code__.co_names if isinstance(function, FunctionType) else ())}
    return names


def is_untried() -> bool:
    return version_of(VERSION) > version_of(TRIED)


@cache
def incompatibilities_of_newer() -> tuple[str, ...]:
    """Returns the incompatibilities of an RQ release newer than those tested, and logs one sentence about it."""
    if not is_untried():
        return ()
    problems = tuple(incompatibilities())
    does = (
        f"starts are requested after the fork, because {problems[0]}"
        if problems
        else "everything that we rely on is there"
    )
    log.warning("rq_untried version=%s tried=%s: %s", VERSION, TRIED, does, extra={"event": "rq_untried"})
    return problems


@contextmanager
def current(job: Any) -> Iterator[None]:
    """Makes `get_current_job` return this job in the block."""
    known = vars(rq_job)
    if "_current_job" in known:  # a ContextVar since RQ 3, a stack before that
        token = known["_current_job"].set(job)
        try:
            yield
        finally:
            known["_current_job"].reset(token)
        return
    known["_job_stack"].push(job)
    try:
        yield
    finally:
        known["_job_stack"].pop()


def begun_execution(worker: Any) -> Any:
    """Returns the execution of the worker's job, or None. RQ 3 may have several, but a forking worker has only one."""
    executions = getattr(worker, "executions", None)
    return worker.execution if executions is None else next(iter(executions.values()), None)


def new_execution(worker: Any, job: Any, ttl: int) -> Any:
    """Reports to RQ that the worker executes a further job. Returns the execution, which expires after `ttl` seconds."""
    of_worker = {"worker_name": worker.name} if hasattr(worker, "executions") else {}
    with worker.connection.pipeline() as calls:
        execution = Execution.create(job, ttl, calls, **of_worker)
        job.prepare_for_execution(worker.name, calls)
        calls.lrem(Queue(job.origin, connection=worker.connection).intermediate_queue_key, 1, job.id)
        calls.execute()
    return execution


def execution_argument(worker: Any) -> dict[str, Any]:
    """Returns the argument that RQ 3 requires where older RQ reads `worker.execution`."""
    return {"execution": begun_execution(worker)} if hasattr(worker, "executions") else {}


def birth_fields(worker: Any) -> dict[Any, Any]:
    """Returns the fields that RQ writes for a worker at its birth. RQ 2.6 has no method for this."""
    return {
        "birth": utcformat(worker.birth_date),
        "last_heartbeat": utcformat(getattr(worker, "last_heartbeat", None) or worker.birth_date),
        "queues": ",".join(worker.queue_names()),
        **{name: getattr(worker, name) for name in ("pid", "hostname", "ip_address", "version", "python_version")},
    }
