"""What pauses or disables tasks is undone by a form that the answer names: only for tasks that were not so before."""

import json
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import SCRIPT
from ticker.tasks import filters
from ticker.web.pages import tasks as page

Db = psycopg.Connection[Any]


@pytest.fixture
def four(db: Db) -> list[int]:
    """Two tasks that run, one that ann has paused, and one that is disabled."""
    made = ticker.register_many(db, [{"function": "fetch", "name": f"n{n}", "every": "5m"} for n in range(4)]).ids
    ticker.pause(db, made[2], by="ann")
    ticker.edit(db, made[3], enabled=False)
    return list(made)


def send(client: TestClient, address: str, **fields: Any) -> Any:
    answer = client.post(address, data=fields, headers=SCRIPT)
    assert answer.status_code == 204, answer.text
    return json.loads(answer.headers["hx-trigger"])


def of_state(db: Db) -> list[tuple[int, str | None, bool]]:
    return db.execute("SELECT id, paused_by, enabled FROM ticker.tasks ORDER BY id").fetchall()


@pytest.mark.parametrize("address", ["/tasks/do", "/tasks/all?function=fetch&action={}"])
@pytest.mark.parametrize("action", ["pause", "disable"])
def test_what_an_undo_leads_back_to_is_what_was(
    address: str, action: str, client: TestClient, db: Db, four: list[int]
) -> None:
    before = of_state(db)
    events = send(client, address.format(action), action=action, id=four)
    undo = events.get("undo") or events["undo_there"]
    unlike = four[2] if action == "pause" else four[3]
    assert undo["values"]["id"] == [id_ for id_ in four if id_ != unlike]
    assert "undo" not in send(client, undo["path"], **undo["values"])
    after = of_state(db)
    if action == "pause":  # who had paused it is not known any more
        before[2], after[2] = before[2][::2], after[2][::2]  # type: ignore[call-overload]
    assert after == before


def test_one_task_is_undone_unless_it_was_so_before(client: TestClient, db: Db, four: list[int]) -> None:
    values = {"action": "resume", "id": four[:1]}
    assert send(client, f"/tasks/{four[0]}/do", action="pause")["undo"] == {"path": "/tasks/do", "values": values}
    assert "undo" not in send(client, f"/tasks/{four[0]}/do", action="pause")
    assert "undo" not in send(client, f"/tasks/{four[3]}/do", action="disable")
    for action in ("resume", "run", "enable", "delete"):
        assert "undo" not in send(client, f"/tasks/{four[1]}/do", action=action)


def test_a_pause_of_many_is_undone_unless_it_only_got_a_new_reason(client: TestClient, db: Db, four: list[int]) -> None:
    undo = send(client, "/pauses/pause", scope="all")["undo"]
    assert "undo" not in send(client, "/pauses/pause", scope="all", reason="another")
    send(client, undo["path"], **undo["values"])
    assert ticker.list_pauses(db) == []
    undo = send(client, "/pauses/pause", scope="function", value="fetch")["undo"]
    assert undo["values"] == {"scope": "function", "value": "fetch"}


def test_of_more_tasks_than_the_headers_may_name_there_is_none(
    client: TestClient, db: Db, four: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "UNDONE", 3)
    assert "undo_there" not in send(client, "/tasks/all?action=pause")
    assert len(ticker.list_tasks(db, state="paused")) == 4


def test_of_tasks_beyond_the_end_of_a_search_there_is_none(
    client: TestClient, db: Db, four: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "SEARCHED", 1)
    assert "undo_there" not in send(client, "/tasks/all?function=fetch&action=pause")
    assert len(ticker.list_tasks(db, state="paused")) == 4
