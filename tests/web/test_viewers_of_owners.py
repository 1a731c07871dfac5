"""A viewer of some owners has their tasks and runs, and nothing else: each route of the application is decided here."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient

import ticker
from tests.factories import a_run, ticked
from tests.plans import nodes
from tests.web.asking import API, SCRIPT, rows
from tests.web.conftest import Serve
from ticker.db.sql import statements
from ticker.model import LARGEST_ID
from ticker.read import entries, journal
from ticker.tasks.fields import Task
from ticker.tasks.rows import LISTS
from ticker.web import Viewer, application

Db = psycopg.Connection[Any]
OWN, OTHER = "mail_channels:5", "mail_channels:6"
FORMS = {"/tasks/do": {"action": "run", "id": "1"}, "/tasks/{id}/do": {"action": "run"}}
ASKED = {"/tasks/all": "?action=run", "/owners/one": f"?owner={OWN}"}

OWNED = {
    "GET /tasks", "GET /tasks/grid", "GET /owners/one", "GET /tasks/all", "POST /tasks/all", "GET /tasks/{id}", "POST /tasks/{id}/do", "POST /tasks/do",
    "GET /runs", "GET /runs/{id}", "GET /runs/{id}/texts", "POST /runs/{id}/stop",
    *(f"GET {API}{path}" for path in ("/tasks", "/tasks/{id}", "/tasks/{id}/why", "/tasks/{id}/next", "/runs", "/runs/{id}")),
    *(f"POST {API}{path}" for path in ("/tasks/{id}/pause", "/tasks/{id}/resume", "/tasks/{id}/run", "/runs/{id}/stop")),
    f"DELETE {API}/tasks/{{id}}",
}  # fmt: skip
"""What a viewer of some owners has: tasks, runs, and the actions on them."""
OF_ALL = {"GET /healthz", "GET /readyz", "/static"}
"""What any client has. It says nothing about tasks."""
HIDDEN = {
    *(f"GET {path}" for path in ("/", "/tasks/due", "/tasks/spread", "/tasks/spread/plan", "/tasks/new", "/tasks/preview", "/tasks/{id}/edit", "/owners", "/limits",
        "/api", "/pauses/question", "/processes", "/metrics")),
    *(f"POST {path}" for path in ("/tasks/spread", "/owners/do", "/tasks/create", "/tasks/{id}/change", "/limits/set", "/limits/remove", "/limits/release",
        "/pauses/pause", "/pauses/resume")),
    *(f"GET {API}{path}" for path in ("/journal", "/drops", "/owners", "/limits", "/pauses", "/stats", "/activity", "/functions",
        "/openapi.json")),
    *(f"POST {API}{path}" for path in ("/tasks", "/bulk", "/schedules/validate", "/owners/{owner:path}/pause",
        "/owners/{owner:path}/resume", "/owners/{owner:path}/run", "/pauses", "/pauses/resume")),
    f"PATCH {API}/tasks/{{id}}", f"PUT {API}/limits/{{key:path}}", f"DELETE {API}/limits/{{key:path}}",
    f"DELETE {API}/closures/{{key:path}}",
}  # fmt: skip
"""What a viewer of some owners does not have: what concerns all, and what could run a function for another owner."""


@pytest.fixture
def of(serve: Serve) -> Callable[..., TestClient]:
    def client(*owners: Any) -> TestClient:
        return serve(application(trusted=True, who=lambda _: Viewer("ann", True, owners)))

    return client


@pytest.fixture
def other(db: Db, task: Task) -> Task:
    """A task of another owner, with a planned run, next to task 1 of mail_channels:5."""
    made = ticker.register(db, "mail.send", owner=OTHER, every="1m", subject="other@example.org")
    ticker.run_now(db, made)
    return made


def paths(routes: Sequence[BaseRoute], under: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from paths(route.routes, under + route.path)
        elif isinstance(route, Route):
            yield from (f"{method} {under}{route.path}" for method in (route.methods or ()) if method != "HEAD")
        else:
            yield under + getattr(route, "path", "")


def ask(client: TestClient, route: str) -> Any:
    """Asks for this route of task 1, run 1 and mail_channels:5."""
    method, path = route.split()
    address = re.sub(r"{(\w+)[^}]*}", lambda name: {"id": "1", "owner": OWN, "key": "imap.gmail.com"}[name[1]], path)
    body = {"json": {}} if path.startswith(API) else {"data": FORMS.get(path, {})}
    return client.request(
        method, address + ASKED.get(path, ""), headers=SCRIPT, **({} if method in ("GET", "DELETE") else body)
    )


def test_each_route_is_decided(environ: dict[str, str]) -> None:
    """A new route stands in one of these sets, or this test fails."""
    assert sorted(paths(application(no_token=True).routes)) == sorted(OWNED | OF_ALL | HIDDEN)


def test_what_concerns_all_does_not_exist(of: Callable[..., TestClient], db: Db, other: Task) -> None:
    client, before = of(OWN), rows(db)
    answers = {route: ask(client, route).status_code for route in HIDDEN}
    assert {route: status for route, status in answers.items() if status not in (404, 405)} == {}
    assert rows(db) == before
    assert set(client.get("/readyz").json()) == {"healthy"}


def test_tasks_and_runs_of_the_owners_exist_with_their_actions(
    of: Callable[..., TestClient], db: Db, other: Task
) -> None:
    client = of("shops:1", OWN)
    for route in sorted(OWNED, key=lambda route: route.startswith("DELETE")):
        assert ask(client, route).status_code < 300, route
    assert [task.owner for task in ticker.list_tasks(db)] == [OTHER]
    assert db.execute("SELECT count(*) FROM ticker.runs WHERE owner_id = '6'").fetchall() == [(1,)]


def test_those_of_other_owners_do_not(of: Callable[..., TestClient], db: Db, other: Task) -> None:
    client, before = of(OTHER), rows(db)
    for route in OWNED - {"GET /tasks/all", "POST /tasks/all"}:
        answer = ask(client, route)
        assert "mail.fetch" not in answer.text, route
        assert answer.status_code == 404 if "{id}" in route or "/one" in route else answer.status_code < 300, (
            route,
            answer.text,
        )
    assert rows(db) == before
    assert "Delete 1 task?" in client.get("/tasks/all?action=delete").text
    assert client.post("/tasks/all?action=delete", headers=SCRIPT).status_code == 204
    assert [task.owner for task in ticker.list_tasks(db)] == [OWN]


@pytest.mark.slow
@pytest.mark.parametrize(
    "filters",
    ["", "owner=mail_channels:5", "owner_type=mail_channels", "name=mail.fetch", "function=mail.fetch", "search=fetch",
     "state=running", "state=waiting", "state=failing", "state=outside_hours", "cause=refused", "error=refused", "sort=failures", "sort=lateness"],
)  # fmt: skip
def test_no_filter_finds_tasks_or_runs_of_others(
    filters: str, of: Callable[..., TestClient], db: Db, other: Task
) -> None:
    db.execute(
        "UPDATE ticker.tasks SET failures = 1, cause = 'refused', during = '0-0:01', waiting = ARRAY[clock_timestamp()]"
    )
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'failed', reason = 'fetch', ended_at = clock_timestamp(), "
        "started_at = clock_timestamp()"
    )
    client = of(OTHER)
    assert {task["owner"] for task in client.get(f"{API}/tasks?{filters}").json()["tasks"]} <= {OTHER}
    of_runs = "" if filters.split("=")[0] in ("name", "state", "cause", "error", "sort") else filters
    assert {run["owner"] for run in client.get(f"{API}/runs?{of_runs}").json()["runs"]} <= {OTHER}
    for page in (f"/tasks?{filters}", f"/runs?{of_runs}", f"/runs?task=1&{of_runs}"):
        assert "/tasks/1" not in client.get(page).text
    assert ticker.unregister(db, 1)
    for page in ("/tasks/1", "/runs/1"):
        assert client.get(page).status_code == 404
    assert "mail.fetch" not in client.get("/runs?task=1").text
    db.execute("UPDATE ticker.runs SET outcome = 'dropped', reason = 'paused'")
    assert set(re.findall(r">(mail_channels:\d)</a>", client.get("/runs?by=owner").text)) == {OTHER}


def test_the_screens_show_nothing_that_leads_nowhere(of: Callable[..., TestClient], db: Db, other: Task) -> None:
    client = of(OTHER)
    ticker.pause_all(db, function="mail.fetch", by="bob", reason="their move")
    for screen in (
        "/tasks",
        "/tasks/grid",
        f"/owners/one?owner={OTHER}",
        f"/tasks/{other.id}",
        "/runs",
        "/runs/2",
        "/runs?at=2m",
        "/tasks/all?action=pause",
    ):
        page = client.get(screen).text
        assert "their move" not in page and "mail.fetch" not in page
        links = {unescape(link).partition("#")[0] for link in re.findall(r'(?:href|hx-\w+)="(/[^"]*)"', page)}
        for link in (link for link in links if not link.partition("?")[0].endswith(("/do", "/stop", "/tasks/all"))):
            assert client.get(link).status_code == 200, (screen, link)


def test_why_names_neither_runs_of_other_owners_nor_tickers(of: Callable[..., TestClient], db: Db, other: Task) -> None:
    """Two owners share a limit, and a run of the other has all its room."""
    ticker.limit(db, "shared", concurrency=1)
    db.execute("UPDATE ticker.tasks SET limits = '{shared}', next_run = clock_timestamp() - interval '1 min'")
    run = a_run(db, other, state="running", outcome=None, ended_at=None, token=uuid4(), until="2100-01-01Z")
    db.execute(
        "UPDATE ticker.slots s SET token = r.token, until = r.until FROM ticker.runs r WHERE r.id = %s AND s.kind = 'run'",
        [run],
    )
    client, refusal = of(OWN), "TICKER_SECRET: is short"
    for refused, failure, state in (("", "", "ticked"), ("", refusal, "fail"), (refusal, "", "refused to start")):
        db.execute("DELETE FROM ticker.tickers")
        ticked(db)
        db.execute(
            "UPDATE ticker.tickers SET host = 'scheduler-7', pid = 4711, failure = %s, failing_since = CASE WHEN %s <> '' THEN last_tick_at END,"
            " last_report = CASE WHEN %s = '' THEN '{}' ELSE jsonb_build_object('ended', true, 'refused', %s::text) END",
            [failure, failure, refused, refused],
        )
        told = client.get(f"{API}/tasks/1/why").text + client.get("/tasks/1").text
        assert "1 of 1 runs of shared are active" in told and state in told
        assert [
            word for word in ("mail.send", f"run {run}", "TICKER_SECRET", "scheduler-7", "4711") if word in told
        ] == []


@pytest.mark.parametrize("owners", ["mail_channels:5", [None], ["5"], [f"shops:{n}" for n in range(1001)], 5])
def test_what_is_no_list_of_owners_is_403(owners: Any, serve: Serve, db: Db, task: Task) -> None:
    client = serve(application(trusted=True, who=lambda _: Viewer("ann", True, owners)))
    assert client.get("/tasks").status_code == 403


def test_without_owners_there_is_nothing(of: Callable[..., TestClient], db: Db, other: Task) -> None:
    client = of()
    assert client.get(f"{API}/tasks").json()["tasks"] == client.get(f"{API}/runs").json()["runs"] == []
    assert client.get("/tasks/1").status_code == 404


@pytest.fixture
def history(db: Db, environ: dict[str, str]) -> list[int]:
    """40 runs of three owners, an hour apart. Every tenth one failed. Returns their ids, the newest first."""
    tasks = [ticker.register(db, "mail.fetch", owner=f"boxes:{number}", every="1m") for number in range(3)]
    now = entries.instant(db)
    return [
        a_run(db, tasks[n % 3], occurrence=(at := now - n * timedelta(hours=1)), ended_at=at, outcome="succeeded" if n % 10 else "failed")
        for n in range(40)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 5, 14, 50])
def test_pages_of_the_runs_of_many_owners_have_each_run_once(
    limit: int, of: Callable[..., TestClient], history: list[int]
) -> None:
    client, own = of("boxes:0", "boxes:1", "boxes:9"), [id_ for number, id_ in enumerate(history) if number % 3 < 2]
    pages = [client.get(f"{API}/runs?limit={limit}").json()]
    while pages[-1]["next"]:
        pages.append(client.get(f"{API}/runs?limit={limit}&before={pages[-1]['next']}").json())
    assert [run["id"] for page in pages for run in page["runs"]] == own
    assert [len(page["runs"]) for page in pages[:-1]] == [limit] * (len(pages) - 1)


@pytest.mark.parametrize(("most", "idle"), [(10, 0), (200, 40)])
def test_a_page_of_the_runs_of_many_owners_does_not_read_a_page_of_each(
    most: int, idle: int, db: Db, environ: dict[str, str]
) -> None:
    """Forty owners have sixty runs each, and others none: the newest ten belong to ten owners."""
    db.execute(
        "INSERT INTO ticker.runs (task_id, owner_type, owner_id, kind, occurrence, state, outcome, ended_at)"
        " SELECT o, 'boxes', o, 'scheduled', at, 'ended', 'succeeded', at FROM generate_series(1, 40) o, generate_series(1, 60) n,"
        " LATERAL (SELECT now() - (40 * n + o) * interval '1 min' AS at) a"
    )
    text = statements("ticker", LISTS)["journal_of_owners"]
    given = journal.Wanted()._asdict() | {
        "seen_types": ["boxes"] * (40 + idle), "seen_ids": [str(n) for n in range(1, 41 + idle)], "since": None, "before": None,
        "before_run": LARGEST_ID, "limit": most, "most": most,
    }  # fmt: skip
    db.execute("ANALYZE ticker.runs")
    with psycopg.ClientCursor(db) as cursor:
        [[[found]]] = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", given).fetchall()
    read = [
        one["Actual Rows"] * one["Actual Loops"] for one in nodes(found["Plan"]) if one.get("Relation Name") == "runs"
    ]
    assert most <= sum(read) <= 4 * most + 80, read


def test_a_filter_of_the_runs_of_many_owners_searches_so_many_a_page(
    of: Callable[..., TestClient], history: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEARCHED", 4)
    client, found, searched = of("boxes:0", "boxes:1"), list[int](), list[int | None]()
    address = f"{API}/runs?outcome=failed"
    page = client.get(address).json()
    while page["next"]:
        found, searched = found + [run["id"] for run in page["runs"]], [*searched, page["looked_through"]]
        page = client.get(f"{address}&before={page['next']}").json()
    assert found + [run["id"] for run in page["runs"]] == [history[0], history[10], history[30]]
    assert searched == [4] * 6 and page["looked_through"] is None
    assert "4 records were searched" in client.get("/runs?outcome=failed").text
    assert client.get(f"{API}/runs?outcome=failed&owner=boxes:0").json()["looked_through"] is None
