"""The statements of a tick find their rows by an index, with 200,000 tasks and as many runs.

Each is looked at as PostgreSQL plans it for its parameters, and as it plans it for any (what it may turn to once a
connection has prepared the statement).
"""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.plans import NOW, TASKS, indexes, nodes, plan, read_per_row, read_whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first one writes all the rows


MODES = ["force_custom_plan", "force_generic_plan"]


@pytest.fixture(params=MODES)
def db(request: pytest.FixtureRequest, crowd: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    crowd.execute(f"SET plan_cache_mode TO {request.param}")
    return crowd


PRUNE = {"now": NOW, "after": 0, "limit": 1000, "dry": False, "successes_ms": 1, "failures_ms": 1}
DUE = {"now": NOW, "look_ahead": 1000, "limit": 1000, "without": []}
FEW = {"functions", "installation", "pauses", "tickers"}  # tables with a few rows, which may be read whole


@pytest.mark.parametrize("now", [NOW, NOW + timedelta(days=1)], ids=["a few are due", "all are due"])
def test_due_tasks_are_found_by_their_index_and_already_in_order(now, db):
    found = plan(db, "claim_due", **{**DUE, "now": now})
    asked_for_some_rows = {
        "runs_pkey",
        "runs_pushed",
        "runs_unstarted",
        "runs_processing",
        "functions_pkey",
        "tasks_alone",
        "tasks_function",
        "pauses_in_force",
    }
    assert indexes(found) - asked_for_some_rows == {"tasks_due"}
    passed = [node["Node Type"] for node in found]
    assert passed[0] == "Limit" and "Sort" not in passed[passed.index("LockRows") :], passed
    assert read_whole(found) <= FEW


def test_whether_a_function_has_other_tasks_in_a_queue_is_one_look_at_an_index(db):
    looks = [node for node in plan(db, "claim_due", **DUE) if node.get("Index Name") == "tasks_function"]
    assert looks and all("queue" in look["Index Cond"] and "paused_by" in look["Index Cond"] for look in looks), looks


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [
        ("claim_planned", {"now": NOW, "limit": 1000, "queue": None, "without": []}),
        ("claim_chosen_planned", {"now": NOW, "ids": [1, 2]}),
    ],
)
def test_a_batch_of_many_planned_runs_reads_neither_all_of_them_nor_all_tasks(statement, parameters, database_url):
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute(TASKS)
        db.execute(
            "INSERT INTO ticker.runs (task_id, kind, state, due_at, created_at)"
            f" SELECT id, 'manual', 'planned', '{NOW}', '{NOW}' FROM ticker.tasks"
        )
        db.execute("ANALYZE ticker.runs, ticker.tasks")
        db.execute("SET plan_cache_mode = force_generic_plan")  # as a ticker's connection does
        found = plan(db, statement, **parameters)
    assert read_whole(found) <= FEW


def test_without_that_index_every_task_is_read_and_sorted(db):
    with db.transaction(force_rollback=True):
        db.execute("DROP INDEX ticker.tasks_due")
        found = plan(db, "claim_due", **DUE)
    assert "tasks" in read_whole(found) or "tasks_function" in indexes(found)
    assert "Sort" in {node["Node Type"] for node in found}


