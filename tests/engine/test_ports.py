"""What a pass may rely on: the promises of `ticker/engine/ports.py`, kept by the doubles and by the real ones alike."""

from contextlib import ExitStack
from dataclasses import asdict, fields
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from rq import Queue
from rq.job import Job

from tests.conftest import admin, copy_of
from tests.doubles import NOW, MemoryQueue, MemoryStore, RunRow, TaskRow
from tests.sentences import sentence
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.jobs import JobSpec
from ticker.engine.ports import JobState, Receipt, Settled
from ticker.errors import ConfigurationError, DatabaseUnavailable, QueueUnavailable
from ticker.model import DueTask, Kind, Outcome, PlannedRun, Reason, RunKind, WaitingTask
from ticker.queue.rq import RedisQueue
from wrappers import entry

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RUNNING = {"kind": RunKind.SCHEDULED, "state": "running", "due_at": None, "occurrence": NOW, "started_at": NOW}
MANY = 100
TOKEN = uuid4()
CRON = {"kind": Kind.CRON, "expression": "* * * * *", "every_ms": 0}
ONCE = {"kind": Kind.ONCE, "expression": NOW.isoformat(), "every_ms": 0}
AT_WORK = {"run_token": TOKEN, "running_until": NOW + MICROSECOND}


# ----------------------------------------------------------------------------------------------------- both kinds


class PostgresTables:
    """The tables as `MemoryStore` shows them: rows put in and read by hand, and a store for each ticker."""

    def __init__(self, url, stack):
        self._url, self._stack = url, stack
        self._db = stack.enter_context(connect(url))
        self._db.execute(
            "DELETE FROM ticker.tasks; DELETE FROM ticker.runs; DELETE FROM ticker.tickers;"
            " DELETE FROM ticker.limits; DELETE FROM ticker.limited_keys; DELETE FROM ticker.slots; DELETE FROM ticker.pauses"
        )

    def another(self):
        store = PostgresStore(self._url)
        self._stack.callback(store.close)
        return store

    def add_task(self, **columns):
        return self._add("tasks", {**asdict(TaskRow(**columns)), "name": str(uuid4()), "created_at": NOW})

    def add_run(self, **columns):
        return self._add("runs", asdict(RunRow(**columns)))

    def _add(self, table, values):
        del values["id"]
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        places = ", ".join(f"%({name})s" for name in values)
        inserted = f"INSERT INTO ticker.{table} ({', '.join(values)}) VALUES ({places}) RETURNING id"
        return self._db.execute(inserted, values).fetchone()[0]

    def add_limit(self, key, concurrency):
        self._db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES (%s, %s)", [key, concurrency])

    def add_pause(self, scope, value="", until=None):
        inserted = "INSERT INTO ticker.pauses (scope, value, until) VALUES (%s, %s, %s) RETURNING id"
        return self._db.execute(inserted, [scope, value, until]).fetchone()[0]

    def end_pause(self, pause_id, at):
        self._db.execute("UPDATE ticker.pauses SET resumed_at = %s WHERE id = %s", [at, pause_id])

    def delete_pause(self, pause_id):
        self._db.execute("DELETE FROM ticker.pauses WHERE id = %s", [pause_id])

    def saw_tick(self, at):
        self._db.execute("INSERT INTO ticker.tickers (id, pid, started_at, last_tick_at) VALUES (%s, 1, %s, %s)",
                         [uuid4(), NOW, at])  # fmt: skip

    def put(self, task_id, **columns):
        assignments = ", ".join(f"{name} = %({name})s" for name in columns)
        self._db.execute(f"UPDATE ticker.tasks SET {assignments} WHERE id = %(id)s", {**columns, "id": task_id})

    def task(self, task_id):
        [row] = self._read("tasks", TaskRow, "WHERE id = %s", task_id)
        return TaskRow(**{**row, "kind": Kind(row["kind"]), "waiting": tuple(row["waiting"])})

    def runs(self):
        return [RunRow(**row) for row in self._read("runs", RunRow, "ORDER BY id")]

    def _read(self, table, shape, which, *values):
        columns = ", ".join(field.name for field in fields(shape))
        with self._db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(f"SELECT {columns} FROM ticker.{table} {which}", values).fetchall()


@pytest.fixture(scope="module")
def database_url(servers, template):
    """One for all of them, emptied for each; a copy of its own costs each test a quarter of a second."""
    yield copy_of(servers, template, f"{template}_contract")
    admin(servers, f'DROP DATABASE "{template}_contract" WITH (FORCE)')


@pytest.fixture(params=["memory", "postgres"])
def tables(request):
    if request.param == "memory":
        yield MemoryStore()
        return
    with ExitStack() as stack:
        yield PostgresTables(request.getfixturevalue("database_url"), stack)


@pytest.fixture
def store(tables):
    return tables.another()


def due(store, now=NOW, look_ahead=0, limit=MANY):
    """The ids that a tick would push."""
    with store.batch() as rows:
        return [task.id for task in rows.claim_due(now, look_ahead, limit)]


class Interrupted(Exception):
    """What a test raises within a batch."""


# ------------------------------------------------------------------------------------------------------ due tasks


@pytest.mark.slow
def test_the_clock_is_in_utc(store):
    assert store.now().utcoffset() == timedelta(0)


@pytest.mark.slow
def test_due_tasks_come_oldest_first_and_at_most_as_many_as_asked_for(tables, store):
    late, latest, soon = (tables.add_task(next_run=NOW - age * MINUTE) for age in (2, 3, 1))
    assert due(store) == [latest, late, soon]
    assert due(store, limit=2) == [latest, late]


def test_a_due_task_brings_what_its_push_needs(tables, store):
    id_ = tables.add_task(next_run=NOW - MINUTE, queue="mail", function="fetch", every_ms=90_000, tolerance_ms=4_000,
                          box_ms=45_000, grace_ms=900, push_errors=3)  # fmt: skip
    with store.batch() as rows:
        assert rows.claim_due(NOW, 0, 1) == [
            DueTask(id_, NOW - MINUTE, "mail", "fetch", 90_000, 45_000, 900, 3, tolerance_ms=4_000)
        ]


def test_the_due_tasks_of_some_queues_may_be_left_out(tables, store):
    one, _, three = (tables.add_task(queue=queue) for queue in ("a", "b", "c"))
    with store.batch() as rows:
        assert {task.id for task in rows.claim_due(NOW, 0, MANY, ("b", "unheard of"))} == {one, three}


