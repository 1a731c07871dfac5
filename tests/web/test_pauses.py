"""Pauses of many tasks, over HTTP and on the page: made, listed, shown on every screen, and ended."""

import re
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.sentences import sentence
from tests.web.asking import API, SCREENS, SCRIPT, problem, text_of

Db = psycopg.Connection[Any]
SINCE = re.compile(r"20[-0-9]+ [0-9:]+Z")


@pytest.fixture
def poll(db: Db) -> Any:
    return ticker.register(db, "poll", owner="mail_channels:5", every="1m", group="news")


@pytest.mark.slow
def test_a_pause_is_made_listed_and_ended_over_http(client: TestClient, poll: Any) -> None:
    until = "2100-01-01T00:00:00Z"
    made = client.post(f"{API}/pauses", json={"group": "news", "reason": "upgrade", "by": "ann", "until": until}).json()
    assert (made["scope"], made["value"], made["by"], made["in_force"]) == ("group", "news", "ann", True)
    assert client.get(f"{API}/pauses").json()["pauses"] == [made]
    assert client.get(f"{API}/tasks/{poll.id}").json()["state"] == "paused"
    assert client.get("/readyz").json()["pauses"] == [made]
    ended = client.post(f"{API}/pauses/resume", json={"group": "news"}).json()
    assert (ended["id"], ended["in_force"], ended["resumed_by"]) == (made["id"], False, "the HTTP API")
    assert client.get(f"{API}/pauses").json()["pauses"] == []
    again = problem(client.post(f"{API}/pauses/resume", json={"group": "news"}), 404)
    assert again["detail"] == sentence("http.no_such_pause", scope="the group 'news'")


def test_an_empty_body_pauses_all_tasks(client: TestClient, poll: Any) -> None:
    made = client.post(f"{API}/pauses", json={}).json()
    assert (made["scope"], made["words"], made["by"]) == ("all", "all tasks", "the HTTP API")


@pytest.mark.parametrize(
    "body", [{"group": "a", "queue": "b"}, {"group": ""}, {"limit": "a b"}, {"until": "yesterday"}, {"all": True}]
)
def test_what_cannot_be_paused_is_refused_and_writes_nothing(body: dict[str, Any], client: TestClient) -> None:
    problem(client.post(f"{API}/pauses", json=body), 422)
    assert client.get(f"{API}/pauses").json()["pauses"] == []


@pytest.mark.slow
def test_every_screen_has_a_banner_with_the_author_and_the_reason(client: TestClient, db: Db, poll: Any) -> None:
    ticker.pause_all(db, function="poll", by="ann", reason="<upgrade>")
    for screen in SCREENS:
        page = text_of(client.get(screen))
        banner = sentence(
            "page.pause", by="ann", words="tasks of the function poll", since=SINCE, reason="&lt;upgrade&gt;"
        )
        assert banner.within(page), screen


def test_the_page_pauses_and_resumes_many_tasks(client: TestClient, db: Db, poll: Any) -> None:
    form = {"scope": "group", "value": "news", "reason": "upgrade", "until": "2h"}
    assert client.post("/pauses/pause", data=form, headers=SCRIPT).status_code == 204
    [pause] = ticker.list_pauses(db)
    assert (pause.scope, pause.value, pause.by, pause.reason, pause.until is not None) == (
        "group",
        "news",
        "the page",
        "upgrade",
        True,
    )
    assert client.post("/pauses/resume", data={"scope": "group", "value": "news"}, headers=SCRIPT).status_code == 204
    assert ticker.list_pauses(db) == []
    records = text_of(client.get("/runs"))
    assert "tasks of the group news" in records and "task 0" not in records


@pytest.mark.slow
def test_the_question_before_a_pause_counts_each_of_a_thousand_tasks_and_more(client: TestClient, db: Db) -> None:
    db.execute(
        "INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue)"
        " SELECT 'task ' || n, 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling' FROM generate_series(1, 1001) n"
    )
    question = text_of(client.get("/pauses/question?scope=all", headers=SCRIPT))
    assert question.startswith("Pause 1,001 tasks?"), question


@pytest.mark.parametrize(
    "form", [{"scope": "all", "value": "a"}, {"scope": "tasks", "value": "a"}, {"scope": "queue", "value": ""}]
)
def test_a_form_that_does_not_name_its_tasks_is_refused(form: dict[str, str], client: TestClient, db: Db) -> None:
    assert client.post("/pauses/pause", data=form, headers=SCRIPT).status_code == 422
    assert ticker.list_pauses(db) == []


@pytest.mark.slow
def test_what_waits_is_counted_as_paused_and_not_as_late(play: Played, client: TestClient) -> None:
    ticker.register(play.db, "poll", every="1m", first=play.now)
    ticker.pause_all(play.db)
    play.tick()
    play.at(600)
    counts = client.get(f"{API}/stats").json()["counts"]
    assert (counts["paused"], counts["late"], counts["waiting"]) == (1, 0, 0)
    assert len(client.get(f"{API}/tasks", params={"state": "paused"}).json()["tasks"]) == 1
