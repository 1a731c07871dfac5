"""An action on all tasks that match the filter of the page: its plan with the number, and what was done."""

import json
import re
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import FOREIGN, SCRIPT, text_of
from tests.web.conftest import Serve
from ticker.tasks import bulk, filters

Db = psycopg.Connection[Any]
OF_FETCH = "/tasks/all?function=fetch&action="


@pytest.fixture
def tasks(db: Db) -> Sequence[int]:
    """60 tasks, more than the page shows, and another one of another function."""
    ticker.register(db, "poll", every="5m")
    return ticker.register_many(
        db, [{"function": "fetch", "every": "5m", "owner": f"boxes:{n}"} for n in range(60)]
    ).ids


def of_fetch(db: Db) -> Sequence[Any]:
    return db.execute("SELECT id FROM ticker.tasks WHERE function = 'fetch' ORDER BY id").fetchall()


def send(client: TestClient, address: str, **fields: str) -> Any:
    return client.post(address, data=fields, headers=SCRIPT)


def test_the_list_leads_to_the_plan_of_each_action_with_its_filter(client: TestClient, tasks: Sequence[int]) -> None:
    page = client.get("/tasks?function=fetch&state=&after=3").text
    form = re.search(r'<form action="/tasks/all".*?</form>', page, re.DOTALL)
    assert form is not None
    assert re.findall(r'name="(\w+)" value="(\w+)"', form[0]) == [
        ("function", "fetch"),
        *(("action", name) for name in ("run", "retry", "pause", "resume", "enable", "disable", "delete")),
    ]


def test_the_question_has_the_number_of_the_plan_and_planning_changes_nothing(
    client: TestClient, db: Db, tasks: Sequence[int]
) -> None:
    ticker.edit(db, tasks[0], enabled=False)
    page = client.get(f"{OF_FETCH}run")
    assert 'hx-confirm="Run 59 tasks now?"' in page.text
    text = text_of(page)
    assert "function fetch" in text and "60 tasks match" in text and "1 refused" in text
    assert "disabled" in text
    assert db.execute("SELECT count(*) FROM ticker.runs").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("action", "fields", "condition"),
    [
        ("run", {}, "EXISTS (SELECT FROM ticker.runs r WHERE r.task_id = t.id)"),
        ("pause", {"reason": "moving", "until": "2h"}, "paused_by = 'the page' AND paused_reason = 'moving'"),
        ("disable", {}, "NOT enabled"),
    ],
)
def test_all_that_match_are_changed_and_the_result_is_said_on_their_list(
    action: str, fields: dict[str, str], condition: str, client: TestClient, db: Db, tasks: Sequence[int]
) -> None:
    answer = send(client, f"{OF_FETCH}{action}", **fields)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/tasks?function=fetch")
    said = json.loads(answer.headers["hx-trigger"])["said_there"]
    done = "60 runs requested" if action == "run" else "60 changed"
    assert said == f"{action}: 60 tasks match: {done}, 0 need no change, 0 refused"
    changed = db.execute(f"SELECT id FROM ticker.tasks t WHERE {condition} ORDER BY id").fetchall()  # type: ignore[arg-type]
    assert changed == of_fetch(db)


def test_failed_tasks_are_retried_and_deleted_ones_are_gone(client: TestClient, db: Db, tasks: Sequence[int]) -> None:
    db.execute("UPDATE ticker.tasks SET failures = 1 WHERE id = ANY (%s)", [tasks[:3]])
    assert 'hx-confirm="Retry 3 tasks?"' in client.get(f"{OF_FETCH}retry").text
    assert send(client, f"{OF_FETCH}retry").status_code == 204
    assert db.execute("SELECT count(*) FROM ticker.runs").fetchall() == [(3,)]
    assert send(client, "/tasks/all?action=delete&state=failing").status_code == 204
    assert len(ticker.list_tasks(db, function="fetch", limit=100)) == 57


def test_where_nothing_would_change_there_is_no_button(client: TestClient, serve: Serve, tasks: Sequence[int]) -> None:
    assert "hx-confirm" not in client.get(f"{OF_FETCH}resume").text
    page = serve(TICKER_WEB_READ_ONLY="on")
    assert "hx-confirm" not in page.get(f"{OF_FETCH}run").text
    assert "/tasks/all" not in page.get("/tasks").text
    assert send(page, f"{OF_FETCH}run").status_code == 403


@pytest.mark.parametrize(
    ("query", "fields", "field"),
    [
        ("action=delete&fucntion=fetch", {}, "fucntion"),  # a filter that is not known must not mean all tasks
        ("action=delete&state=ill", {}, "state"),
        ("action=delete&owner=boxes", {}, "owner"),
        ("action=explode", {}, "action"),
        ("", {}, "action"),
        ("action=pause", {"until": "soon"}, "until"),
    ],
)
def test_what_cannot_be_taken_is_named_and_changes_nothing(
    query: str, fields: dict[str, str], field: str, client: TestClient, db: Db, tasks: Sequence[int]
) -> None:
    answer = send(client, f"/tasks/all?{query}", **fields)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert fields or client.get(f"/tasks/all?{query}").status_code == 422
    assert len(ticker.list_tasks(db, limit=100)) == 61
    assert ticker.list_tasks(db, state="paused") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    ["", "function=fetch", "state=failing", "state=paused", "search=boxes:1", "owner=boxes:7", "state=inactive"],
)
@pytest.mark.parametrize("action", ["run", "retry", "pause", "resume", "enable", "disable", "delete"])
def test_the_number_in_the_question_is_that_of_what_would_be_done(
    where: str, action: str, db: Db, tasks: Sequence[int]
) -> None:
    """The plan judges one task of each kind, and `bulk` each task."""
    db.execute("UPDATE ticker.tasks SET failures = id % 3")
    db.execute("UPDATE ticker.tasks SET enabled = id % 5 <> 0, owner_active = id % 7 <> 0")
    for n in range(0, 60, 4):
        ticker.pause(db, tasks[n], by=f"ann {n % 8}")
    wanted = dict(one.split("=") for one in where.split("&") if one)
    assert numbers(bulk.plan(db, wanted, action)) == numbers(ticker.bulk(db, wanted, action))


def numbers(plan: bulk.Bulk) -> Any:
    """What a plan counts, without its examples, which may be others."""
    groups = [sorted((group.words, group.tasks) for group in groups) for groups in (plan.changes, plan.refusals)]
    return plan.action, plan.applied, plan.matched, plan.changed, plan.unchanged, plan.refused, groups


def test_a_plan_of_more_tasks_than_are_counted_is_refused(
    client: TestClient, tasks: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "COUNTED", 60)
    assert client.get("/tasks/all?action=pause").status_code == 422
    assert client.get("/tasks/all?action=pause&function=fetch").status_code == 200


def test_no_other_site_changes_all(client: TestClient, db: Db, tasks: Sequence[int]) -> None:
    for headers in ({}, SCRIPT | FOREIGN):
        assert client.post("/tasks/all?action=delete", headers=headers).status_code == 403
    assert len(ticker.list_tasks(db, limit=100)) == 61
