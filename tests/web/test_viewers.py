"""The application around the page says who sends a request: the author of its changes, and whether it may change anything."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

import ticker
from tests.web.asking import API, SCREENS, SCRIPT, WRITES, Asking, named, problem, rows
from tests.web.conftest import Serve
from ticker.errors import ConfigurationError
from ticker.tasks.fields import Task
from ticker.web import Viewer, application

Db = psycopg.Connection[Any]


class Users:
    """Answers with the user whom a header names: ann may change tasks, bob may read, and others are unknown."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Request) -> Viewer:
        self.asked += 1
        return {"ann": Viewer("ann", True), "bob": Viewer("bob", False)}[request.headers["x-user"]]


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def by(serve: Serve, users: Users) -> Callable[[str], TestClient]:
    def client(user: str) -> TestClient:
        made = serve(application(trusted=True, who=users))
        made.headers["x-user"] = user
        return made

    return client


def test_changes_name_the_person(by: Callable[[str], TestClient], db: Db, task: Task) -> None:
    ann = by("ann")
    assert ann.post("/tasks/1/do", data={"action": "pause"}, headers=SCRIPT).status_code == 204
    assert ticker.get(db, task).paused_by == "ann"
    assert ann.post(f"{API}/tasks/1/resume", json={}).status_code == 200
    assert ann.post(f"{API}/bulk", json={"filter": {}, "action": "pause", "apply": True}).json()["changed"] == 1
    assert ticker.get(db, task).paused_by == "ann"
    assert {author for [author] in db.execute("SELECT by FROM ticker.events WHERE what <> 'registered'")} == {"ann"}


def test_nobody_changes_under_the_name_of_another(by: Callable[[str], TestClient], db: Db, task: Task) -> None:
    ann, before = by("ann"), rows(db)
    assert problem(ann.post(f"{API}/tasks/1/pause", json={"by": "eve"}), 422)["field"] == "by"
    assert rows(db) == before
    assert ann.post(f"{API}/tasks/1/pause", json={"by": "ann"}).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("one", WRITES, ids=named)
def test_who_may_not_change_reads_alone(one: Asking, by: Callable[[str], TestClient], db: Db, task: Task) -> None:
    bob, before = by("bob"), rows(db)
    assert "'bob'" in problem(one.ask(bob), 403)["detail"]
    assert rows(db) == before


def test_who_may_not_change_sees_no_buttons(by: Callable[[str], TestClient], users: Users, task: Task) -> None:
    bob = by("bob")
    for screen in SCREENS:
        page = bob.get(screen)
        assert page.status_code == 200 and '<button type="button" hx-post' not in page.text
    assert bob.get(f"{API}/stats").json()["read_only"] is True
    assert "hx-post" in by("ann").get("/tasks/1").text


def test_a_request_asks_once(by: Callable[[str], TestClient], users: Users, task: Task) -> None:
    ann = by("ann")
    for path, status in (("/tasks", 200), ("/nothing", 404), (f"{API}/tasks/99", 404), ("/static/ticker.css", 200)):
        users.asked = 0
        assert (ann.get(path).status_code, users.asked) == (status, 1)


def test_an_error_of_who_is_403_and_keeps_its_text(by: Callable[[str], TestClient], db: Db, task: Task) -> None:
    stranger, before = by("eve"), rows(db)
    for one in WRITES:
        assert "eve" not in problem(one.ask(stranger), 403)["detail"]
    for screen in (*SCREENS, "/static/ticker.css", "/metrics", "/nothing"):
        assert stranger.get(screen).status_code == 403
    assert rows(db) == before
    assert stranger.get("/healthz").status_code == 200
    assert set(stranger.get("/readyz").json()) == {"healthy"}


@pytest.mark.parametrize("answer", [None, "ann", Viewer("", True), Viewer("a\0b", True)])
def test_an_answer_that_names_nobody_is_403(answer: Any, serve: Serve, task: Task) -> None:
    client = serve(application(trusted=True, who=lambda _: answer))
    assert client.get("/tasks").status_code == problem(client.get(f"{API}/tasks"), 403)["status"] == 403


def test_who_is_asked_only_of_requests_that_have_access(serve: Serve, users: Users) -> None:
    assert serve(application(tokens=["a token of 24 characters"], who=users)).get("/tasks").status_code == 401
    assert users.asked == 0


def test_only_the_pages_that_are_named_may_frame_the_page(serve: Serve, task: Task) -> None:
    usual = serve(application(no_token=True)).get("/tasks").headers
    assert "frame-ancestors 'none'" in usual["content-security-policy"] and usual["x-frame-options"] == "DENY"
    app = application(no_token=True, frame_ancestors=["'self'", "https://ops.example.org"])
    headers = serve(app).get("/tasks").headers
    assert "frame-ancestors 'self' https://ops.example.org;" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"] and "x-frame-options" not in headers


@pytest.mark.parametrize("value", ["https://a.example; script-src *", "*", "a.example", "https:", "https://a\nb"])
def test_what_is_no_origin_may_not_frame_it(value: str, environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="frame_ancestors"):
        application(no_token=True, frame_ancestors=[value])
