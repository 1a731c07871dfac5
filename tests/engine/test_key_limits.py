"""Which tasks with limits are pushed: a pure choice by the room of their keys, and the pass that makes it."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles import NOW, MemoryQueue, MemoryStore, job_id, planned_id
from ticker.engine.key_limits import LimitedTask, choose
from ticker.engine.tick import TickOptions, tick
from ticker.model import Kind

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def task(id_, *keys, room=None, rooms=(), age=0, queue="polling", **columns):
    return LimitedTask(id_, NOW - age * SECOND, queue, keys, rooms or (room,) * len(keys), **columns)


def ids(tasks, depths=None):
    return [task.id for task in choose(tasks, depths or {}, NOW).tasks]


# ------------------------------------------------------------------------------------------------------ the choice


def test_a_task_whose_job_waits_overtakes_nobody_who_waits_for_room():
    waits, other, elsewhere = (
        task(1, "a", room=0, age=1, has_job=True),
        task(2, "a", room=0, age=9),
        task(3, "b", room=0, age=9),
    )
    assert ids([waits]) == ids([waits, elsewhere]) == [1]
    assert ids([waits, other]) == []
    assert ids([task(1, "a", room=1, has_job=True), task(4, "a", "b", rooms=(1, 0), age=9)]) == [1]


def test_the_oldest_go_first_as_far_as_their_key_has_room():
    assert ids([task(n, "a", room=2, age=n) for n in (1, 2, 3)]) == [3, 2]


def test_a_key_without_a_limit_has_room_for_all():
    assert ids([task(n, "a", age=-n) for n in (1, 2, 3)]) == [1, 2, 3]


def test_a_task_goes_only_if_both_of_its_keys_have_room():
    both, one = task(1, "a", "b", rooms=(2, 0), age=9), task(2, "a", room=2)
    assert ids([both, one]) == [2]


def test_a_key_that_several_pairs_share_is_counted_once():
    tasks = [task(n, "host", f"account:{n}", rooms=(2, 1), age=-n) for n in range(5)]
    assert ids(tasks) == [0, 1]


def test_a_task_whose_job_waits_takes_no_further_room_and_needs_that_of_its_job():
    waiting = task(1, "a", room=0, age=9, has_job=True)
    assert ids([waiting, task(2, "a", room=0)]) == [1]
    assert ids([task(1, "a", room=1, age=9, has_job=True), task(2, "a", room=1)]) == [1, 2]
    assert ids([task(1, "a", room=-1, has_job=True)]) == []


def test_owners_take_turns_at_a_key():
    greedy = [task(n, "a", room=2, age=9, owner=("mail", "greedy")) for n in (1, 2)]
    assert ids([*greedy, task(3, "a", room=2, owner=("mail", "modest"))]) == [1, 3]


def test_an_owner_who_uses_another_key_loses_no_turn_at_this_one():
    elsewhere = [task(n, "b", age=9, owner=("mail", "x")) for n in (1, 2, 3)]
    here = [task(4, "a", room=1, age=5, owner=("mail", "x")), task(5, "a", room=1, owner=("mail", "y"))]
    assert set(ids([*elsewhere, *here])) == {1, 2, 3, 4}


def test_priority_counts_within_the_turn_of_an_owner():
    mine = [task(n, "a", room=2, age=-n, owner=("mail", "x"), priority=n) for n in (1, 2)]
    theirs = task(3, "a", room=2, age=-3, owner=("mail", "y"))
    assert ids([*mine, theirs]) == [2, 3]


def test_a_queue_gets_no_more_than_it_has_room_for_and_delays_no_other():
    tasks = [task(1, "a", age=3), task(2, "a", age=2), task(3, "a", age=1, queue="reports")]
    assert ids(tasks, {"polling": 1}) == [1, 3]


@pytest.mark.parametrize(
    ("refused", "seconds"),
    [
        ({"free_at": NOW + 5 * SECOND}, 5),
        ({"free_at": NOW + SECOND / 100}, 0.2),
        ({}, 5),  # a run has to end, or a job to start
    ],
)
def test_the_next_look_is_when_a_key_without_room_may_have_some(refused, seconds):
    found = choose([task(1, "a", room=0, **refused)], {}, NOW).look_at
    assert found == NOW + seconds * SECOND


def test_after_the_last_room_is_given_out_the_next_look_is_soon():
    chosen, full, look_at = choose([task(n, "a", room=1) for n in (1, 2)], {}, NOW)
    assert full == {"a"}
    assert (len(chosen), look_at) == (1, NOW + SECOND / 5)


KEYS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True)


@st.composite
def crowds(draw):
    rooms = draw(st.fixed_dictionaries({key: st.one_of(st.none(), st.integers(-2, 4)) for key in "abcd"}))
    keys = draw(st.lists(KEYS, max_size=25))
    return rooms, [
        task(
            n, *of, rooms=tuple(rooms[key] for key in of), age=draw(st.integers(0, 9)),
            owner=("mail", draw(st.sampled_from("xyz"))), priority=draw(st.integers(0, 2)),
            queue=draw(st.sampled_from(["polling", "reports"])),
        )
        for n, of in enumerate(keys)
    ]  # fmt: skip


@pytest.mark.slow
@given(crowds(), st.integers(0, 5))
def test_no_room_is_exceeded_and_no_key_starves_while_it_has_room(crowd, depth):
    rooms, tasks = crowd
    chosen = choose(tasks, {"polling": depth}, NOW).tasks
    used = Counter(key for task in chosen for key in task.keys)
    assert len({task.id for task in chosen}) == len(chosen)
    assert all(room is None or used[key] <= max(room, 0) for key, room in rooms.items())
    queued = Counter(task.queue for task in chosen)
    assert queued["polling"] <= depth

    def is_full(key):
        return rooms[key] is not None and used[key] >= max(rooms[key], 0)

    for left in set(tasks) - set(chosen):
        assert any(map(is_full, left.keys)) or (left.queue == "polling" and queued["polling"] == depth)


@pytest.mark.slow
@given(crowds())
def test_at_a_key_no_owner_gets_two_more_than_another_who_waits_for_the_same_key_alone(crowd):
    rooms, tasks = crowd
    tasks = [task for task in tasks if len(task.keys) == 1]
    chosen = choose(tasks, {}, NOW).tasks
    for key in rooms:
        got = Counter(task.owner for task in chosen if key in task.keys)
        waits = {task.owner for task in set(tasks) - set(chosen) if key in task.keys}
        assert all(got[owner] >= max(got.values(), default=0) - 1 for owner in waits)


# -------------------------------------------------------------------------------------------------------- the pass


@pytest.fixture
def rows():
    return MemoryStore()


def test_a_pass_pushes_what_has_room_and_leaves_the_rest_due(rows):
    jobs = MemoryQueue()
    rows.add_limit("imap", 2)
    mine = [rows.add_task(next_run=NOW - n * SECOND, limits=("imap",)) for n in (1, 3, 2)]
    other = rows.add_task()
    report = tick(rows, jobs, NOW)
    assert (report.due.enqueued, report.errors) == (3, 0)
    assert jobs.waiting() == [job_id(other, NOW), job_id(mine[1], NOW - 3 * SECOND), job_id(mine[2], NOW - 2 * SECOND)]
    assert rows.task(mine[0]).next_run == NOW - SECOND and not rows.task(mine[0]).waiting
    assert tick(rows, jobs, NOW).enqueued == 0


def test_planned_runs_take_turns_with_due_tasks(rows):
    jobs = MemoryQueue()
    rows.add_limit("imap", 1)
    due, other = (rows.add_task(limits=("imap",), next_run=at) for at in (NOW, None))
    run = rows.add_run(task_id=other, due_at=NOW - SECOND)
    assert tick(rows, jobs, NOW).planned.enqueued == 1
    assert jobs.waiting() == [planned_id(run)]
    assert tick(rows, jobs, NOW).enqueued == 0 and rows.task(due).next_run == NOW


def test_a_pass_pushes_tasks_with_limits_in_as_many_batches_as_it_takes(rows):
    jobs = MemoryQueue()
    for n in range(25):
        rows.add_task(limits=("imap", f"account:{n % 3}"))
    assert tick(rows, jobs, NOW, TickOptions(batch=4)).due.enqueued == 25


def test_a_pass_lists_few_tasks_while_keys_are_full_and_ever_more_while_they_have_room(rows, monkeypatch):
    listed, list_due = [], rows.limited_due
    monkeypatch.setattr(
        rows, "limited_due", lambda now, ahead, most, *rest: listed.append(most) or list_due(now, ahead, most, *rest)
    )
    for _ in range(60):
        rows.add_task(limits=("imap",))
    assert tick(rows, MemoryQueue(), NOW, TickOptions(batch=2)).due.enqueued == 60
    assert listed == [2, 8, 32, 40]


@pytest.mark.parametrize(
    ("watched", "missed"), [(timedelta.max, 0), (HOUR, 1)], ids=["it waited", "no ticker was there"]
)
def test_what_waited_for_its_key_has_not_missed_its_time_but_what_no_tick_saw_has(watched, missed, rows, monkeypatch):
    monkeypatch.setattr(rows, "watched", lambda *_: watched)
    rows.add_task(limits=("imap",), next_run=NOW - 2 * HOUR, every_ms=60_000, catch_up="none")
    assert tick(rows, MemoryQueue(), NOW).due.missed == missed


@pytest.mark.parametrize(("catch_up", "pushed"), [("one", {1}), ("none", {3})])
def test_a_cron_task_that_has_waited_for_its_key_makes_a_late_run_only_if_it_catches_up(catch_up, pushed, rows):
    """The room of what was missed goes to others in the same pass."""
    rows.add_limit("imap", 1)
    for age in (2 * HOUR, HOUR, SECOND):
        fields = {"kind": Kind.CRON, "expression": "*/5 * * * *", "every_ms": 0, "catch_up": catch_up}
        rows.add_task(limits=("imap",), next_run=NOW - age, **fields)
    report = tick(rows, MemoryQueue(), NOW, TickOptions(period=30_000))
    assert {id_ for id_, row in rows.tasks.items() if row.waiting} == pushed
    assert (report.due.enqueued, report.due.missed) == (1, 2 * (catch_up == "none"))


def test_a_pass_keeps_to_the_depth_of_a_queue(rows):
    jobs = MemoryQueue()
    for queue in ("polling", "polling", "polling", "reports"):
        rows.add_task(limits=("imap",), queue=queue)
    assert tick(rows, jobs, NOW, TickOptions(depths={"polling": 2})).due.enqueued == 3