def test_tasks_with_limits_are_due_only_where_they_are_asked_for(tables, store):
    free, limited = tables.add_task(queue="q"), tables.add_task(queue="q", limits=("imap",))
    assert due(store) == [free] and store.count_due(NOW, 0, "q") == 2
    with store.batch() as rows:
        assert [task.id for task in rows.claim_in_turn(NOW, 0, "q", MANY)] == [free]
    [task], more = store.limited_due(NOW, 0, MANY)
    assert (task.id, task.next_run, task.queue, task.keys, task.rooms, more) == (
        limited,
        NOW,
        "q",
        ("imap",),
        (None,),
        False,
    )
    assert store.limited_due(NOW - SECOND, 0, MANY) == ([], False)
    assert store.limited_due(NOW, 0, MANY, 0, ["q"]) == ([], False)
    assert store.limited_due(NOW, 0, MANY, 0, (), ["imap"]) == ([], False)


def test_tasks_with_limits_bring_the_room_of_their_keys(tables, store):
    tables.add_limit("imap", 3)
    tables.add_limit("account", 1)
    tables.add_task(limits=("imap",), waiting=(NOW - MINUTE,), next_run=NOW + MINUTE)
    for age in range(3):
        tables.add_task(limits=("imap", "account"), owner_type="mail", owner_id=f"{age}", next_run=NOW - age * SECOND)
    tasks, _ = store.limited_due(NOW, 0, MANY)
    assert {(task.keys, task.rooms) for task in tasks} == {(("imap", "account"), (2, 1))}
    assert [task.owner for task in tasks] == [("mail", "2"), ("mail", "1"), ("mail", "0")]


def test_chosen_tasks_are_claimed_in_their_order_if_they_are_still_due(tables, store):
    one, two, later = (tables.add_task(limits=("imap",), next_run=NOW + n * SECOND) for n in (-1, 0, 1))
    with store.batch() as rows:
        assert [task.id for task in rows.claim_chosen(NOW, 0, [two, later, one])] == [two, one]


def test_the_owners_of_a_queue_that_is_short_of_room_come_in_turn(tables, store):
    def owned(by, age, **columns):
        owner = {"owner_type": "mail", "owner_id": by} if by else {}
        return tables.add_task(next_run=NOW - age * SECOND, queue="q", **owner, **columns)

    greedy = [owned("greedy", 100 - n) for n in range(5)]
    modest, later = owned("modest", 10), owned("modest", 5)
    nobodys = [owned("", 3), owned("", 2)]
    owned("not due", -10)
    tables.add_task(queue="another", next_run=NOW - MINUTE)
    assert store.count_due(NOW, 0, "q") == 9
    with store.batch() as rows:
        in_turn = [task.id for task in rows.claim_in_turn(NOW, 0, "q", 7)]
    assert in_turn == [greedy[0], modest, *nobodys, greedy[1], later, greedy[2]]
    with store.batch() as rows:
        assert len(rows.claim_in_turn(NOW, 0, "q", MANY)) == 9


def test_within_the_turn_of_an_owner_the_priority_decides(tables, store):
    def owned(by, age, priority):
        owner = {"owner_type": "mail", "owner_id": by}
        return tables.add_task(next_run=NOW - age * SECOND, queue="q", priority=priority, **owner)

    usual, urgent, other = owned("a", 30, 0), owned("a", 20, 5), owned("b", 10, -5)
    with store.batch() as rows:
        assert [task.id for task in rows.claim_in_turn(NOW, 0, "q", MANY)] == [urgent, other, usual]


def test_a_task_is_due_at_its_very_instant_and_not_before(tables, store):
    id_ = tables.add_task(next_run=NOW)
    assert due(store, NOW - MICROSECOND) == []
    assert due(store, NOW) == [id_]


@pytest.mark.parametrize(
    ("columns", "look_ahead", "ahead"),
    [
        ({"tolerance_ms": 5_000}, 0, 0),
        ({"tolerance_ms": 5_000}, 1_000, 1_000),
        ({"tolerance_ms": 5_000}, 800, 800),
        ({"tolerance_ms": 2_000}, 1_000, 400),  # a fifth of its tolerance
        ({"tolerance_ms": 0}, 1_000, 0),
        (CRON, 1_000, 0),  # the next time is after the occurrence, not after now: it would be pushed twice
    ],
)
def test_an_interval_task_is_due_early_by_the_look_ahead_and_at_most_a_fifth_of_its_tolerance(
    columns, look_ahead, ahead, tables, store
):
    id_ = tables.add_task(next_run=NOW + ahead * MILLISECOND, **columns)
    assert due(store, NOW, look_ahead) == [id_]
    assert due(store, NOW - MICROSECOND, look_ahead) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"enabled": False},
        {"owner_active": False},
        {"paused_by": "me"},
        {"paused_by": "me", "paused_until": NOW - MINUTE},  # `wake` ends it, not time
        {"next_run": None},
        {"push_after": NOW + MICROSECOND},
        {"wait_reason": "still_running", **AT_WORK},
        {"overlap": "skip", **ONCE, **AT_WORK},
    ],
    ids=" ".join,
)
def test_what_is_off_paused_done_or_set_back_is_not_due(columns, tables, store):
    tables.add_task(**columns)
    assert due(store) == []


@pytest.mark.parametrize("columns", [{}, ONCE, {"overlap": "skip"}], ids=" ".join)
def test_another_task_is_due_while_its_run_is_at_work(columns, tables, store):
    id_ = tables.add_task(**columns, **AT_WORK)
    assert due(store) == [id_]


def test_what_was_set_back_is_due_again_at_that_very_instant(tables, store):
    id_ = tables.add_task(push_after=NOW)
    assert due(store) == [id_]


def test_rows_of_an_open_batch_are_left_out_by_others_until_it_ends(tables, store):
    first, second = tables.add_task(next_run=NOW - MINUTE), tables.add_task()
    other = tables.another()
    with store.batch() as rows:
        assert [task.id for task in rows.claim_due(NOW, 0, 1)] == [first]
        assert due(other) == [second]
    assert due(other) == [first, second]


# ------------------------------------------------------------------------------------------- pushed, or not pushed


def test_an_advanced_task_waits_for_its_start_and_moves_on(tables, store):
    id_ = tables.add_task(push_errors=2, push_error="full", push_after=NOW)
    with store.batch() as rows:
        [task] = rows.claim_due(NOW, 0, 1)
        rows.advance([(task, NOW + MINUTE, None)])
    assert tables.task(id_) == TaskRow(id_, NOW + MINUTE, waiting=(NOW,))


def test_a_task_that_has_no_next_time_is_not_due_again(tables, store):
    id_ = tables.add_task()
    with store.batch() as rows:
        rows.advance([(task, None, None) for task in rows.claim_due(NOW, 0, 1)])
    assert tables.task(id_).next_run is None
    assert due(store, NOW + 1000 * MINUTE) == []


@pytest.mark.parametrize(
    ("columns", "waiting"),
    [
        ({"waiting": (NOW,)}, (NOW,)),
        ({"waiting": (NOW - MINUTE,)}, (NOW - MINUTE, NOW)),
        ({"last_occurrence": NOW - SECOND}, (NOW,)),
        ({"last_occurrence": NOW + SECOND}, (NOW,)),  # of a clock that was ahead
    ],
)
def test_an_occurrence_that_is_pushed_again_waits_once(columns, waiting, tables, store):
    id_ = tables.add_task(**columns)
    with store.batch() as rows:
        rows.advance([(task, NOW + MINUTE, None) for task in rows.claim_due(NOW, 0, 1)])
    assert (tables.task(id_).waiting, tables.task(id_).next_run) == (waiting, NOW + MINUTE)


