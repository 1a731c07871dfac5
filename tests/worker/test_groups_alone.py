"""What tickers know of a function with concurrency, and which of its tasks run alone after a death without a culprit."""

import pytest
from rq import Queue

import ticker
from tests.doubles import INSTALLATION
from tests.running import work
from tests.worker.test_batches import due
from ticker.engine import jobs
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.read import overview
from wrappers.pipeline import registry

FUNCTIONS = """
from wrappers import task

@task("grouped", batch=10, concurrency=4, repeatable=True)
async def grouped(run):
    pass
"""


# ------------------------------------------------------------------------------------------------- what is announced


def test_a_job_whose_tasks_run_together_gets_the_time_of_its_longest_tasks_one_after_another():
    tasks = [due(n, batch=10)._replace(concurrency=4, box_ms=box) for n, box in enumerate((5_000, 9_000, *[1_000] * 3))]
    [(job, _)] = jobs.packed(INSTALLATION, tasks)
    assert job.timeout == 2 * (9 + 1) + 30
    [(one_by_one, _)] = jobs.packed(INSTALLATION, [task._replace(concurrency=1) for task in tasks])
    assert one_by_one.timeout == 5 + 9 + 3 * 1 + 5 * 1 + 30


@pytest.mark.slow
def test_a_launcher_announces_the_concurrency_by_which_a_tick_limits_the_job(environ, db, store, queue, redis):
    work(patch=FUNCTIONS)
    assert [
        (one.batch, one.concurrency, one.repeatable) for one in overview.functions(db) if one.name == "grouped"
    ] == [(10, 4, True)]
    for n in range(5):
        ticker.register(db, "grouped", name=str(n), every="1m", box="10s")
    tick(store, queue)
    [job] = Queue("polling", connection=redis).get_jobs()
    assert job.timeout == 2 * 11 + 30


@pytest.mark.parametrize("repeatable", [0, 1, "yes", None])
def test_repeatable_is_true_or_false(repeatable):
    with pytest.raises(BadInput, match="repeatable"):
        registry.task("x", repeatable=repeatable)
