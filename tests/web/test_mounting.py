"""Mounted below an address of the user's own application."""

from http.cookies import SimpleCookie

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.web.asking import API, FOREIGN, problem
from tests.web.conftest import Serve
from ticker.task import Task
from ticker.web import application
from ticker.web.access import COOKIE


@pytest.fixture
def mounted(serve: Serve) -> TestClient:
    """In an application of the user's own, which decides who comes in."""
    return serve(Starlette(routes=[Mount("/ops/ticker", application(trusted=True))]))


def test_mounted_it_is_served_under_any_name_that_the_application_around_it_lets_in(mounted: TestClient, task: Task) -> None:  # fmt: skip
    assert mounted.get(f"/ops/ticker{API}/tasks/1", headers={"Host": "ops.example"}).status_code == 200
    assert mounted.get("/ops/ticker/healthz").text == "ok\n"
    assert mounted.get(f"{API}/tasks/1").status_code == 404


def test_mounted_it_names_addresses_that_lead_to_it(mounted: TestClient) -> None:
    made = mounted.post(f"/ops/ticker{API}/tasks", json={"function": "poll", "every": "1m"})
    assert made.status_code == 201
    assert made.headers["location"] == f"/ops/ticker{API}/tasks/1"
    assert mounted.get(made.headers["location"]).json()["name"] == "poll"
    described = mounted.get(f"/ops/ticker{API}/openapi.json").json()
    assert described["servers"] == [{"url": f"/ops/ticker{API}"}]


def test_mounted_it_refuses_other_sites_as_ever(mounted: TestClient, task: Task) -> None:
    problem(mounted.delete(f"/ops/ticker{API}/tasks/1", headers=FOREIGN), 403)
    problem(mounted.post(f"/ops/ticker{API}/tasks/1/run"), 415)
    problem(mounted.get(f"/ops/ticker{API}/nothing"), 404)


@pytest.mark.parametrize("path", ["/nothing", "/static/nothing.css", "/tasks/99"])
def test_people_are_told_by_a_page_whose_links_lead_back(path: str, mounted: TestClient) -> None:
    answer = mounted.get(f"/ops/ticker{path}")
    assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html")
    assert 'href="/ops/ticker/' in answer.text and 'href="/ops/ticker/static/static' not in answer.text


def test_the_cookie_of_forms_is_for_our_addresses_alone(mounted: TestClient) -> None:
    cookie = SimpleCookie(mounted.get("/ops/ticker/tasks").headers["set-cookie"])[COOKIE]
    assert cookie["path"] == "/ops/ticker/" and cookie["httponly"] and cookie["samesite"] == "strict"
