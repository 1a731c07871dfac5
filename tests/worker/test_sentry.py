"""What the real Sentry SDK reports of our runs: its events, as it would send them, collected in a file."""

import json
from typing import Any

import pytest

import ticker
from tests.running import stock_worker, work
from ticker.engine.tick import tick

pytestmark = pytest.mark.slow

APPLICATION = """
import asyncio, json, os, time
import sentry_sdk
from sentry_sdk.transport import Transport
from wrappers import task

class ToFile(Transport):
    def capture_envelope(self, envelope):
        with open(os.environ["SENT"], "a") as file:
            for item in envelope.items:
                print(json.dumps(item.get_event() or item.get_transaction_event()), file=file)

sentry_sdk.init("http://key@localhost/1", transport=ToFile, traces_sample_rate=1.0)

@task("mail.fails")
def fails(run, password=""):
    run.checkpoint(password)
    raise ValueError("no such host")

@task("mail.overruns")
def overruns():
    while True:
        time.sleep(0.01)

@task("mail.many", batch=4)
def many(run, deed):
    if deed == "fails":
        raise ValueError(deed)
    if deed == "overruns":
        overruns()

@task("mail.together", concurrency=4)
async def together(run, deed):
    await asyncio.sleep(1000)

@task("mail.pieces")
class Pieces:
    def generate(self, password):
        return [password]
    def process(self, piece, password):
        raise ValueError("no such piece")
"""