def test_an_occurrence_that_has_started_before_its_push_was_noted_does_not_wait(tables, store):
    id_ = tables.add_task(last_occurrence=NOW)
    tables.add_run(task_id=id_, token=TOKEN, until=NOW + MINUTE, **RUNNING)
    with store.batch() as rows:
        rows.advance([(task, NOW + MINUTE, None) for task in rows.claim_due(NOW, 0, 1)])
    assert (tables.task(id_).waiting, tables.task(id_).next_run) == ((), NOW + MINUTE)


def test_a_task_that_was_set_back_stays_due_counts_its_errors_and_shows_the_last(tables, store):
    id_ = tables.add_task()
    for number, after in ((1, NOW), (2, NOW + MINUTE)):
        with store.batch() as rows:
            [task] = rows.claim_due(NOW, 0, 1)
            rows.try_later([(task.id, f"error {number}", after)])
    assert tables.task(id_) == TaskRow(id_, NOW, push_errors=2, push_error="error 2", push_after=NOW + MINUTE)


def test_an_error_within_a_batch_leaves_it_and_the_batch_leaves_nothing(tables, store):
    id_ = tables.add_task(waiting=(NOW - MINUTE,))
    run_ids = [tables.add_run(task_id=id_), tables.add_run(task_id=id_, state="pushed"), tables.add_run(task_id=0)]
    before = tables.task(id_), tables.runs()
    with pytest.raises(Interrupted), store.batch() as rows:
        rows.advance([(task, NOW + MINUTE, None) for task in rows.claim_due(NOW, 0, 1)])
        rows.try_later([(id_, "full", NOW + MINUTE)])
        rows.settle([Settled(id_, NOW - MINUTE, Outcome.LOST, "x")], NOW)
        assert [run.id for run in rows.claim_planned(NOW, MANY)] == run_ids[:1]
        rows.mark_pushed([(run_ids[0], "")], NOW)
        rows.lose_planned(run_ids[1:2], "x", NOW)
        raise Interrupted
    assert (tables.task(id_), tables.runs()) == before
    assert due(tables.another()) == [id_]


# ---------------------------------------------------------------------------------------------------- planned runs


def test_planned_runs_that_are_due_come_oldest_first_with_what_their_push_needs(tables, store):
    task_id = tables.add_task(queue="mail", function="fetch", box_ms=20_000, grace_ms=500)
    later, late, _, now = (tables.add_run(task_id=task_id, due_at=NOW - age * MICROSECOND) for age in (1, 2, -1, 0))
    with store.batch() as rows:
        runs = rows.claim_planned(NOW, 3)
        assert runs == [PlannedRun(id_, task_id, "mail", "fetch", 20_000, 500) for id_ in (late, later, now)]
    with store.batch() as rows:
        assert [run.id for run in rows.claim_planned(NOW, 1)] == [late]


def test_planned_runs_of_an_open_batch_are_left_out_by_others(tables, store):
    task_id = tables.add_task()
    first, second = tables.add_run(task_id=task_id), tables.add_run(task_id=task_id)
    with store.batch() as rows, tables.another().batch() as others:
        assert [run.id for run in rows.claim_planned(NOW, 1)] == [first]
        assert [run.id for run in others.claim_planned(NOW, MANY)] == [second]


def test_a_run_that_was_planned_behind_the_deletion_of_its_task_ends_as_dropped(tables, store):
    plans = [{"due_at": NOW + SECOND}, {"due_at": NOW}]
    ids = [tables.add_run(task_id=9, **plan) for plan in plans]
    with store.batch() as rows:
        assert rows.claim_planned(NOW, MANY) == []
    assert store.drop_orphaned_plans(NOW, 1) == 1
    dropped = {"state": "ended", "outcome": Outcome.DROPPED, "reason": Reason.GONE, "ended_at": NOW}
    ends = [{}, dropped]
    assert tables.runs() == [RunRow(id_, 9, **{**plan, **end}) for id_, plan, end in zip(ids, plans, ends, strict=True)]


@pytest.mark.parametrize("state", ["planned", "pushed"])
def test_a_run_that_is_to_be_stopped_ends_as_dropped_if_it_has_not_started(state, tables, store):
    task = tables.add_task()
    asked = tables.add_run(task_id=task, state=state, stop_requested_by="ann")
    tables.add_run(task_id=task, state=state)
    assert store.stop_runs(NOW, MANY) == []
    one, other = tables.runs()
    assert (one.id, one.state, one.outcome, one.reason, one.ended_at) == (asked, "ended", "dropped", "stopped", NOW)
    assert other.state == state


def test_runs_at_work_that_are_to_be_stopped_are_returned_with_their_tokens(tables, store):
    task = tables.add_task()
    tables.add_run(**RUNNING, task_id=task, token=TOKEN, until=NOW + MINUTE, stop_requested_by="ann")
    tables.add_run(**RUNNING | {"occurrence": NOW + MINUTE}, task_id=task, token=uuid4(), until=NOW + MINUTE)
    assert [run.token for run in store.stop_runs(NOW, MANY)] == [str(TOKEN)]
    assert [run.state for run in tables.runs()] == ["running"] * 2


def test_a_planned_run_that_was_pushed_is_not_pushed_again(tables, store):
    id_ = tables.add_run(task_id=tables.add_task(), reason="full")
    with store.batch() as rows:
        rows.claim_planned(NOW, MANY)
        rows.mark_pushed([(id_, "")], NOW)
    with store.batch() as rows:
        assert rows.claim_planned(NOW, MANY) == []
    [run] = tables.runs()
    assert (run.state, run.pushed_at, run.reason) == ("pushed", NOW, "")


def test_a_planned_run_that_could_not_be_pushed_waits_and_says_why(tables, store):
    id_ = tables.add_run(task_id=tables.add_task())
    with store.batch() as rows:
        rows.claim_planned(NOW, MANY)
        rows.try_planned_later([(id_, "full", NOW + MINUTE)])
    [run] = tables.runs()
    assert (run.state, run.due_at, run.reason) == ("planned", NOW + MINUTE, "full")
    with store.batch() as rows:
        assert rows.claim_planned(NOW, MANY) == []
        assert [run.id for run in rows.claim_planned(NOW + MINUTE, MANY)] == [id_]


# -------------------------------------------------------------------------------------------------------- the sweep


def test_waiting_tasks_come_with_their_occurrences_oldest_first(tables, store):
    tables.add_task()
    id_ = tables.add_task(waiting=(NOW, NOW - MINUTE), queue="mail", function="fetch", box_ms=20_000)
    with store.batch() as rows:
        assert rows.claim_waiting(MANY) == [
            WaitingTask(id_, (NOW - MINUTE, NOW), "mail", "fetch", 60_000, 20_000, 1_000)
        ]