@pytest.mark.parametrize(
    ("statement", "parameters", "index"),
    [
        ("claim_waiting", {"after": 0, "limit": 1000, "now": NOW}, "tasks_waiting_oldest"),
        ("claim_planned", {"now": NOW, "limit": 1000, "queue": None, "without": []}, "runs_planned"),
        ("claim_pieces", {"now": NOW, "limit": 1000, "queue": "polling", "without": []}, "runs_planned_pieces"),
        ("drop_orphaned_plans", {"now": NOW, "limit": 1000}, "runs_planned_pieces"),
        ("drop_orphaned_plans", {"now": NOW, "limit": 1000}, "runs_planned"),
        ("claim_pushed", {"after": 0, "limit": 1000, "now": NOW}, "runs_pushed"),
        ("prune_runs", PRUNE, "runs_pkey"),
        ("prune_runs", PRUNE, "runs_of_task"),
        ("claim_ended", {"limit": 1000}, "runs_follow_up"),
        ("claim_alarms", {"now": NOW, "limit": 1000}, "tasks_alarm_at"),
        ("end_overdue", {"now": NOW, "limit": 1000, "boot": "b", "uptime": 1}, "runs_running_token"),
        (
            "start",
            {"task_ids": [7], "occurrences": [NOW], "functions": ["poll"], "tokens": [uuid4()], "now": NOW, "worker": "",
             "host": "", "pid": 1, "job_ids": [""], "boot": "b", "uptime": 1, "waits": True, "back": None},
            "runs_running_token",
        ),
        ("stop_runs", {"now": NOW, "limit": 1000}, "runs_to_stop"),
        ("paused_one_by_one", {"most": 1000}, "tasks_paused"),
        ("sum_up", {"now": NOW, "limit": 1000}, "runs_processing"),
        ("sum_up", {"now": NOW, "limit": 1000}, "runs_open_pieces"),
        ("add_pieces", {"token": uuid4(), "items": "[1]", "now": None}, "runs_running_token"),
        (
            "start_planned",
            {"task_id": 7, "run_id": 7, "functions": ["poll"], "token": uuid4(), "now": NOW, "worker": "", "host": "",
             "pid": 1, "job_id": "", "boot": "b", "uptime": 1, "waits": False},
            "runs_pkey",
        ),
        (
            "generated",
            {"task_id": 7, "token": uuid4(), "items": "[1]", "made": 0, "output": "", "error_output": "", "pid": None, "now": None},
            "runs_running_token",
        ),
        (
            "finish",
            {"task_ids": [7], "tokens": [uuid4()], "outcomes": ["succeeded"], "reasons": [""], "results": [None],
             "tracebacks": [""], "outputs": [""], "error_outputs": [""], "ages": [0.0], "pids": [None], "suspect_counts": [0],
             "now": None},
            "runs_running_token",
        ),
        (
            "finish_late",
            {"task_id": 7, "run_id": 7, "token": uuid4(), "outcome": "succeeded", "reason": "", "result": None,
             "traceback": "", "output": "", "error_output": "", "age": 0, "pid": None, "now": None},
            "runs_pkey",
        ),
    ],
)  # fmt: skip
def test_whatever_a_tick_or_a_worker_asks_is_found_by_an_index(statement, parameters, index, db):
    found = plan(db, statement, **parameters)
    assert any(name.startswith(index) for name in indexes(found)), indexes(found)
    assert read_whole(found) <= FEW


def test_the_glance_at_the_begin_of_a_tick_reads_no_table_but_that_of_the_tickers(db):
    found = plan(db, "has_work", now=NOW, look_ahead=1000, boot="b", uptime=1)
    assert read_whole(found) <= {"tickers", "pauses"}
    assert {
        "tasks_due",
        "tasks_due_limited",
        "tasks_waiting_oldest",
        "runs_planned",
        "runs_pushed",
        "runs_follow_up",
    } <= indexes(found)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("queue_full", {"tasks_due", "tasks_due_limited"}),
        ("waits_for_its_turn", {"tasks_alone"}),
        ("paused", {"tasks_paused"}),
    ],
)
def test_tasks_in_a_state_are_found_by_indexes(state, expected, crowd):
    """Those outside their hours are not: a walk finds them."""
    crowd.execute("RESET plan_cache_mode")
    found = plan(crowd, "is_crowded", state=state, most=100, now=NOW, late_ms=30_000)
    assert expected <= indexes(found) and read_whole(found) <= FEW


def test_the_record_of_an_occurrence_is_found_by_its_index(db):
    """What the start asks of a function, so that it sees what was committed while it waited."""
    [(text,)] = db.execute("SELECT pg_get_function_sqlbody('ticker.record_of'::regproc)")
    question = re.sub(r"record_of\.task\b", "7", re.sub(r"record_of\.at\b", "now()", text))
    [query] = re.findall(r"SELECT .*;", question, re.DOTALL)
    [[[found]]] = db.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()
    assert indexes(list(nodes(found["Plan"]))) == {"runs_one_record"}


