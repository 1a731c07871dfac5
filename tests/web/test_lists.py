"""Lists of the page: the way back to the previous page, the order of failing and late tasks, and what filters suggest."""

import html
import re
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import API, problem
from ticker.web.pages import screen

Db = psycopg.Connection[Any]


@pytest.fixture
def many(db: Db) -> None:
    """120 tasks of 120 owners, each with a run that was dropped. Those with even ids have failed, the later the less often."""
    tasks = [
        {"function": "fetch" if n % 3 else "poll", "every": "5m", "owner": f"boxes:{n:03}", "group": "mail"}
        for n in range(120)
    ]
    ticker.register_many(db, tasks)
    db.execute("UPDATE ticker.tasks SET failures = 200 - id WHERE id % 2 = 0")
    db.execute(
        "INSERT INTO ticker.runs (task_id, owner_type, owner_id, kind, occurrence, state, outcome, reason, ended_at)"
        " SELECT id, owner_type, owner_id, 'scheduled', now(), 'ended', 'dropped', 'too_early',"
        " now() - id * interval '1 second' FROM ticker.tasks"
    )


def link(page: Any, words: str) -> str:
    found = re.search(rf'<a href="([^"]+)"[^>]*>{words} page</a>', page.text)
    return html.unescape(found[1]) if found else ""


@pytest.mark.parametrize(
    "address",
    [
        "/tasks?function=&group=mail",
        "/tasks?sort=failures",
        "/runs?outcome=dropped",
        "/owners",
        "/owners?owner_type=boxes",
    ],
)
def test_the_previous_page_is_the_one_before(address: str, client: TestClient, many: None) -> None:
    pages = [client.get(address)]
    while following := link(pages[-1], "next"):
        pages.append(client.get(following))
    keys = [re.findall(r'<tr data-key="([^"]+)"', page.text) for page in pages]
    assert len(keys) == (2 if "sort" in address else 3) and len({key for page in keys for key in page}) == (
        60 if "sort" in address else 120
    )
    assert link(pages[0], "previous") == link(pages[0], "first") == ""
    for number in range(len(pages) - 1, 0, -1):
        back = client.get(link(pages[number], "previous"))
        assert re.findall(r'<tr data-key="([^"]+)"', back.text) == keys[number - 1]
        assert link(back, "next") == link(pages[number - 1], "next")


@pytest.mark.parametrize("address", ["/tasks?group=mail", "/runs?outcome=dropped", "/owners"])
def test_where_its_trail_ends_a_list_has_no_previous_page(
    address: str, client: TestClient, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address keeps a limited number of pages before it. The page before those is not the first one."""
    monkeypatch.setattr(screen, "BACK", 1)
    second = client.get(link(client.get(address), "next"))
    third = client.get(link(second, "next"))
    assert link(client.get(link(second, "previous")), "first") == ""
    back = client.get(link(third, "previous"))
    assert link(back, "previous") == "" and link(back, "first") and link(back, "next")
    assert client.get(link(back, "next")).text.count("data-key") == third.text.count("data-key") == 20


def test_failing_tasks_are_listed_by_their_failures_and_late_ones_by_their_lateness(
    client: TestClient, many: None, db: Db
) -> None:
    first = client.get(f"{API}/tasks?sort=failures&limit=40").json()
    rest = client.get(f"{API}/tasks?sort=failures&limit=40&after={first['next']}").json()
    assert [task["failures"] for task in first["tasks"] + rest["tasks"]] == list(range(198, 79, -2))
    assert rest["next"] is None
    assert {task["function"] for task in client.get(f"{API}/tasks?sort=failures&function=poll").json()["tasks"]} == {
        "poll"
    }
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() - (200 - id) * interval '1 hour' WHERE id > 100")
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 hour' WHERE id <= 100")
    late = client.get(f"{API}/tasks?sort=lateness&state=late").json()["tasks"]
    assert [task["id"] for task in late] == list(range(101, 121))
    assert "latest first</option>" in client.get("/tasks?sort=lateness").text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("sort=names", "sort"),
        ("sort=failures&state=late", "sort"),
        ("sort=lateness&state=paused", "sort"),
        ("sort=failures&after=9999999", "after"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(query: str, field: str, client: TestClient, many: None) -> None:
    assert problem(client.get(f"{API}/tasks?{query}"), 422)["field"] == field
    assert client.get(f"/tasks?{query}").status_code == 422


def test_filters_suggest_what_exists(client: TestClient, many: None, db: Db) -> None:
    def of(page: str, name: str) -> list[str]:
        [values] = re.findall(rf'<datalist id="{name}">(.*?)</datalist>', client.get(page).text)
        return re.findall(r'value="([^"]+)"', values)

    assert of("/tasks", "owners")[:2] == of("/runs", "owners")[:2] == ["boxes:000", "boxes:001"]
    assert of("/tasks", "types") == of("/owners", "types") == ["boxes"]
    assert of("/tasks", "groups") == ["mail"] and of("/tasks", "submitters") == []
