"""The log lines of real workers: one for each run, with the task's name and owner, as text or as JSON."""

import json
import re

import pytest

import ticker
from tests.running import work
from ticker.engine.tick import tick

pytestmark = pytest.mark.slow

FORGED = "2026-03-01T12:00:00.000Z INFO ticker tick due=0"
FAILS = """
from wrappers import task

@task("fails.together", batch=3, concurrency={concurrency})
async def fails_together(words):
    raise ValueError(words)
"""
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def about(task, lines):
    return [line for line in lines if re.search(rf"task={task.id}\b|-t{task.id}-", line)]


@pytest.fixture
def owner(db):
    return "customer:7"


def test_a_success_has_one_line_with_name_and_owner(environ, db, store, queue, owner):
    task = ticker.register(db, "returns.nan", name="inbox", owner=owner, every="1m")
    tick(store, queue)
    lines = work().stdout.splitlines()
    [run] = ticker.list_runs(db)
    [line] = about(task, lines)
    assert re.fullmatch(
        rf"{TIME} INFO ticker\.run run succeeded task={task.id} name=inbox owner=customer:7 run={run.id} job=\S+: {run.reason}",
        line,
    )
    assert all(re.match(rf"{TIME} [A-Z]+ (rq|ticker)", one) for one in lines)


@pytest.mark.parametrize(("name", "outcome"), [("fails", "failed"), ("kills.itself", "killed")])
def test_a_failure_names_the_task_and_says_why(name, outcome, environ, db, store, queue, owner):
    task = ticker.register(db, name, owner=owner, every="1m")
    tick(store, queue)
    lines = work().stdout.splitlines()
    [run] = ticker.list_runs(db)
    [line] = [one for one in about(task, lines) if " run " in one]
    assert (
        f"WARNING ticker.run run {outcome} task={task.id} name={name} owner=customer:7 run={run.id} job={run.job_id}: "
        in line
    )
    assert line.endswith(f": {run.reason}")


def test_a_drop_and_what_goes_back_name_their_owner(environ, db, store, queue, owner):
    unknown = ticker.register(db, "unheard.of", owner=owner, every="1m")
    task = ticker.register(db, "plain", owner=owner, every="1m")
    tick(store, queue)
    db.execute("UPDATE ticker.tasks SET enabled = false WHERE id = %s", [task.id])
    lines = work().stdout.splitlines()
    [line] = about(task, lines)
    assert f"dropped reason=paused task={task.id} name=plain owner=customer:7 " in line
    [line] = about(unknown, lines)
    assert f"unknown_here task={unknown.id} name=unheard.of owner=customer:7 " in line


@pytest.mark.parametrize("concurrency", [1, 3], ids=["in a batch", "in a group"])
def test_what_a_function_raises_cannot_look_like_another_line(concurrency, environ, db, store, queue):
    words = f"no\n{FORGED}\r{FORGED}\x1b[2K\u2028{FORGED}"
    announced = (
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('fails.together', 3, %s, now())"
    )
    db.execute(announced, [concurrency])
    for number in range(3):
        ticker.register(db, "fails.together", name=f"{number}", every="1m", kwargs={"words": words})
    ticker.register(db, "fails.saying", every="1m", kwargs={"words": words})
    tick(store, queue)
    done = work(patch=FAILS.format(concurrency=concurrency))
    lines = done.stdout.split("\n")[:-1]
    assert [run.outcome for run in ticker.list_runs(db)] == ["failed"] * 4 and done.stderr == ""
    assert all(re.match(rf"{TIME} [A-Z]+ (rq|ticker)|  \| ", line) and line.isprintable() for line in lines)
    assert not any(line.startswith(FORGED) for line in lines)
    assert sum("run failed task=" in line and FORGED in line for line in lines) == 4
    assert sum("ValueError: no" in line for line in lines if line.startswith("  | ")) >= 4


def test_with_json_each_line_is_an_object_with_a_stable_event(environ, db, store, queue, owner, monkeypatch):
    monkeypatch.setenv("TICKER_LOG", "json")
    task = ticker.register(db, "returns.nan", owner=owner, every="1m")
    ticker.register(db, "fails", every="1m")
    tick(store, queue)
    done = work()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert all(re.fullmatch(TIME, line["time"]) for line in lines)
    assert {line["event"] for line in lines} == {"rq", "run_ended"}
    [ended] = [line for line in lines if line.get("task") == task.id]
    run = next(run for run in ticker.list_runs(db) if run.task_id == task.id)
    assert ended.items() >= {
        "level": "INFO", "logger": "ticker.run", "name": "returns.nan", "owner": "customer:7", "run": run.id,
        "outcome": "succeeded", "reason": run.reason, "event": "run_ended",
    }.items()  # fmt: skip
    assert any("ValueError" in line.get("traceback", line["message"]) for line in lines if line["event"] == "rq")


def test_an_option_of_rq_for_its_lines_is_obeyed(environ, db, store, queue):
    done = work("--log-format", "mine %(message)s", "polling")
    rqs = [line for line in done.stdout.splitlines() if "Listening" in line]
    assert rqs and all(line.startswith("mine ") for line in rqs)