def test_each_look_at_the_waiting_tasks_goes_on_behind_the_last_and_begins_anew_at_the_end(tables, store):
    ids = [tables.add_task(waiting=(NOW,)) for _ in range(5)]

    def look():
        with store.batch() as rows:
            return [task.id for task in rows.claim_waiting(2)]

    assert [look() for _ in range(4)] == [ids[:2], ids[2:4], ids[4:], ids[:2]]


def test_waiting_tasks_that_another_batch_holds_are_left_out(tables, store):
    first, second = (tables.add_task(waiting=(NOW,)) for _ in range(2))
    with store.batch() as rows, tables.another().batch() as others:
        assert [task.id for task in rows.claim_waiting(1)] == [first]
        assert [task.id for task in others.claim_waiting(MANY)] == [second]


def test_a_settled_occurrence_waits_no_more_and_is_recorded(tables, store):
    id_ = tables.add_task(waiting=(NOW - 2 * MINUTE, NOW - MINUTE, NOW), next_run=NOW + MINUTE)
    with store.batch() as rows:
        rows.claim_waiting(MANY)
        rows.settle([Settled(id_, NOW - MINUTE, Outcome.LOST, "it died"),
                     Settled(id_, NOW - 2 * MINUTE, Outcome.DROPPED, Reason.EXPIRED)], NOW)  # fmt: skip
    assert tables.task(id_) == TaskRow(
        id_, NOW + MINUTE, waiting=(NOW,), last_outcome=Outcome.LOST, last_ended_at=NOW, failures=1,
    )  # fmt: skip
    recorded = {(r.task_id, r.kind, r.state, r.occurrence, r.outcome, r.reason, r.ended_at) for r in tables.runs()}
    assert recorded == {
        (id_, RunKind.SCHEDULED, "ended", NOW - MINUTE, Outcome.LOST, "it died", NOW),
        (id_, RunKind.SCHEDULED, "ended", NOW - 2 * MINUTE, Outcome.DROPPED, Reason.EXPIRED, NOW),
    }


def test_each_look_at_the_pushed_runs_goes_on_behind_the_last_and_begins_anew_at_the_end(tables, store):
    task_id = tables.add_task(queue="mail", function="fetch", box_ms=20_000, grace_ms=500)
    tables.add_run(task_id=task_id)
    ids = [tables.add_run(task_id=task_id, state="pushed") for _ in range(3)]

    def look():
        with store.batch() as rows:
            return list(rows.claim_pushed(2, NOW))

    pushed = [PlannedRun(id_, task_id, "mail", "fetch", 20_000, 500, is_young=True) for id_ in ids]
    assert [look() for _ in range(3)] == [pushed[:2], pushed[2:], pushed[:2]]


def test_a_pushed_run_that_was_lost_ends_and_says_why(tables, store):
    id_ = tables.add_run(task_id=tables.add_task(), state="pushed")
    with store.batch() as rows:
        rows.claim_pushed(MANY, NOW)
        rows.lose_planned([id_], "it died", NOW)
    [run] = tables.runs()
    assert (run.state, run.outcome, run.reason, run.ended_at) == ("ended", Outcome.LOST, "it died", NOW)


def test_a_run_past_its_box_ends_as_lost_and_frees_its_task(tables, store):
    token, until = uuid4(), NOW + 31 * SECOND
    task_id = tables.add_task(run_token=token, running_until=until, last_run=NOW, failures=1)
    run_id = tables.add_run(**RUNNING, task_id=task_id, token=token, until=until)
    a_second_later = until + SECOND
    assert store.end_overdue(a_second_later, MANY) == 0
    now = a_second_later + MICROSECOND
    assert store.end_overdue(now, MANY) == 1
    assert tables.task(task_id) == TaskRow(
        task_id, NOW, last_run=NOW, failures=2, last_run_id=run_id, last_outcome=Outcome.LOST, last_ended_at=now
    )
    [run] = tables.runs()
    assert (run.state, run.outcome, run.ended_at) == ("ended", Outcome.LOST, now)
    assert run.reason == sentence("why.no_end_recorded_until", until="12:00:31")
    assert store.end_overdue(now, MANY) == 0


def test_the_end_of_an_overdue_run_leaves_a_later_runs_hold_alone(tables, store):
    later = uuid4()
    task_id = tables.add_task(run_token=later, running_until=NOW + 10 * MINUTE)
    tables.add_run(**RUNNING, task_id=task_id, token=uuid4(), until=NOW)
    assert store.end_overdue(NOW + MINUTE, MANY) == 1
    assert tables.task(task_id) == TaskRow(task_id, NOW, run_token=later, running_until=NOW + 10 * MINUTE)


def test_an_overdue_run_of_a_task_that_is_gone_ends_too_and_at_most_as_many_as_asked_for(tables, store):
    for age in (1, 3, 2):
        tables.add_run(**RUNNING, task_id=9 + age, token=uuid4(), until=NOW - age * MINUTE)
    assert store.end_overdue(NOW, 2) == 2
    assert [run.outcome for run in tables.runs()] == [None, Outcome.LOST, Outcome.LOST]


def test_an_overdue_run_of_a_task_that_another_batch_holds_is_left_to_the_next_pass(tables, store):
    task_id = tables.add_task()
    tables.add_run(**RUNNING, task_id=task_id, token=uuid4(), until=NOW)
    with tables.another().batch() as others:
        others.claim_due(NOW, 0, MANY)
        assert store.end_overdue(NOW + MINUTE, MANY) == 0
    assert store.end_overdue(NOW + MINUTE, MANY) == 1


# ------------------------------------------------------------------------------------------------ pauses and clocks


@pytest.mark.slow
def test_a_pause_whose_time_has_come_ends_and_an_interval_task_is_due_at_once(tables, store):
    pause = {"paused_by": "me", "paused_reason": "why", "paused_until": NOW}
    interval = tables.add_task(**pause, next_run=NOW + MINUTE)
    cron = tables.add_task(**pause, **CRON, next_run=NOW + MINUTE)
    done = tables.add_task(**pause, next_run=None)
    store.wake(NOW - MICROSECOND, MANY)
    assert tables.task(interval).paused_by == "me"
    store.wake(NOW, MANY)
    assert tables.task(interval) == TaskRow(interval, NOW)
    assert tables.task(cron) == TaskRow(cron, NOW + MINUTE, **CRON)
    assert tables.task(done) == TaskRow(done, None)


def test_a_pause_without_an_end_stays(tables, store):
    id_ = tables.add_task(paused_by="me", paused_reason="why")
    store.wake(NOW + 1000 * MINUTE, MANY)
    assert tables.task(id_) == TaskRow(id_, NOW, paused_by="me", paused_reason="why")


