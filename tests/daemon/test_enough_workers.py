"""The number of workers against the truth: with so many, 99% of the starts are late by less than two ticks; with one fewer, not.

The truth is a simulation of its own (tests/truth.py). An hour of it, at some number of workers, is written as rows. The real
statements roll them up, and `ticker workers` says a number. The truth is then played with that number of workers, and with one fewer.
"""

import json

import pytest

from tests.harness import command
from tests.loads import HOUR, LOADS, Load, write
from tests.sentences import sentence
from ticker.daemon import needs
from ticker.daemon.minutes import closed
from ticker.settings import from_environment

pytestmark = pytest.mark.slow


def measured(db, store, load: Load) -> None:
    write(db, load, load.play(1.25 * HOUR + 5))
    [*closed(store, from_environment())]
    assert needs.measure(store, from_environment())


def needed(queue: str) -> int:
    return int(command("workers", "--queue", queue)[0])


@pytest.mark.parametrize("name", ["uniform", "two hanging", "mixed queues", "groups", "all at once", "limits"])
def test_so_many_workers_are_enough_and_one_fewer_is_not(name, environ, db, store):
    load = LOADS[name]
    measured(db, store, load)
    for queue in load.workers:
        workers = needed(queue)
        assert load.is_enough(queue, workers), (queue, workers, load.lateness(queue, workers))
        assert not load.is_enough(queue, workers - 1), (queue, workers, load.lateness(queue, workers - 1))


def test_work_that_a_limit_holds_back_does_not_count(environ, db, store):
    """300 runs of 2 s in each minute would take 10 workers, and 4 of them may be active."""
    load = LOADS["held back"]
    measured(db, store, load)
    assert needed("polling") == 4


def test_before_jobs_are_late_too_few_workers_are_a_warning_and_no_problem(environ, db, store):
    load = LOADS["two hanging"]
    measured(db, store, load)
    [need] = json.loads(command("workers", "--json")[0])
    assert (need["listening"], need["enough"]) == (1, 3)
    _, err = command("health")
    assert sentence("workers.need", queue="polling", average="2.1", most=3, listen="1 listens").within(err)
