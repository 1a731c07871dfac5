"""What our worker relies on in RQ is there in the RQ that is installed, and is listed with its reason."""

import ast
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from redis import Redis
from rq.job import Job
from rq.results import Result
from rq.version import VERSION
from rq.worker import Worker

import ticker
from tests.running import ROOT, work
from tests.sentences import sentence
from ticker.engine.tick import tick
from wrappers.rq import between_jobs, compatibility, corrupt_jobs, signed_worker, worker
from wrappers.rq.compatibility import TABLE, Use, incompatibilities, incompatibility, names_of, overridden

LISTED = {use.name for uses in TABLE.values() for use in uses}
MAJOR = compatibility.version_of(VERSION)[0]
OVERRIDDEN = {
    use.name
    for uses in TABLE.values()
    for use in uses
    if use.parameters is not None and use.since <= MAJOR < use.before
}
SOURCES = (*(ROOT / "wrappers").rglob("*.py"), *(ROOT / "ticker" / "queue").glob("*.py"))
NOT_RQS = {"_exit", "_process", "_job"}  # os._exit; attributes of `limits` and of PreparedStart


@pytest.mark.smoke
def test_rq_has_everything_that_we_rely_on():
    if sentences := list(incompatibilities()):
        pytest.fail("\n".join(sentences), pytrace=False)


def test_every_method_of_rq_that_we_override_is_listed():
    ours = [
        one for module in (between_jobs, corrupt_jobs, signed_worker, worker) for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__
    ]  # fmt: skip
    assert set(chain.from_iterable(overrides(one) for one in ours)) == OVERRIDDEN | {"max_connection_wait_time"}


def overrides(ours: type) -> Iterator[str]:
    """The names, without those of Python, that a class of ours takes from a class of RQ."""
    for base in ours.__mro__:
        if base.__module__.partition(".")[0] == "rq":
            yield from {name for name in vars(ours) if not name.startswith("__")} & names_of(base)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_private_name_of_rq_that_we_use_is_listed(source):
    theirs = names_of(Worker) | names_of(Job) | names_of(corrupt_jobs.RQQueue)
    assert {name for name in private_names(source) if name in theirs or name.startswith("rq:")} - NOT_RQS <= LISTED


def private_names(source: Path) -> Iterator[str]:
    """Every `x._name`, and what is imported from RQ under such a name."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rq":
            yield from (alias.name if alias.name in LISTED else f"rq:{alias.name}" for alias in node.names
                        if is_private(alias.name))  # fmt: skip


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(
    ("owner", "use", "sentence"),
    [
        (
            "rq.worker.Worker", Use("_steed_pid", "it carries the job"),
            f"rq.worker.Worker._steed_pid is gone from RQ {VERSION}, and we need it: it carries the job",
        ),
        (
            "rq.worker.Horse", Use("run", "it runs"),
            f"rq.worker.Horse is gone from RQ {VERSION}, and we need rq.worker.Horse.run: it runs",
        ),
        (
            "rq.worker.Worker", overridden("execute_job", "job", "it does"),
            f"rq.worker.Worker.execute_job has the parameters (job, queue) in RQ {VERSION}, and we override (job): it does",
        ),
    ],
)  # fmt: skip
def test_a_name_that_rq_moved_is_said_in_one_sentence(owner, use, sentence):
    assert incompatibility(owner, use) == sentence


@pytest.mark.parametrize(("there", "fits"), [("job", True), ("job execution", True), ("job other", False), ("", False)])
def test_a_parameter_in_brackets_may_be_missing(there, fits):
    assert compatibility.are_taken(there.split(), ["job", "[execution]"]) is fits


@pytest.mark.parametrize(
    ("version", "lost", "logged"),
    [
        ("3.0.0", True, []),
        ("3.1.0", False, [sentence("warnings.rq_untried", version="3.1.0")]),
        ("3.1.0", True, [sentence("warnings.rq_untried_misfit", version="3.1.0", misfit="it is gone")]),
    ],
)
def test_a_worker_says_that_rq_is_newer_than_those_tried(version, lost, logged, monkeypatch, caplog):
    monkeypatch.setattr(compatibility, "VERSION", version)
    monkeypatch.setattr(compatibility, "incompatibilities", lambda: ["it is gone"] if lost else [])
    assert compatibility.incompatibilities_of_newer.__wrapped__() == (("it is gone",) if lost and logged else ())
    assert caplog.messages == logged


@pytest.mark.slow
def test_a_worker_goes_on_with_an_untried_rq_that_misses_a_name(traced, db, store, queue):
    for name in ("first", "second"):
        ticker.register(db, "plain", name=name, every="1h")
    tick(store, queue)
    lines = work(patch=MISSES_A_NAME).stdout.splitlines()
    assert [run.outcome for run in ticker.list_runs(db)] == ["succeeded", "succeeded"]
    why = "rq.worker.Worker._steed_pid is gone from RQ 3.1.0, and we need it: it carries the job"
    said = sentence("warnings.rq_untried_misfit", version="3.1.0", misfit=why)
    assert sum(said.within(line) for line in lines) == 1


MISSES_A_NAME = """
from wrappers.rq import compatibility, worker
compatibility.VERSION = "3.1.0"
compatibility.TABLE = {"rq.worker.Worker": (compatibility.used("_steed_pid", "it carries the job"),)}
worker.PreparedStart = None  # nothing is prepared before the fork
"""


def test_the_newest_rq_that_was_tried_is_below_the_limit_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "rq>=2.6.1,<4" in project["dependencies"]
    assert (2, 6, 1) <= compatibility.version_of(compatibility.TRIED) < (4,)


def test_the_keys_of_a_corrupt_job_are_those_that_rq_writes():
    job = Job("x", connection=Redis())
    assert set(corrupt_jobs.companions("x")) == {
        job.dependents_key, job.dependencies_key, job.execution_registry.key, Result.get_key("x")
    }  # fmt: skip
    assert {type(registry) for registry in registries_that_keep_jobs(job)} == set(corrupt_jobs.REGISTRIES)


def registries_that_keep_jobs(job: Job) -> list[object]:
    queue = corrupt_jobs.RQQueue("q", connection=job.connection)
    return [
        queue.canceled_job_registry, queue.deferred_job_registry, queue.failed_job_registry,
        queue.finished_job_registry, queue.scheduled_job_registry,
        *([queue.ready_job_registry] if MAJOR > 2 else []),
    ]  # fmt: skip
