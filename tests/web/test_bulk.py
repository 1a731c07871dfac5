"""Changes of many tasks over HTTP."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import API, problem

Db = psycopg.Connection[Any]
BULK = f"{API}/bulk"


@pytest.fixture
def tasks(db: Db) -> Sequence[int]:
    return ticker.register_many(
        db, [{"function": "fetch", "every": "5m", "box": f"{n}m", "owner": f"boxes:{n}"} for n in (1, 2, 3)]
    ).ids


def test_a_change_of_many_is_planned_and_then_made(client: TestClient, db: Db, tasks: Sequence[int]) -> None:
    wanted = {"filter": {"function": "fetch", "owner_type": "boxes"}, "action": "edit", "arguments": {"every": "4m"}}
    plan = client.post(BULK, json=wanted).json()
    assert (plan["applied"], plan["matched"], plan["changed"], plan["refused"]) == (False, 3, 3, 0)
    assert plan["changes"][0]["examples"][0] == f"{tasks[0]} fetch of boxes:1"
    assert ticker.get(db, tasks[0]).every_ms == 300_000
    made = client.post(BULK, json=wanted | {"apply": True, "by": "ann"}).json()
    assert made == plan | {"applied": True}
    assert [ticker.get(db, id_).every_ms for id_ in tasks] == [240_000] * 3
    assert db.execute("SELECT DISTINCT by FROM ticker.events").fetchall() == [("ann",)]


def test_each_action_has_its_arguments(client: TestClient, db: Db, tasks: Sequence[int]) -> None:
    one = {"owner": "boxes:1"}
    pause = {
        "filter": one,
        "action": "pause",
        "arguments": {"reason": "x", "until": "2100-01-01T00:00:00Z"},
        "apply": True,
    }
    assert client.post(BULK, json=pause).json()["changed"] == 1
    assert ticker.get(db, tasks[0]).paused_by == "the HTTP API"
    run = {"filter": one, "action": "run", "arguments": {"once_within": "30s"}, "apply": True}
    assert client.post(BULK, json=run).json()["changed"] == 1
    assert client.post(BULK, json={"filter": {}, "action": "delete", "apply": True}).json()["changed"] == 3
    assert ticker.list_tasks(db) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "filter"),
        ({"filter": {}}, "action"),
        ({"filter": [], "action": "run"}, "filter"),
        ({"filter": {"after": 5}, "action": "run"}, "after"),
        ({"filter": {"owner": "boxes"}, "action": "run"}, "owner"),
        ({"filter": {"state": "ill"}, "action": "run"}, "state"),
        ({"filter": {"owner": "boxes:1", "owner_type": "boxes"}, "action": "run"}, "owner_type"),
        ({"filter": {}, "action": "burn"}, "action"),
        ({"filter": {}, "action": "edit"}, "edit"),
        ({"filter": {}, "action": "edit", "arguments": {"every": None}}, "every"),
        ({"filter": {}, "action": "resume", "arguments": {"until": "2100-01-01T00:00:00Z"}}, "until"),
        ({"filter": {}, "action": "pause", "arguments": {"until": "tomorrow"}}, "until"),
        ({"filter": {}, "action": "delete", "apply": "yes"}, "apply"),
    ],
)
def test_bad_input_names_the_field_and_changes_nothing(
    sent: dict[str, Any], field: str, client: TestClient, db: Db, tasks: Sequence[int]
) -> None:
    refused = problem(client.post(BULK, json={"apply": True} | sent), 422)
    assert refused["field"] == field
    assert len(ticker.list_tasks(db)) == 3
