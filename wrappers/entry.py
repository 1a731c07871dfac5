"""The function that RQ calls for every task: `wrappers.run`."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from socket import gethostname
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError
from rq import Worker as RqWorker
from rq import get_current_job
from rq.exceptions import StopRequested
from rq.job import Job

from ticker import clock, settings
from ticker.engine import jobs
from ticker.errors import ConfigurationError, DatabaseUnavailable
from ticker.model import Reason
from ticker.settings import Settings
from wrappers.layers import one_of_several, run_alone
from wrappers.layers.sentry import one_issue
from wrappers.pipeline import foreign_jobs, registry, start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database
from wrappers.sandbox import shared_state

if TYPE_CHECKING:
    from wrappers.group.refill import Pipe

log = logging.getLogger("ticker.run")


@contextmanager
def noting_outages() -> Iterator[None]:
    """Notes that the database ended the job, so that the sweep does not call its worker unfit."""
    try:
        yield
    except DatabaseUnavailable as error:
        if job := get_current_job():
            note_reason(job, f"its job ended on the host {gethostname()!r}: {error}", refusals=0)
        raise


@noting_outages()
def run(task_id: int, occurrence: int, planned: int | None = None) -> str:
    """Runs the task's function, or drops the job. Returns a short text for RQ.

    `occurrence` is in microseconds since 1970. For a planned run, it is 0, and `planned` is the id of its row in
    `runs`. Everything else is read from the task's row at the start. A worker may let the job begin a group.
    """
    if _is_batch:
        return run_batch(task_id, occurrence)
    job = get_current_job()
    asked = taken(job.id if job else "")
    if isinstance(asked, Exception):
        raise asked
    if isinstance(asked, str):
        return asked
    config = asked.settings if asked else own_settings(job)
    with closing(Database(config.require_database(), config.schema)) as database:
        if asked is None:
            warn_of_imports(job)
            foreign_jobs.refuse(job.id if job else "", database, config)
            asked = new_call(task_id, occurrence, planned, job=job, database=database, config=config)
        answer = run_alone(replace(asked, database=database))
    note_unknown(job, asked.worker, answer)
    return answer


@noting_outages()
def run_batch(*numbers: int) -> str:
    """Runs several tasks one after another, each as `run` would. `numbers` are the id and the occurrence of each.

    The negative id of a planned run may stand for the occurrence.

    The tasks are independent: each one fails, is dropped or is interrupted by itself. A task that is killed takes this
    process with it. The ticker then pushes the tasks after it again, each in its own job. When the worker stops, they go
    back to their rows. If the function has `concurrency`, a `Group` runs the tasks.
    """
    job, deadline_of_batch = get_current_job(), shared_state.deadline()
    config = own_settings(job)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    answers: Counter[str] = Counter()
    opened = closing(Database(config.require_database(), config.schema))
    with one_issue(function_named_by(job)), opened as database:
        if not _is_batch:
            warn_of_imports(job)
            foreign_jobs.refuse(job.id if job else "", database, config)
        calls = [numbered_call(*pair, job=job, database=database, config=config) for pair in pairs]
        if (function := grouped_function(job)) is not None:
            from wrappers.group.group import Group  # imported here, because other jobs do not need it

            return Group(calls, function.concurrency, _further_jobs).work()
        for number, call in enumerate(calls):
            if shared_state.is_stopping():
                start.give_back(calls[number:], Reason.NO_SLOT)
                break
            answer = "failed"
            with one_of_several(call, DatabaseUnavailable):  # without the database, no further start is possible
                answer = run_alone(replace(call, rq_timeout=None))
            note_unknown(job, call.worker, answer)
            answers[answer.partition(":")[0]] += 1
            shared_state.write_deadline(deadline_of_batch)  # the task's deadline is over
    return ", ".join(f"{count} {answer}" for answer, count in answers.items())


def grouped_function(job: Job | None) -> registry.Function | None:
    """Returns the function of a job whose tasks run as a group, or None. The ticker describes a batch as `mail.fetch x
    50`.
    """
    description = (job.description or "") if job else ""
    function = registry.functions().get(description) or registry.functions().get(description.rpartition(" x ")[0])
    return function if function is not None and function.concurrency > 1 else None


def function_named_by(job: Job | None) -> str:
    return (job.description or "").partition(" x ")[0] if job else ""


def is_apart(job: Job) -> bool:
    """Returns whether no other job shares the process of this batch."""
    return (job.description or "").endswith(jobs.APART)


def numbered_call(task_id: int, number: int, **of_job: Any) -> Call:
    return new_call(task_id, number, -min(number, 0), **of_job)


def own_settings(job: Job | None) -> Settings:
    """Returns this worker's settings, with its functions imported. Raises ConfigurationError if the worker cannot run
    our jobs.

    The ticker hears of it through Redis: it pushes the job once more, perhaps to a better worker.
    """
    try:
        config = settings.from_environment()
        refuse_without_a_horse(config)
        config.require_database()
        registry.load(config.tasks, config.functions)
    except ConfigurationError as error:
        if job is not None:
            note_refusal(job, error)
        raise
    return config


def note_refusal(job: Job, error: ConfigurationError) -> None:
    note_reason(job, f"the worker on host {gethostname()!r} refused the job: {error}", refusals=1)
    note_worker(job, job.worker_name or "", str(error))


def note_reason(job: Job, reason: str, *, refusals: int) -> None:
    key = f"{job.key}{jobs.REFUSED}"
    with suppress(RedisError), job.connection.pipeline(transaction=False) as calls:
        calls.hincrby(key, "count", refusals)
        calls.hset(key, "reason", reason)
        calls.expire(key, jobs.REFUSED_KEPT)
        calls.execute()


def note_unknown(job: Job | None, worker: str, answer: str) -> None:
    """Notes that the worker does not know the function of a job, if that is the answer to its start."""
    word, _, why = answer.partition(": ")
    if word == Reason.UNKNOWN_HERE and job is not None:
        note_worker(job, worker, why)


def note_worker(job: Job, worker: str, why: str) -> None:
    """Notes on RQ's hash of a worker that it refuses jobs, for `ticker health` and `doctor`."""
    if worker:
        with suppress(RedisError):
            key = RqWorker.redis_worker_namespace_prefix + worker
            job.connection.hset(key, jobs.REFUSES, jobs.refusal(clock.python_utc(), why))