FUTURE = NOW + timedelta(days=365)


@pytest.mark.parametrize(
    ("columns", "clamped"),
    [
        ({"last_run": FUTURE}, {"last_run": NOW}),
        ({"last_occurrence": FUTURE}, {"last_occurrence": NOW}),
        ({"run_token": TOKEN, "running_until": FUTURE}, {"running_until": NOW + 31 * SECOND}),
        ({"waiting": (FUTURE,), "next_run": FUTURE}, {"next_run": NOW + MINUTE}),
        ({"last_occurrence": NOW, "next_run": FUTURE, "push_after": FUTURE},
         {"next_run": NOW + MINUTE, "push_after": None}),
        ({"push_after": FUTURE}, {"push_after": None}),
        ({"last_occurrence": FUTURE, "next_run": NOW - MINUTE}, {"last_occurrence": NOW}),
        ({"last_occurrence": FUTURE, "next_run": None}, {"last_occurrence": NOW}),
    ],
    ids=" ".join,
)  # fmt: skip
def test_after_the_clock_was_set_back_what_lies_in_the_future_is_brought_back(columns, clamped, tables, store):
    tables.saw_tick(FUTURE)
    id_ = tables.add_task(**columns)
    store.clamp(NOW, MANY)
    assert tables.task(id_) == TaskRow(id_, **{**columns, **clamped})


@pytest.mark.parametrize(
    "columns",
    [
        {"next_run": FUTURE},  # its `first`
        {**CRON, "next_run": FUTURE, "last_occurrence": NOW},
        {"next_run": NOW + MINUTE, "waiting": (NOW,)},
        {"last_run": NOW, "last_occurrence": NOW + SECOND, "next_run": NOW + MINUTE + SECOND},  # the look-ahead's
        {"run_token": TOKEN, "running_until": NOW + 31 * SECOND},
        {"push_errors": 20, "push_error": "full", "push_after": NOW + 60 * MINUTE},
    ],
    ids=" ".join,
)
def test_what_lies_ahead_for_a_reason_is_kept(columns, tables, store):
    tables.saw_tick(FUTURE)
    id_ = tables.add_task(**columns)
    store.clamp(NOW, MANY)
    assert tables.task(id_) == TaskRow(id_, **columns)


def test_a_task_whose_first_occurrence_was_dropped_is_brought_back_too(tables, store):
    """Nothing in its row says that it was ever pushed; its record does, and so this is no `first`."""
    tables.saw_tick(FUTURE)
    id_ = tables.add_task(next_run=FUTURE)
    dropped = {"outcome": Outcome.DROPPED, "reason": Reason.PAUSED, "ended_at": NOW}
    tables.add_run(task_id=id_, kind=RunKind.SCHEDULED, state="ended", due_at=None, occurrence=NOW, **dropped)
    store.clamp(NOW, MANY)
    assert tables.task(id_).next_run == NOW + MINUTE


def test_the_first_pass_looks_at_every_row_and_the_next_ones_want_a_tick_in_the_future_as_a_sign(tables, store):
    """A pass that was interrupted before its heartbeat leaves no sign behind; that must not be for good."""
    first = tables.add_task(last_run=FUTURE)
    tables.saw_tick(NOW + SECOND)
    store.clamp(NOW, MANY)
    assert tables.task(first).last_run == NOW
    columns = {"last_run": FUTURE, "last_occurrence": FUTURE, "next_run": FUTURE}
    id_ = tables.add_task(**columns)
    store.clamp(NOW, MANY)
    assert tables.task(id_) == TaskRow(id_, **columns)


def test_all_tasks_are_brought_back_however_many(tables, store):
    tables.saw_tick(FUTURE)
    ids = [tables.add_task(last_run=FUTURE) for _ in range(5)]
    store.clamp(NOW, 2)
    assert {tables.task(id_).last_run for id_ in ids} == {NOW}


# ------------------------------------------------------------------------------------------- pauses of many tasks

SCOPES = [
    ("all", ""),
    ("group", "mail"),
    ("function", "fetch"),
    ("queue", "slow"),
    ("owner_type", "channel"),
    ("limit", "imap.*"),
]
COVERED = {
    "group_name": "mail",
    "function": "fetch",
    "queue": "slow",
    "owner_type": "channel",
    "owner_id": "1",
    "limits": ("imap.a",),
}


def at_gate(tables, *ids):
    return [tables.task(id_).pause_id for id_ in ids]


def let_go(store, now=NOW, limit=MANY):
    """The ids that are due after the ticker has let tasks go."""
    store.let_go(now, limit)
    return due(store, now)


@pytest.mark.parametrize(("scope", "value"), SCOPES)
def test_due_tasks_of_a_pause_are_withheld_and_no_others(scope, value, tables, store):
    covered, later = tables.add_task(**COVERED), tables.add_task(**COVERED, next_run=NOW + SECOND)
    other = tables.add_task(group_name="mai", owner_type="channels", owner_id="1", limits=("pop3",))
    pause = tables.add_pause(scope, value)
    assert store.wait_for_gate(NOW, 0, MANY) is None
    assert at_gate(tables, covered, later, other) == [pause, None, pause if scope == "all" else None]


@pytest.mark.parametrize(("scope", "value"), SCOPES)
def test_a_due_task_of_a_pause_that_no_tick_has_withheld_is_not_claimed(scope, value, tables, store):
    """The pause was committed after the tick had at_gate what was due."""
    free = tables.add_task(**COVERED | {"limits": None})
    limited = tables.add_task(**COVERED)
    tables.add_pause(*(("limit", "imap.a") if scope == "limit" else (scope, value)))
    with store.batch() as rows:
        claimed = [
            *rows.claim_due(NOW, 0, MANY),
            *rows.claim_in_turn(NOW, 0, "slow", MANY),
            *rows.claim_chosen(NOW, 0, [limited]),
        ]
        assert [task.id for task in claimed] == ([free, free] if scope == "limit" else [])


def test_due_tasks_are_examined_in_order_each_of_them_once(tables, store):
    """Whether a pause is for them or not, so that a crowd of due tasks costs one walk."""
    limited, free, newest, middle = (
        tables.add_task(next_run=NOW - age * MINUTE, **columns)
        for age, columns in ((3, {"limits": ("imap.a",)}), (3, {"function": "other"}), (1, {}), (2, {}))
    )
    pause = tables.add_pause("function", "poll")
    after = store.wait_for_gate(NOW, 0, 2)
    assert [after, at_gate(tables, limited, free, newest, middle)] == [
        (NOW - 3 * MINUTE, free),
        [pause, None, None, None],
    ]
    after = store.wait_for_gate(NOW, 0, 2, after)
    assert [after, at_gate(tables, limited, free, newest, middle)] == [
        (NOW - MINUTE, newest),
        [pause, None, pause, pause],
    ]
    assert store.wait_for_gate(NOW, 0, 2, after) is None


