"""In a group, the tasks of a full key wait in the process while others start, and are given back if that takes long."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import ticker
from tests.running import stock_worker, work
from tests.worker.grouped import FUNCTIONS, outcomes, register
from ticker.engine.tick import tick
from wrappers.group import full_keys
from wrappers.group.full_keys import LONGEST, SHORTEST, FullKeys
from wrappers.pipeline.start import NoRoom


@pytest.fixture(autouse=True)
def announced(environ: dict[str, str], db: Any, folder: Any) -> None:
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('together', 10, clock_timestamp())")


def limited(db: Any, *tasks: ticker.Task, **limit: int) -> None:
    """Gives the tasks the key `host`, with this limit. They were registered and are due."""
    db.execute(
        "INSERT INTO ticker.limits (key, concurrency, rate, period_ms, burst) VALUES ('host', %s, %s, 3600000, %s)"
        if "rate" in limit
        else "INSERT INTO ticker.limits (key, concurrency) VALUES ('host', %s)",
        [limit.get("concurrency"), limit["rate"], limit["rate"]] if "rate" in limit else [limit["concurrency"]],
    )
    db.execute("UPDATE ticker.tasks SET limits = '{host}' WHERE id = ANY (%s::bigint[])", [[task.id for task in tasks]])


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_no_more_runs_of_a_key_are_active_at_once_than_its_limit_and_all_run(worker, db, store, queue, monkeypatch):
    monkeypatch.setenv("TICKER_TICK", "1m")
    free, *tasks = register(db, "together", *["returns"] * 7)
    tick(store, queue)
    limited(db, *tasks, concurrency=2)
    worker(patch=FUNCTIONS)
    assert {*outcomes(db).values()} == {"succeeded"} and len(outcomes(db)) == 7
    query = "SELECT started_at, ended_at FROM ticker.runs WHERE task_id <> %s"
    times = [
        (at, change) for row in db.execute(query, [free.id]).fetchall() for at, change in zip(row, (1, -1), strict=True)
    ]
    active = 0
    for _, change in sorted(times):
        active += change
        assert active <= 2
    assert db.execute("SELECT count(*) FROM ticker.slots WHERE until IS NOT NULL").fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
@pytest.mark.parametrize(("limit", "succeeded"), [({"rate": 2}, 3), ({"concurrency": 2}, 1)])
def test_what_finds_no_room_within_a_tick_waits_in_its_row_and_delays_no_other_task(
    limit, succeeded, worker, db, store, queue, monkeypatch
):
    """If the tokens of the rate fall due later, it is due again at once. Otherwise, it is after a tick."""
    monkeypatch.setenv("TICKER_TICK", "1s")
    *tasks, free = register(db, "together", *["returns"] * 7)
    tick(store, queue)
    limited(db, *tasks, **limit)
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 h' WHERE kind = 'run'")
    worker(patch=FUNCTIONS)
    assert Counter(outcomes(db).values()) == {"succeeded": succeeded}
    assert free.name in outcomes(db)
    left = ticker.list_tasks(db)
    now = store.now()
    due = [task for task in left if (task.next_run or now) < now]
    assert [(task.wait_reason, task.waiting) for task in due] == [("no_room", ())] * (7 - succeeded)
    assert all(task.dropped == 0 for task in left)


class Keys(FullKeys):
    """At an instant that the test sets."""

    def choose(self, *tasks: int) -> list[int]:
        chosen: Counter[str] = Counter()
        return [task for task in tasks if self.admit(task, chosen)]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = [100.0]
    monkeypatch.setattr(full_keys.limits, "now", lambda: now[0])
    return now


def test_a_full_key_is_asked_for_one_task_first_and_then_for_twice_as_many(at):
    keys, tasks = Keys(), range(1, 9)
    keys.note(tasks, {task: NoRoom("host", 0.5) for task in tasks})
    assert keys.choose(*tasks, 99) == [99]
    assert keys.pause(tasks) == pytest.approx(0.5)
    at[0] += 0.6
    sizes = []
    left = [*tasks]
    while left:
        asked = keys.choose(*left)
        keys.note(asked, {})
        sizes.append(len(asked))
        left = [task for task in left if task not in asked]
    assert sizes == [1, 2, 4, 1]


def test_without_a_known_time_the_pause_of_a_key_doubles_up_to_a_second_until_a_run_of_it_ends(at):
    keys, pauses = Keys(), []
    for _ in range(8):
        keys.note([1], {1: NoRoom("host", None)})
        pauses.append(keys.pause([1]))
        at[0] += pauses[-1] + 0.001
    assert pauses[0] == pytest.approx(SHORTEST) and pauses[-1] == pytest.approx(LONGEST)
    assert all(later >= earlier for earlier, later in pairwise(pauses))
    keys.note([1, 2], {1: NoRoom("host", None), 2: NoRoom("host", None)})
    keys.note_end(["host", "other"])
    assert keys.pause([1]) == pytest.approx(SHORTEST)
    at[0] += SHORTEST + 0.001
    assert keys.choose(1, 2) == [1, 2]


def test_a_task_waits_for_its_own_key_only(at):
    keys = Keys()
    keys.note([1, 2], {1: NoRoom("host", 60.0), 2: NoRoom("account", 0.1)})
    assert keys.pause([1, 2]) == pytest.approx(0.1)
    at[0] += 0.2
    assert keys.choose(1, 2, 3) == [2, 3]
    keys.forget(1)
    assert keys.choose(1) == [1]