def refuse_without_a_horse(config: Settings) -> None:
    """Raises ConfigurationError if a kill would hit the worker itself."""
    if config.hard_limit != "off" and not in_a_horse():
        raise ConfigurationError(
            "this worker does not fork its jobs, so a hard limit would kill the worker: "
            "use rq.Worker or wrappers.Worker, or set TICKER_HARD_LIMIT=off"
        )


_imported_by = os.getpid()


def warn_of_imports(job: Job | None) -> None:
    """Warns once for each stock worker that did not import us before it forked. RQ's own hash of the worker notes that."""
    if job is None or os.getpid() != _imported_by or not in_a_horse():
        return
    key = RqWorker.redis_worker_namespace_prefix + os.environ.get("RQ_WORKER_ID", "")
    with suppress(RedisError):
        if job.connection.hsetnx(key, "imports_again", 1):
            log.warning(
                "each run imports wrappers again and costs more CPU: start this worker with "
                "`rq worker -c wrappers.entry`, or use `ticker worker`",
                extra={"event": "imported_in_each_run"},
            )


_is_batch = False
_further_jobs: "Pipe | None" = None


@contextmanager
def batch(further_jobs: "Pipe | None" = None) -> Iterator[None]:
    """Lets a process that our worker forks in the block run its job as a batch. A group may get further jobs."""
    global _is_batch, _further_jobs
    _is_batch, _further_jobs = True, further_jobs
    try:
        yield
    finally:
        _is_batch, _further_jobs = False, None


Asked = Call | str | Exception
_asked: tuple[str, Asked] | None = None


def ask(args: tuple[int, ...], job: Job, worker: str, database: Database, when_it_waits: Callable[[], object]) -> bool:
    """Requests the start of a job before the fork, for `run` to continue. Returns False if it may not run."""
    global _asked
    answer: Asked
    try:
        call = new_call(*args, job=job, database=database, config=settings.from_environment())
        answer = start.ask(replace(call, worker=worker, pid=None), when_it_waits)
    except StopRequested:
        raise
    except Exception as error:
        answer = error
    _asked = job.id, answer
    if isinstance(answer, str):
        note_unknown(job, worker, answer)
        return False
    return True


def taken(job_id: str) -> Asked | None:
    """Returns the answer to `ask` for this job, once; None if there was no request."""
    global _asked
    answer, _asked = _asked, None
    return answer[1] if answer and answer[0] == job_id else None


def new_call(
    task_id: int, occurrence: int, planned: int | None = None, *, job: Job | None, database: Database, config: Settings
) -> Call:
    """Returns a call for this process, without a start."""
    registry.load(config.tasks, config.functions)
    return Call(
        task_id=task_id,
        occurrence=None if planned else jobs.instant(occurrence),
        planned=planned or None,
        job_id=job.id if job else "",
        worker=os.environ.get("RQ_WORKER_ID", ""),
        function=function_named_by(job),
        pid=os.getpid(),
        rq_timeout=int(job.timeout) if job and job.timeout else None,
        settings=config,
        database=database,
    )


def in_a_horse() -> bool:
    """Returns whether this process was forked for this one job, so that a kill ends nothing else."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "main_work_horse":
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None