def test_what_was_due_before_the_end_of_a_pause_waits_for_its_turn_though_no_tick_ran_in_it(tables, store):
    before, after = tables.add_task(next_run=NOW - MINUTE), tables.add_task(next_run=NOW - SECOND)
    pause = tables.add_pause("all")
    tables.end_pause(pause, NOW - 10 * SECOND)
    store.wait_for_gate(NOW, 0, MANY)
    assert at_gate(tables, before, after) == [pause, None]
    assert let_go(store) == [before, after]
    store.wait_for_gate(NOW, 0, MANY)
    assert at_gate(tables, before, after) == [None, None]


def test_a_withheld_task_is_not_due_and_keeps_its_next_run(tables, store):
    id_ = tables.add_task(queue="slow", next_run=NOW - MINUTE)
    tables.add_pause("all")
    store.wait_for_gate(NOW, 0, MANY)
    assert due(store, NOW + 10 * MINUTE) == [] and store.count_due(NOW, 0, "slow") == 0
    assert tables.task(id_).next_run == NOW - MINUTE


def test_a_task_of_several_pauses_waits_for_the_first_and_then_for_the_next(tables, store):
    id_ = tables.add_task(function="fetch")
    first, second = tables.add_pause("all"), tables.add_pause("function", "fetch")
    store.wait_for_gate(NOW, 0, MANY)
    assert at_gate(tables, id_) == [first]
    tables.end_pause(first, NOW)
    assert let_go(store) == [] and at_gate(tables, id_) == [second]
    tables.end_pause(second, NOW)
    assert let_go(store) == [id_] and at_gate(tables, id_) == [None]


def test_the_tasks_that_are_due_for_longest_go_first_and_at_most_as_many_as_asked_for(tables, store):
    ids = [tables.add_task(next_run=NOW - age * MINUTE) for age in (1, 3, 2)]
    pause = tables.add_pause("all")
    store.wait_for_gate(NOW, 0, MANY)
    tables.end_pause(pause, NOW)
    assert [store.let_go(NOW, 2), due(store)] == [(2, 2), [ids[1], ids[2]]]
    assert [store.let_go(NOW, 2), due(store)] == [(1, 1), [ids[1], ids[2], ids[0]]]


def test_a_task_that_goes_keeps_its_own_pause_and_needs_no_budget(tables, store):
    id_ = tables.add_task()
    pause = tables.add_pause("all")
    store.wait_for_gate(NOW, 0, MANY)
    tables.put(id_, paused_by="ann")
    tables.end_pause(pause, NOW)
    assert let_go(store) == []
    assert (tables.task(id_).pause_id, tables.task(id_).paused_by) == (None, "ann")


def test_a_pause_with_an_end_is_in_force_until_that_very_instant(tables, store):
    id_ = tables.add_task()
    tables.add_pause("all", until=NOW + MINUTE)
    assert due(store, NOW + MINUTE - MICROSECOND) == []
    assert due(store, NOW + MINUTE) == [id_]


def test_a_pause_that_a_tick_has_ended_stays_ended_if_the_clock_is_set_back(tables, store):
    id_ = tables.add_task()
    tables.add_pause("all", until=NOW + MINUTE)
    store.open_pauses(NOW + MINUTE)
    assert due(store, NOW) == [id_]


def test_of_waiting_tasks_those_that_may_not_start_are_known(tables, store):
    tables.add_task(waiting=(NOW,), paused_by="ann")
    tables.add_task(waiting=(NOW,), group_name="mail")
    tables.add_task(waiting=(NOW,), enabled=False)
    tables.add_task(waiting=(NOW,), owner_active=False)
    tables.add_task(waiting=(NOW,))
    tables.add_pause("group", "mail")
    with store.batch() as rows:
        assert [task.is_closed for task in rows.claim_waiting(MANY, NOW)] == [True, True, True, True, False]


PLANNED_RUNS = [
    ((), {}, ["manual", "retry"]),
    ((), {"paused_by": "ann"}, ["manual"]),
    (("queue", "slow"), {}, ["manual"]),
    (("all", ""), {}, []),
]


@pytest.mark.parametrize(("pause", "columns", "kinds"), PLANNED_RUNS)
def test_planned_runs_wait_for_a_pause_and_manual_ones_only_for_one_of_all_tasks(pause, columns, kinds, tables, store):
    task = tables.add_task(queue="slow", **columns)
    limited = tables.add_task(queue="slow", limits=("imap",), **columns)
    if pause:
        tables.add_pause(*pause)
    runs = {
        (state, of): [tables.add_run(task_id=of, kind=kind, state=state) for kind in (RunKind.MANUAL, RunKind.RETRY)]
        for state in ("planned", "pushed") for of in (task, limited)
    }  # fmt: skip
    free, keyed = (dict(zip(runs["planned", of], ("manual", "retry"), strict=True)) for of in (task, limited))
    with store.batch() as rows:
        assert [free[run.id] for run in rows.claim_planned(NOW, MANY)] == kinds
        assert [run.id for run in rows.claim_pushed(MANY, NOW)] == [
            ids[number] for (state, _), ids in runs.items() if state == "pushed" for number in range(len(kinds))
        ]
    planned, _ = store.limited_due(NOW - SECOND, 0, MANY)
    assert planned == []
    planned, _ = store.limited_due(NOW, 0, MANY)
    assert [keyed[one.id] for one in planned if one.is_planned] == kinds


@pytest.mark.parametrize(("pause", "columns", "kinds"), PLANNED_RUNS)
def test_a_planned_run_that_was_chosen_before_its_pause_is_not_claimed(pause, columns, kinds, tables, store):
    task = tables.add_task(queue="slow", limits=("imap",), **columns)
    runs = {tables.add_run(task_id=task, kind=kind): kind for kind in (RunKind.MANUAL, RunKind.RETRY)}
    if pause:
        tables.add_pause(*pause)
    with store.batch() as rows:
        assert [runs[run.id] for run in rows.claim_chosen_planned([*runs], NOW)] == kinds


# ------------------------------------------------------------------------------------------ the budget after a pause


def over(tables, store, count, *, resumed_at=NOW):
    """A pause that is over, for which so many tasks of one minute wait."""
    for number in range(count):
        tables.add_task(function="fetch", next_run=NOW - (number + 1) * SECOND)
    pause = tables.add_pause("function", "fetch")
    store.wait_for_gate(NOW, 0, MANY)
    tables.end_pause(pause, resumed_at)
    return pause


def granted(store, now=NOW, period=30_000, tick=30_000, full=()):
    store.open_pauses(now)
    return store.grant_budget(now, 0, period, tick, full)


def test_nothing_is_granted_while_a_pause_is_in_force(tables, store):
    tables.add_task(function="fetch")
    pause = tables.add_pause("function", "fetch")
    store.wait_for_gate(NOW, 0, MANY)
    assert [store.open_pauses(NOW), granted(store)] == [(1, 0), None]
    tables.end_pause(pause, NOW)
    assert [store.open_pauses(NOW), granted(store)] == [(0, 1), 1_000]