@pytest.mark.parametrize("outcome", [None, "failed"])
@pytest.mark.parametrize("before", [None, 1000])
def test_the_last_runs_of_a_task_are_found_by_their_indexes(outcome, before, db):
    """Whether PostgreSQL plans for this task or for any: a plan for all would walk back through the runs of all tasks."""
    found = plan(db, "runs_of_task", task_id=7, outcome=outcome, before=before, limit=100)
    assert "runs_further" in indexes(found) and indexes(found) <= {"runs_of_task", "runs_further", "runs_by_outcome"}
    assert outcome or indexes(found) == {"runs_of_task", "runs_further"}
    assert read_whole(found) == set()


def test_behind_a_clock_step_each_row_is_found_by_its_own_id(db):
    """A list of ids is gone through once: once per row, 5,000 rows took 20 s."""
    found = plan(db, "clamp", now=None, limit=5000, after=0, boot="boot", uptime=1, stepped=True)
    on_tasks = [
        node.get("Index Cond", "") for node in found if node.get("Relation Name") == "tasks" and "Index Name" in node
    ]
    assert len(on_tasks) == 4
    assert sum("ANY" in condition for condition in on_tasks) == 1
    assert "tasks" not in read_whole(found)


KEYED = {"now": NOW, "look_ahead": 1000, "limit": 1000, "ahead": 200, "without": [], "delays": '{"polling": 2}'}


def test_tasks_with_and_without_limits_are_found_by_indexes_of_their_own(crowd):
    """A tenth of the crowd has limits, of 1,000 keys. They are written once for all of these plans."""
    with crowd.transaction(force_rollback=True):
        crowd.execute("UPDATE ticker.tasks SET limits = ARRAY['key:' || id / 10 % 1000, 'host'] WHERE id % 10 = 0")
        crowd.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('host', 100), ('key:*', 5)")
        crowd.execute(
            "INSERT INTO ticker.slots (key, kind, n) SELECT key, 'run', generate_series(1, concurrency) FROM ticker.limited_keys"
            " ON CONFLICT DO NOTHING"
        )
        crowd.execute("ANALYZE ticker.tasks, ticker.slots, ticker.limited_keys")
        for mode in MODES:
            crowd.execute(f"SET LOCAL plan_cache_mode TO {mode}")
            for after_run in ("-infinity", NOW):
                found = plan(crowd, "limited_due", **KEYED, full=["host"], after_run=after_run, after_id=0)
                assert {"tasks_due_limited", "tasks_waiting_limited", "slots_pkey"} <= indexes(found)
                assert "tasks" not in read_whole(found) and "rooms" not in read_per_row(found)
            found = plan(crowd, "limited_planned", **KEYED, full=["host"])
            assert "tasks" not in read_whole(found) and "rooms" not in read_per_row(found)
            found = plan(crowd, "claim_due", **DUE)
            assert "tasks_due" in indexes(found) and read_whole(found) <= FEW
            found = plan(crowd, "claim_chosen", now=NOW, look_ahead=1000, ids="{1,2}")
            assert "tasks_pkey" in indexes(found) and "tasks" not in read_whole(found)


def test_tasks_that_wait_for_a_pause_are_found_in_order_before_the_table_is_analysed(crowd):
    """Until then, PostgreSQL believes that none waits, and that an index of all that are paused is as good as empty."""
    with crowd.transaction(force_rollback=True):
        crowd.execute(
            "INSERT INTO ticker.pauses (scope, value, by, paused_at) VALUES ('queue', 'polling', 'anna', %s)", [NOW]
        )
        crowd.execute("UPDATE ticker.tasks SET pause_id = (SELECT max(id) FROM ticker.pauses) WHERE id % 10 = 0")
        for mode in MODES:
            crowd.execute(f"SET LOCAL plan_cache_mode TO {mode}")
            for statement, parameters in AT_GATE.items():
                found = plan(crowd, statement, **parameters)
                assert "tasks_at_gate" in indexes(found) and "tasks_paused" not in indexes(found), statement


AT_GATE = {
    "open_pauses": {"now": NOW},
    "let_go": {"now": NOW, "limit": 1000},
    "close_pauses": {"now": NOW},
    "list_pauses": {"now": NOW},
}
"""The statements that look for tasks at the gate, in the order of their times."""
