"""What a form sends, and which names are those of this host."""

from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.sentences import sentence
from tests.web.asking import API, BEARER, FOREIGN, SCRIPT, TOKEN, problem, rows
from tests.web.conftest import Serve
from ticker import owners
from ticker.tasks.fields import Task
from ticker.web.access import loopback

Db = psycopg.Connection[Any]


def test_a_form_that_the_pages_script_did_not_send_changes_nothing(client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for headers in ({}, {"HX-Request": "false"}, {"X-CSRF-Token": "0" * 64}):
        answer = client.post("/tasks/1/do", data={"action": "delete"}, headers=headers)
        assert sentence("page.load_again").within(answer.json()["detail"])
        assert answer.status_code == 403 and rows(db) == before


def test_a_subject_that_triggers_keep_is_read_only(client: TestClient, db: Db) -> None:
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, host text); INSERT INTO channels VALUES (1, 'acme.example')")
    db.execute("\n".join(owners.triggers("channels", subject_from="host")))  # type: ignore[arg-type]
    task = ticker.register(db, "poll", owner="channels:1", every="1m")
    other = ticker.register(db, "poll", every="1m")
    assert 'name="subject"' in client.get(f"/tasks/{other.id}/edit").text
    assert 'name="subject"' not in client.get(f"/tasks/{task.id}/edit").text
    assert "acme.example" in client.get(f"/tasks/{task.id}").text
    assert problem(client.patch(f"{API}/tasks/{task.id}", json={"subject": "mine"}), 422)["field"] == "subject"
    sent = {"function": "sync", "schedule": "1m", "owner": "channels:1", "subject": "mine"}
    assert problem(client.post("/tasks/create", data=sent, headers=SCRIPT), 422)["field"] == "subject"


def test_no_other_site_may_send_what_the_script_sends(client: TestClient, task: Task) -> None:
    asked = FOREIGN | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "hx-request"}
    answer = client.options("/tasks/1/do", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/tasks/new", "/nothing", f"{API}/tasks"])
def test_neither_a_cookie_nor_a_key_goes_out_with_any_answer(path: str, serve: Serve, task: Task) -> None:
    """An answer that depended on the web token or on DATABASE_URL would let anybody try guesses without asking us."""
    clients = [serve(TICKER_WEB_TOKEN=token) for token in (TOKEN, "another token of ours")]
    for shown, code in (({}, 401), (BEARER, 200 if path != "/nothing" else 404)):
        answer = clients[0].get(path, headers=shown)
        assert answer.status_code == code and "set-cookie" not in answer.headers
    refused = [client.get(path) for client in clients]
    assert [refused[0].text, refused[0].headers] == [refused[1].text, refused[1].headers]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False),
     ("::", False), ("", False), ("example.org", False), ("10.1.1.1", False), ("localhost.", False)],
)  # fmt: skip
def test_which_names_are_those_of_this_host_alone(host: str, expected: bool) -> None:
    assert loopback(host) is expected