def test_the_budget_is_a_fifth_more_than_the_schedules_of_the_tasks_require_in_a_tick(tables, store):
    over(tables, store, 3)
    for columns in ({}, {"function": "fetch", "enabled": False}, {"function": "fetch", "paused_by": "ann"}):
        tables.add_task(next_run=NOW + SECOND, **columns)
    assert granted(store, tick=1_000 * 60_000) == 3_600
    tables.add_task(
        function="fetch", next_run=NOW + 60 * MINUTE, **CRON, box_ms=30_000
    )  # at least a minute between two times
    assert granted(store, NOW + MINUTE, tick=1_000 * 60_000) == 4_800


def test_pauses_that_are_over_share_one_budget(tables, store):
    over(tables, store, 3)
    tables.add_task(queue="slow")
    second = tables.add_pause("queue", "slow")
    store.wait_for_gate(NOW, 0, MANY)
    tables.end_pause(second, NOW)
    assert granted(store, tick=1_000 * 60_000) == 4_800


@pytest.mark.slow
def test_tasks_that_are_due_without_waiting_count_but_a_tenth_is_always_let_go(tables, store):
    over(tables, store, 1)
    for _ in range(5):
        tables.add_task(function="fetch")
        tables.add_task()
    tables.add_task(function="fetch", limits=("imap.a",))
    tables.add_task(function="fetch", limits=("imap.a",), next_run=NOW - MINUTE)  # its key has no room
    assert granted(store) == 994
    for _ in range(1_000):
        tables.add_task(function="fetch")
    assert granted(store, NOW + MINUTE) == 100


def test_the_backlog_of_a_full_queue_does_not_count(tables, store):
    over(tables, store, 1)
    for _ in range(5):
        tables.add_task(function="fetch", queue="slow")
    assert granted(store, full=["slow"]) == 1_000


def test_a_budget_is_granted_once_in_a_period(tables, store):
    over(tables, store, 1)
    other = tables.another()
    assert granted(store) == 1_000
    for seconds in (0, 1, 27):
        assert granted(other, NOW + seconds * SECOND) is None
    assert granted(other, NOW + 27 * SECOND + MILLISECOND) == 1_000
    assert granted(store, NOW + 28 * SECOND) is None


def test_pauses_that_end_one_after_the_other_share_the_budget_of_a_period(tables, store):
    over(tables, store, 1)
    tables.add_task(queue="slow", next_run=NOW - SECOND)
    other = tables.add_pause("queue", "slow")
    store.wait_for_gate(NOW, 0, MANY)
    assert granted(store) == 1_000
    tables.end_pause(other, NOW + SECOND)
    assert granted(tables.another(), NOW + SECOND) is None
    assert granted(store, NOW + 28 * SECOND) == 1_000
    assert granted(tables.another(), NOW + 29 * SECOND) is None


def test_a_budget_is_granted_again_after_the_clock_was_set_back(tables, store):
    over(tables, store, 1, resumed_at=NOW - 10 * MINUTE)
    assert granted(store) == 1_000
    assert granted(store, NOW - 5 * MINUTE) == 1_000


def test_tasks_that_wait_for_a_pause_whose_row_is_gone_are_let_go(tables, store):
    tables.delete_pause(over(tables, store, 2))
    assert store.open_pauses(NOW).over and granted(store) == 1_000
    assert len(let_go(store)) == 2


@pytest.mark.slow
def test_a_pause_that_is_over_is_done_when_no_task_waits_for_it(tables, store):
    over(tables, store, 1)
    store.close_pauses(NOW)
    assert store.open_pauses(NOW).over == 1
    store.let_go(NOW, MANY)
    store.close_pauses(NOW)
    assert store.open_pauses(NOW) == (0, 0)


def test_after_the_clock_was_set_back_the_end_of_a_pause_does_not_lie_ahead(tables, store):
    """Otherwise, tasks that were let go would wait once more."""
    tables.add_task(next_run=NOW - 2 * MINUTE)
    tables.end_pause(tables.add_pause("all"), NOW + 10 * MINUTE)
    store.open_pauses(NOW)
    store.wait_for_gate(NOW, 0, MANY)
    store.let_go(NOW, MANY)
    store.wait_for_gate(NOW + SECOND, 0, MANY)
    assert len(due(store, NOW + SECOND)) == 1


def test_an_occurrence_of_a_paused_task_goes_back_to_the_row(tables, store):
    id_ = tables.add_task(waiting=(NOW - MINUTE, NOW), next_run=NOW + MINUTE)
    with store.batch() as rows:
        rows.wait_again([(id_, NOW, Reason.CLOSED)])
    row = tables.task(id_)
    assert (row.waiting, row.next_run, row.waits_again) == ((NOW - MINUTE,), NOW, NOW)


@pytest.mark.parametrize(("moved_to", "recorded"), [(NOW + MINUTE, True), (None, True), (NOW, False)])
def test_an_occurrence_that_went_back_has_a_record_if_the_task_becomes_due_at_another_time(
    moved_to, recorded, tables, store
):
    id_ = tables.add_task(waiting=(NOW,), next_run=NOW + 5 * MINUTE)
    with store.batch() as rows:
        rows.wait_again([(id_, NOW, Reason.CLOSED)])
    tables.put(id_, next_run=moved_to)
    records = [(run.occurrence, run.outcome, run.reason) for run in tables.runs()]
    assert records == [(NOW, Outcome.DROPPED, Reason.SUPERSEDED)] * recorded
    assert tables.task(id_).waits_again == (None if recorded else NOW)


# --------------------------------------------------------------------------------------------- a store out of reach


@pytest.fixture(params=["memory", "postgres"])
def absent_store(request, tmp_path):
    if request.param == "postgres":
        return PostgresStore(f"postgresql://nobody@/nothing?host={tmp_path}")
    store = MemoryStore()
    store.down = True
    return store


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.now(),
        lambda s: s.batch().__enter__(),
        lambda s: s.wake(NOW, 1),
        lambda s: s.clamp(NOW, 1),
        lambda s: s.end_overdue(NOW, 1),
    ],
    ids=["now", "batch", "wake", "clamp", "end_overdue"],
)
def test_a_store_out_of_reach_says_so(call, absent_store):
    with pytest.raises(DatabaseUnavailable):
        call(absent_store)


# -------------------------------------------------------------------------------------------------------- the queue


