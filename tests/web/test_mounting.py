"""Mounted below an address of the user's own application."""

from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.web.asking import API, FOREIGN, problem
from tests.web.conftest import Serve
from ticker import migrations
from ticker.schedules.duration import HOUR
from ticker.settings import Settings
from ticker.tasks.fields import Task
from ticker.web import application


@pytest.fixture
def mounted(serve: Serve) -> TestClient:
    """In an application of the user's own, which decides who comes in."""
    return serve(Starlette(routes=[Mount("/ops/ticker", application(trusted=True))]))


@pytest.mark.slow
def test_mounted_it_is_served_under_any_name_that_the_application_around_it_lets_in(mounted: TestClient, task: Task) -> None:  # fmt: skip
    assert mounted.get(f"/ops/ticker{API}/tasks/1", headers={"Host": "ops.example"}).status_code == 200
    assert mounted.get("/ops/ticker/healthz").text == "ok\n"
    assert mounted.get(f"{API}/tasks/1").status_code == 404


@pytest.mark.slow
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


# -------------------------------------------------------------------------------------------- settings of its own

SCREENS = (
    "/",
    "/tasks",
    "/tasks/1",
    "/tasks/1/edit",
    "/owners",
    "/limits",
    "/runs",
    "/runs/1",
    "/runs?by=reason",
    "/processes",
)
READ = (
    "/tasks",
    "/tasks/1",
    "/tasks/1/why",
    "/tasks/1/next",
    "/runs",
    "/runs/1",
    "/journal",
    "/drops",
    "/owners",
    "/limits",
    "/stats",
)


@pytest.fixture
def two(serve: Serve, database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, TestClient]:
    """Applications on the schemas `oslo` and `lima`, each with a task of its name, in an environment that names neither."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://nowhere.invalid/none")
    monkeypatch.setenv("TICKER_SCHEMA", "nowhere")
    clients = {}
    for schema, other in (("oslo", {}), ("lima", {"hide_args": True, "tick_ms": HOUR})):
        migrations.upgrade(database_url, schema)
        found = Settings(database_url=database_url, redis_url=redis_url, schema=schema, web_no_token=True, **other)  # type: ignore[arg-type]
        clients[schema] = client = serve(application(found))
        task = {"function": schema, "owner": f"shops:{schema}", "every": "1m", "kwargs": {"key": f"{schema}-key"}}
        assert client.post(f"{API}/tasks", json=task).status_code == 201
    return clients


def everywhere(two: Mapping[str, TestClient], ask: Callable[[TestClient, str], Any]) -> None:
    for schema, client in two.items():
        answer = ask(client, schema)
        assert answer.status_code < 300, answer.text


@pytest.mark.slow
def test_two_applications_in_one_process_read_and_write_each_its_own_schema(
    two: Mapping[str, TestClient], db: psycopg.Connection[Any]
) -> None:
    everywhere(two, lambda client, schema: client.patch(f"{API}/tasks/1", json={"subject": f"of {schema}"}))
    everywhere(two, lambda client, _: client.post(f"{API}/tasks/1/run", json={}))
    everywhere(two, lambda client, schema: client.post(f"{API}/owners/shops:{schema}/pause", json={"by": schema}))
    for schema, other in (("oslo", "lima"), ("lima", "oslo")):
        pages = [two[schema].get(path) for path in (*SCREENS, *(API + path for path in READ), "/metrics")]
        assert [page.status_code for page in pages] == [200] * len(pages)
        assert not [page.url for page in pages if other in page.text]
        assert two[schema].get(f"{API}/tasks/1").json()["subject"] == f"of {schema}"
        events = f"SELECT what, by FROM {schema}.events"
        assert db.execute(events).fetchall() == [("edited", "the HTTP API"), ("paused", schema)]
    everywhere(two, lambda client, _: client.delete(f"{API}/tasks/1"))
    assert [client.get(f"{API}/tasks").json()["tasks"] for client in two.values()] == [[], []]


@pytest.mark.slow
def test_an_application_is_late_and_hides_by_its_own_settings(
    two: Mapping[str, TestClient], db: psycopg.Connection[Any]
) -> None:
    for schema in two:
        db.execute(f"UPDATE {schema}.tasks SET next_run = now() - interval '10 minutes'")
    late = {schema: client.get(f"{API}/tasks?state=late").json()["tasks"] for schema, client in two.items()}
    owners = {schema: client.get(f"{API}/owners").json()["owners"] for schema, client in two.items()}
    assert [task["kwargs"] for task in late["oslo"]] == [{"key": "oslo-key"}] and late["lima"] == []
    assert [owners[schema][0]["late"] for schema in two] == [1, 0]
    assert [f"{schema}-key" in client.get("/tasks/1").text for schema, client in two.items()] == [True, False]
