"""Every field and every parameter is handed texts that want to be run: they are stored as texts, or refused; nothing else."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import ALL, API, JSON, WITH_BODY, Asking, named, rows
from tests.web.payloads import PAYLOADS
from ticker.tasks.fields import Task
from ticker.web.access import HEADERS

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

WITH_QUERY = [one for one in ALL if one.operation.query]
WITH_PATH = [one for one in ALL if one.operation.of]
STORED = {"group": "group_name", "by": "paused_by", "reason": "paused_reason"}
NEW = {"function": "poll", "every": "1m"}


@pytest.fixture(autouse=True)
def nothing_is_executed(db: Db, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No table is missing, no file was made, nothing was logged as an error."""
    with caplog.at_level(logging.INFO):
        yield
    assert db.execute("SELECT to_regclass('ticker.tasks'), to_regclass('ticker.runs')").fetchone() == (
        "ticker.tasks",
        "ticker.runs",
    )
    assert not Path("ticker-was-here").exists()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def told(answer: Any) -> dict[str, Any]:
    """What is answered is JSON that no browser takes for a page, and sets no header of the sender's."""
    assert answer.status_code in (200, 201, 202, 204, 404, 422), (answer.status_code, answer.text)
    assert answer.headers["content-type"] in ("application/json", "application/problem+json")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "set-cookie" not in answer.headers
    found: dict[str, Any] = answer.json()
    return found


def test_there_are_forty() -> None:
    assert len(set(PAYLOADS)) == 40


@pytest.mark.parametrize("one", WITH_QUERY, ids=named)
def test_behind_the_question_mark_it_is_looked_for_or_refused(one: Asking, client: TestClient, task: Task, db: Db) -> None:  # fmt: skip
    before = rows(db)
    for field in (*one.operation.query, "unknown"):
        for payload in PAYLOADS:
            answer = client.get(f"{one.path}?{field}={quote(payload)}")
            found = told(answer)
            if answer.status_code == 422:
                assert found["field"] == field
            else:
                assert "mail_channels" not in json.dumps({key: found[key] for key in found if key != "task"})
        assert told(client.get(f"{one.path}?{quote(PAYLOADS[0])}=1"))["status"] == 422
    assert rows(db) == before


@pytest.mark.parametrize("one", WITH_PATH, ids=named)
def test_in_the_path_it_names_nothing(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for payload in PAYLOADS:
        path = one.path.replace("/1", f"/{quote(payload, safe='')}").replace("mail_channels:5", quote(payload, safe=""))
        path = path.replace("imap.gmail.com", quote(payload, safe=""))
        found = told(client.request(one.method, path, json=one.body))
        if "key" in found:  # of a limit, which may be any text without spaces
            ticker.unlimit(db, found["key"])
        assert found.get("key") == payload or found["status"] in (404, 422)
    assert rows(db) == before


@pytest.mark.parametrize("one", WITH_BODY, ids=named)
def test_in_a_body_it_is_stored_as_the_text_that_it_is_or_refused(
    one: Asking, client: TestClient, task: Task, db: Db
) -> None:  # fmt: skip
    before = rows(db)
    for field in one.fields:
        for payload in PAYLOADS:
            base = NEW if one.operation.name == "create_task" else {}
            said = json.dumps({**base, field: payload})
            answer = client.request(one.method, one.path, content=said, headers=JSON)
            found = told(answer)
            if answer.status_code in (422, 404):
                assert rows(db) == before, (field, payload)
                continue
            if one.operation.name == "stop_run":
                assert found["stop_requested_by"] == payload
                db.execute("UPDATE ticker.runs SET stop_requested_by = NULL")  # the first request stays
            elif "tasks" not in found and "normalized" not in found:
                of_many = {"by": "by", "reason": "reason"}.get(field, "value")
                assert found[of_many if "scope" in found else STORED.get(field, field)] in (payload, [payload])
            if answer.status_code == 201:
                client.delete(answer.headers["location"])
            before = rows(db)


@pytest.mark.parametrize("one", WITH_BODY, ids=named)
def test_as_the_name_of_a_field_it_is_refused(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for payload in PAYLOADS:
        said = json.dumps({**(one.body or {}), payload: 1})
        assert told(client.request(one.method, one.path, content=said, headers=JSON))["status"] == 422
    assert rows(db) == before


def test_in_arguments_and_metadata_it_comes_back_as_it_was(client: TestClient) -> None:
    value = {payload: [payload] for payload in PAYLOADS if "\0" not in payload}
    made = client.post(f"{API}/tasks", json={**NEW, "args": [*value], "kwargs": value, "metadata": value})
    assert made.status_code == 201
    found = client.get(made.headers["location"]).json()
    assert found["kwargs"] == found["metadata"] == value and found["args"] == [*value]