@pytest.fixture
def sent(environ: dict[str, str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that returns what was sent so far: the errors, or with `of="transaction"` the transactions."""
    file = tmp_path / "sent"
    monkeypatch.setenv("SENT", str(file))

    def events(of: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [event for event in found if event.get("type") == of]

    return events


def run_all(store: Any, queue: Any, patch: str = "") -> None:
    tick(store, queue)
    work(patch=APPLICATION + patch)


def test_an_error_stands_under_the_function_of_its_task_and_so_does_its_transaction(sent, db, store, queue):
    task = ticker.register(db, "mail.fails", every="1m")
    run_all(store, queue)
    [error], [transaction], [run] = sent(), sent(of="transaction"), ticker.list_runs(db)
    tags = {"function": "mail.fails", "task": str(task.id), "run": str(run.id), "kind": "scheduled"}
    for event in (error, transaction):
        assert (event["transaction"], event["transaction_info"]["source"]) == ("mail.fails", "task")
        assert event["tags"] == {f"ticker.{name}": value for name, value in tags.items()}
    [value] = error["exception"]["values"]
    assert (value["type"], value["mechanism"]["type"]) == ("ValueError", "rq")
    assert error["extra"]["rq-job"]["description"] == "mail.fails"
    assert "fingerprint" not in error  # by its stack, as Sentry groups whatever it is told


def test_nothing_that_may_be_somebodys_is_told_but_by_the_functions_own_variables(sent, db, store, queue):
    secret = {"name": "of Zoe", "owner": ("users", "Zoe"), "every": "1m", "kwargs": {"password": "Zoe"}}
    ticker.register(db, "mail.fails", **secret)
    ticker.register(db, "mail.pieces", **secret | {"name": "pieces of Zoe"})
    run_all(store, queue)
    run_all(store, queue)
    events = sent()
    values = [value for event in events for value in event["exception"]["values"]]
    own = [
        f.pop("vars")
        for value in values
        for f in value["stacktrace"]["frames"]
        if f["function"] in ("fails", "process")
    ]
    assert [variables.get("piece") or variables["password"] for variables in own] == ["[Filtered]", "'Zoe'"]
    assert [event["transaction"] for event in events] == ["mail.fails", "mail.pieces"]
    assert "Zoe" not in json.dumps([*events, *sent(of="transaction")])


def test_each_task_of_a_batch_has_its_own_name_and_leaves_none_behind(sent, db, store, queue):
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('mail.many', 4, clock_timestamp())")
    tasks = [
        ticker.register(db, "mail.many", name=f"{n}", every="1m", box="1s", kwargs={"deed": deed})
        for n, deed in enumerate(["fails", "returns", "overruns", "fails"])
    ]
    run_all(store, queue)
    errors, [transaction] = sent(), sent(of="transaction")
    assert [error["tags"]["ticker.task"] for error in errors] == [str(tasks[n].id) for n in (0, 2, 3)]
    assert {event["transaction"] for event in (*errors, transaction)} == {"mail.many"}
    assert [error.get("fingerprint") for error in errors] == [None, ["ticker", "timed_out", "mail.many"], None]
    assert transaction.get("tags", {}) == {}  # it is of all four


def test_all_time_outs_of_a_function_are_one_issue(sent, db, store, queue):
    ticker.register(db, "mail.overruns", every="1m", box="1s")
    run_all(store, queue)
    [error] = sent()
    assert [value["type"] for value in error["exception"]["values"]] == ["SoftLimit", "TimedOut"]
    assert (error["transaction"], error["fingerprint"]) == ("mail.overruns", ["ticker", "timed_out", "mail.overruns"])


def test_so_are_those_by_rqs_own_time_out_in_a_worker_that_does_not_fork(sent, db, store, queue, redis, monkeypatch):
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    ticker.register(db, "mail.overruns", every="1m")
    ticker.register(db, "mail.fails", every="1m")
    tick(store, queue)
    for job in redis.scan_iter("rq:job:*"):
        redis.hset(job, "timeout", 1)
    stock_worker("--worker-class", "rq.SimpleWorker", "polling", patch=APPLICATION)
    found = {error["transaction"]: error.get("fingerprint") for error in sent()}
    assert found == {"mail.overruns": ["ticker", "timed_out", "mail.overruns"], "mail.fails": None}


def test_so_are_those_by_rqs_own_time_out_of_a_job_of_several(sent, db, store, queue, redis):
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('mail.many', 4, clock_timestamp())")
    for number in range(2):
        ticker.register(db, "mail.many", name=f"{number}", every="1m", kwargs={"deed": "overruns"})
    tick(store, queue)
    [job] = redis.scan_iter("rq:job:*")
    redis.hset(job, "timeout", 1)
    work(patch=APPLICATION)
    [error] = [one for one in sent() if one["exception"]["values"][-1]["type"] == "JobTimeoutException"]
    assert error["fingerprint"] == ["ticker", "timed_out", "mail.many"]


def test_a_stock_worker_names_them_too(sent, db, store, queue):
    ticker.register(db, "mail.fails", every="1m")
    tick(store, queue)
    stock_worker(patch=APPLICATION)
    assert [error["transaction"] for error in sent()] == ["mail.fails"]


@pytest.mark.parametrize(
    "patch",
    [
        "def broken(): raise TypeError('another Sentry')\nsentry_sdk.get_current_scope = broken",
        "del sentry_sdk.new_scope",
    ],
    ids=["raises", "is of release 1"],
)
def test_a_sentry_that_we_do_not_know_costs_no_run(patch, sent, db, store, queue):
    ticker.register(db, "mail.many", name="alone", every="1m", kwargs={"deed": "returns"})
    tick(store, queue)
    stock_worker(patch=APPLICATION.replace("traces_sample_rate=1.0", "default_integrations=False") + patch)
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == ("succeeded", "")


def test_without_sentry_none_is_loaded(environ, db, store, queue):
    ticker.register(db, "loads", every="1m")
    tick(store, queue)
    work(patch="import sys\nfrom wrappers import task\n@task('loads')\ndef loads(): return 'sentry_sdk' in sys.modules")
    assert ticker.list_runs(db)[0].result is False


def test_of_log_lines_those_that_name_a_task_are_kept_back():
    from wrappers.layers.sentry import nameless

    line = "run succeeded task=1 name=of Zoe owner=users:Zoe run=1 job=x"
    ours = [
        {"category": "ticker.run", "message": line},
        {"category": "ticker.run", "message": "a restart"},
        {"category": "ticker.run"},
    ]
    others = [{"category": "app", "message": "moved, owner=5"}]
    assert nameless({"breadcrumbs": {"values": [*ours, *others]}}, {}) == {
        "breadcrumbs": {"values": [*ours[1:], *others]}
    }
    assert nameless({}, {}) == {}
