"""The number of workers against the truth: with so many, 99% of the starts are late by less than two ticks; with half as many, not.

The truth is a simulation of its own (tests/truth.py). Some time of it, at some number of workers, is written as rows. The real
statements count them, and `ticker workers` says a number. It is compared with the least number that is enough in the simulation.
"""

import json

import pytest

from tests.conftest import DELETE
from tests.harness import command
from tests.loads import HOUR, LOADS, Load, write
from tests.sentences import sentence
from tests.truth import Truth
from ticker.daemon import needs
from ticker.daemon.minutes import counted
from ticker.settings import from_environment

pytestmark = pytest.mark.slow

NAMES = ["uniform", "two hanging", "mixed queues", "groups", "all at once", "limits"]
STEP = 120.0  # seconds between two measurements


def measured(db, store, load: Load, truth: Truth | None = None) -> None:
    write(db, load, truth or load.play(1.25 * HOUR + 5))
    [*counted(store)]
    assert needs.measure(store, from_environment())


def needed(queue: str) -> int:
    return int(command("workers", "--queue", queue)[0])


@pytest.mark.parametrize("name", NAMES)
def test_so_many_workers_are_enough_and_half_as_many_are_not(name, environ, db, store):
    load = LOADS[name]
    measured(db, store, load)
    for queue in load.workers:
        workers = needed(queue)
        assert load.is_enough(queue, workers), (queue, workers, load.lateness(queue, workers))
        assert not load.is_enough(queue, (workers - 1) // 2), (queue, workers)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_autoscaler_comes_from_few_workers_to_the_truth_within_ten_minutes(workers, name, environ, db, store):
    """It begins without any measured duration, and asks every two minutes."""
    load = LOADS[name]
    truth = Truth(load.tasks(), dict.fromkeys(load.workers, workers), groups=load.groups, limits=load.limits)
    for step in range(1, 6):
        db.execute(DELETE)
        db.execute("UPDATE ticker.installation SET counted_until = NULL, counted_twice_until = NULL")
        measured(db, store, load, truth.play(step * STEP))
        for need in json.loads(command("workers", "--json")[0]):
            if (
                need["enough"] is not None
            ):  # otherwise, `ticker workers --queue` fails, and an autoscaler changes nothing
                truth.employ(need["queue"], need["enough"])
    for queue in load.workers:
        assert load.is_enough(queue, truth.employed[queue]), (queue, truth.employed)
        assert not load.is_enough(queue, (truth.employed[queue] - 1) // 2), (queue, truth.employed)


def test_work_that_a_limit_holds_back_does_not_count(environ, db, store):
    """300 runs of 2 s in each minute would take 10 workers, and 4 of them may be active."""
    load = LOADS["held back"]
    measured(db, store, load)
    assert needed("polling") == 4


def test_before_jobs_are_late_too_few_workers_are_a_warning_and_no_problem(environ, db, store):
    load = LOADS["two hanging"]
    measured(db, store, load)
    [need] = json.loads(command("workers", "--json")[0])
    assert need["listening"] == 1 and need["enough"] in (3, 4)
    _, err = command("health")
    assert sentence("workers.need", queue="polling", average="2.1", most=need["enough"], listen="1 listens").within(err)