class RedisJobs:
    """Redis as `MemoryQueue` shows it."""

    def __init__(self, redis):
        self._redis = redis

    def waiting(self, queue="polling"):
        return Queue(queue, connection=self._redis).get_job_ids()

    def pop(self, queue="polling"):
        popped = self._redis.lpop(f"rq:queue:{queue}")
        return popped and popped.decode()

    def ten_seconds_later(self):
        for key in self._redis.scan_iter("rq:job:*"):
            if self._redis.hexists(key, "astray_since"):
                self._redis.hincrby(key, "astray_since", -10)

    def bring_forward(self, job_id, queue="polling"):
        self._redis.lrem(f"rq:queue:{queue}", 1, job_id)
        self._redis.lpush(f"rq:queue:{queue}", job_id)

    def poison(self, queue):
        self._redis.set(f"rq:queue:{queue}", "of another type")

    def cure(self, queue):
        self._redis.delete(f"rq:queue:{queue}")

    def set_status(self, job_id, status):
        self._redis.hset(f"rq:job:{job_id}", "status", status)

    def refuse(self, job_id, reason):
        entry.note_refusal(Job(job_id, connection=self._redis), ConfigurationError(reason))


@pytest.fixture(params=["memory", "redis"])
def pair(request):
    """A queue, and a look behind it."""
    if request.param == "memory":
        queue = MemoryQueue()
        return queue, queue
    redis = request.getfixturevalue("redis")
    return RedisQueue(redis), RedisJobs(redis)


@pytest.fixture
def queue(pair):
    return pair[0]


@pytest.fixture
def jobs(pair):
    return pair[1]


def job(id_, queue="polling"):
    return JobSpec(id_, queue, (1, 2), timeout=61, ttl=3600, description="poll")


def test_the_length_of_a_queue_is_the_number_of_its_jobs(queue):
    queue.push([job("a"), job("b"), job("c", "mail")])
    assert queue.lengths(("polling", "mail", "empty")) == {"polling": 2, "mail": 1, "empty": 0}


STORED, HELD = Receipt(stored=True), Receipt(held=True)


def test_jobs_are_stored_in_their_order(queue, jobs):
    assert queue.push([job("b"), job("a"), job("c", "mail")]) == [STORED] * 3
    assert queue.push([job("d")]) == [STORED]
    assert jobs.waiting() == ["b", "a", "d"]
    assert jobs.waiting("mail") == ["c"]


def test_an_id_that_is_still_held_is_refused(queue, jobs):
    queue.push([job("a")])
    assert queue.push([job("a"), job("b"), job("b")]) == [HELD, STORED, HELD]
    assert jobs.waiting() == ["a", "b"]


def test_a_queue_that_takes_nothing_costs_only_its_own_jobs(queue, jobs):
    jobs.poison("bad")
    first, second, third = queue.push([job("a"), job("b", "bad"), job("c")])
    assert (first, third) == (STORED, STORED)
    assert not second.stored and not second.held and second.error
    assert jobs.waiting() == ["a", "c"]
    assert queue.states(["b"]) == [JobState.MISSING]
    jobs.cure("bad")
    assert queue.push([job("b", "bad")]) == [STORED]
    assert jobs.waiting("bad") == ["b"]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("created", JobState.WAITING), ("queued", JobState.WAITING), ("started", JobState.TAKEN),
        ("deferred", JobState.WAITING), ("scheduled", JobState.WAITING), ("finished", JobState.DEAD),
        ("failed", JobState.DEAD), ("stopped", JobState.DEAD), ("canceled", JobState.DEAD),
    ],
)  # fmt: skip
def test_a_job_is_alive_dead_or_missing(status, state, queue, jobs):
    queue.push([job("a"), job("b")])
    jobs.set_status("a", status)
    assert queue.states(["missing", "a", "b"]) == [JobState.MISSING, state, JobState.WAITING]


def test_a_job_that_was_taken_from_its_queue_and_marked_by_nobody_is_missing_after_ten_seconds(queue, jobs):
    queue.push([job("a")])
    queue.push([job("b")])
    jobs.pop()
    assert queue.states(["a", "b"]) == [JobState.WAITING, JobState.WAITING]
    jobs.ten_seconds_later()
    assert queue.states(["a", "b"]) == [JobState.MISSING, JobState.WAITING]
    jobs.pop()
    assert queue.states(["a", "b"]) == [JobState.MISSING, JobState.WAITING]
    jobs.ten_seconds_later()
    assert queue.states(["a", "b"]) == [JobState.MISSING, JobState.MISSING]
    queue.forget(["a", "b"])
    queue.push([job("a")])
    assert (queue.states(["a"]), jobs.waiting()) == ([JobState.WAITING], ["a"])


def test_a_job_that_a_worker_has_marked_late_is_no_lost_one(queue, jobs):
    queue.push([job("a")])
    jobs.pop()
    queue.states(["a"])
    jobs.ten_seconds_later()
    jobs.set_status("a", "started")
    assert queue.states(["a"]) == [JobState.TAKEN]


def test_a_job_behind_one_that_was_put_in_front_is_no_stray(queue, jobs):
    queue.push([job("a")])
    queue.push([job("b")])
    jobs.bring_forward("b")
    queue.states(["a", "b"])
    jobs.ten_seconds_later()
    assert queue.states(["a", "b"]) == [JobState.WAITING, JobState.WAITING]


def test_a_forgotten_job_is_missing_and_may_be_pushed_again(queue):
    queue.push([job("a"), job("b")])
    queue.forget(["a", "never there"])
    assert queue.states(["a", "b"]) == [JobState.MISSING, JobState.WAITING]
    assert queue.push([job("a")]) == [STORED]


def test_the_refusals_of_a_job_are_counted_and_outlive_it(queue, jobs):
    for id_, reason in (("a", "first"), ("a", "second"), ("b", "third")):
        queue.push([job(id_)])
        jobs.refuse(id_, reason)
        queue.forget([id_])
    counts, reasons = zip(*queue.refusals(["a", "b", "c"]), strict=True)
    assert counts == (2, 1, 0)
    assert [reason.split()[-1:] for reason in reasons] == [["second"], ["third"], []]


def test_nothing_to_push_to_ask_or_to_forget_is_fine(queue, jobs):
    assert (list(queue.push([])), list(queue.states([])), jobs.waiting()) == ([], [], [])
    queue.forget([])


@pytest.fixture(params=["memory", "redis"])
def absent_queue(request, tmp_path):
    if request.param == "redis":
        return RedisQueue.from_url(f"unix://{tmp_path}/nothing")
    queue = MemoryQueue()
    queue.down = True
    return queue


@pytest.mark.parametrize(
    "call",
    [lambda q: q.push([job("a")]), lambda q: q.states(["a"]), lambda q: q.forget(["a"])],
    ids=["push", "states", "forget"],
)
def test_a_queue_out_of_reach_says_so(call, absent_queue):
    with pytest.raises(QueueUnavailable):
        call(absent_queue)


def test_a_tick_in_the_future_makes_a_later_pass_look_at_every_row_again(tables, store):
    store.clamp(NOW, MANY)  # the first pass, which wants no sign
    tables.saw_tick(FUTURE)
    id_ = tables.add_task(last_run=FUTURE)
    store.clamp(NOW, MANY)
    assert tables.task(id_).last_run == NOW
