"""kill -9 at every point of a tick and of a run. The ports and the layers are the seams: nothing in the product helps."""

import os
import signal
from contextlib import contextmanager
from datetime import timedelta
from subprocess import CalledProcessError

import pytest

import ticker
from tests.factories import create_trace
from tests.running import in_fork, stock_worker, work
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from ticker.queue.rq import RedisQueue

TASKS = 5


def die(*_args):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def five_tasks(environ, db):
    for number in range(TASKS):
        ticker.register(db, "plain", name=f"task {number}", every="1d", kwargs={"number": number})
    create_trace(db)


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    "point",
    [
        "half pushed",
        "committed",
        *(pytest.param(point, marks=pytest.mark.slow) for point in ("rows locked", "nothing pushed", "all pushed")),
    ],
)
def test_a_ticker_killed_at_any_point_loses_and_doubles_nothing(point, five_tasks, environ, db, store, queue, redis):
    def killed_tick():
        dying_store = PostgresStore(environ["DATABASE_URL"])
        dying_queue = RedisQueue.from_url(environ["REDIS_URL"])
        arm(point, dying_store, dying_queue)
        tick(dying_store, dying_queue)

    assert in_fork(killed_tick) == -signal.SIGKILL
    tick(store, queue)
    work()
    assert [value["number"] for (value,) in db.execute("SELECT value FROM trace ORDER BY value")] == list(range(TASKS))
    assert {(run.outcome, run.reason) for run in ticker.list_runs(db)} == {("succeeded", "")}
    assert all(not task.waiting and task.next_run > task.last_run for task in ticker.list_tasks(db))


def arm(point, store, queue):
    """Makes the pass die where the name says."""
    push, batch = queue.push, store.batch
    if point == "nothing pushed":
        queue.push = lambda specs: die() if specs else push(specs)
    if point == "half pushed":
        queue.push = lambda specs: (push(specs[:2]), die()) if specs else push(specs)
    if point == "all pushed":
        queue.push = lambda specs: (push(specs), die()) if specs else push(specs)
    if point in ("rows locked", "committed"):
        store.batch = lambda: dying_batch(batch, point)


@contextmanager
def dying_batch(batch, point):
    with batch() as rows:
        claim, claimed = rows.claim_due, []

        def claim_due(*args):
            claimed.extend(claim(*args))
            if claimed and point == "rows locked":
                die()
            return claimed

        rows.claim_due = claim_due
        yield rows
    if claimed:
        die()


DIE = "import os, signal\ndef die(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
STEPS = DIE + "import sys\nfrom wrappers import entry, layers\nrecord = sys.modules['wrappers.layers.record']\n"
AFTER = "def after(*args, **kwargs):\n    step(*args, **kwargs)\n    die()\n"

POINTS = {
    "before the guard": (STEPS + "entry.run_alone = die", "killed"),
    "after the guard": (STEPS + "layers.AROUND = (die, *layers.AROUND)", "killed"),
    "before the function": (STEPS + "record.call_function = die", "killed"),
    "after the function, before the record": (
        STEPS + AFTER + "step, record.call_function = record.call_function, after",
        "killed",
    ),
    "after the record": (
        STEPS + AFTER + "finish = record.finishing\nstep, finish.write = finish.write, after",
        "succeeded",
    ),
    "at the very end": (STEPS + AFTER + "step, entry.run_alone = entry.run_alone, after", "succeeded"),
}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_horse_killed_at_any_point_loses_at_most_that_occurrence(point, environ, db, store, queue):
    patch, outcome = POINTS[point]
    create_trace(db)
    task = ticker.register(db, "plain", every="1m")
    tick(store, queue)
    work(patch=patch)
    tick(store, queue)  # its sweep mends what the worker could not
    [run] = ticker.list_runs(db)
    assert run.outcome == outcome
    assert ticker.get(db, task).running_until is None
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp(), last_run = last_run - interval '1 minute'")
    tick(store, queue)
    work()
    assert ticker.list_runs(db)[0].outcome == "succeeded"
    assert len(ticker.list_runs(db)) == 2


@pytest.mark.slow
def test_a_stock_workers_horse_killed_before_its_start_loses_nothing(environ, db, store, queue):
    """There the start is asked for in the horse: the job died before it, and is pushed again."""
    create_trace(db)
    ticker.register(db, "plain", every="1m")
    tick(store, queue)
    stock_worker(patch=POINTS["before the guard"][0])
    assert ticker.list_runs(db) == []
    tick(store, queue)
    work()
    [run] = ticker.list_runs(db)
    assert run.outcome == "succeeded"


@pytest.mark.promise("L5")
def test_a_worker_killed_together_with_its_horse_leaves_nothing_stuck(environ, db, store, queue):
    """Nobody is left who could close the record: the sweep does, when the box is over."""
    both = STEPS + "def before(call): os.kill(os.getppid(), signal.SIGKILL); die()\n"
    task = ticker.register(db, "plain", every="1m")
    tick(store, queue)
    with pytest.raises(CalledProcessError):
        work(patch=both + "layers.AROUND = (before, *layers.AROUND)")
    assert tick(store, queue).swept.overdue == 0
    assert tick(store, queue, store.now() + timedelta(seconds=33)).swept.overdue == 1
    assert ticker.list_runs(db)[0].outcome == "lost"
    assert ticker.get(db, task).running_until is None
