"""Owners, schedules, functions and how it stands, over HTTP."""

from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.sentences import sentence
from tests.web.asking import API, problem
from ticker.tasks.fields import Task

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]


@pytest.fixture
def owned(environ: dict[str, str], db: Db) -> None:
    """b:1 fails, b:2 is paused, a:1 and an owner with a strange id are well."""
    for owner in ("a:1", "b:1", "b:2", "a:x/y z:é/pause"):
        for name in ("poll", "peek"):
            ticker.register(db, name, owner=owner, every="1h")
    ticker.pause(db, owner="b:2")
    db.execute("UPDATE ticker.tasks SET failures = 2 WHERE owner_type = 'b' AND owner_id = '1' AND name = 'poll'")


def owners(client: TestClient, **query: Any) -> list[str]:
    answer = client.get(f"{API}/owners", params=query)
    assert answer.status_code == 200, answer.text
    return [owner["owner"] for owner in answer.json()["owners"]]


def test_owners_in_trouble_come_first_and_the_list_goes_on_where_its_page_ended(client: TestClient, owned: None) -> None:  # fmt: skip
    whole = owners(client)
    assert whole == ["b:1", "a:1", "a:x/y z:é/pause", "b:2"]
    found, query = [], {"limit": 1}
    while True:
        page = client.get(f"{API}/owners", params=query).json()
        found += [owner["owner"] for owner in page["owners"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert found == whole


@pytest.mark.parametrize(
    ("query", "expected"),
    [({"owner_type": "b"}, ["b:1", "b:2"]), ({"failing": "true"}, ["b:1"]), ({"paused": "true"}, ["b:2"]),
     ({"failing": "true", "paused": "true"}, ["b:1", "b:2"]), ({"late": "true"}, []), ({"late": "false", "owner_type": "b"}, ["b:1", "b:2"])],
)  # fmt: skip
def test_a_filter_leaves_those_owners_that_fit(
    query: dict[str, str], expected: list[str], client: TestClient, owned: None
) -> None:  # fmt: skip
    assert owners(client, **query) == expected


def test_an_owner_is_told_with_the_counts_of_its_tasks(client: TestClient, owned: None) -> None:
    [found] = client.get(f"{API}/owners", params={"failing": "true"}).json()["owners"]
    assert (found["owner_type"], found["owner_id"], found["tasks"], found["failing"]) == ("b", "1", 2, 1)


@pytest.mark.parametrize("path", ["b:1", "a:x%2Fy%20z:%C3%A9%2Fpause"])
def test_all_tasks_of_an_owner_are_paused_resumed_and_run(path: str, client: TestClient, owned: None, db: Db) -> None:  # fmt: skip
    paused = client.post(f"{API}/owners/{path}/pause", json={"reason": "unpaid", "by": "ann"}).json()["tasks"]
    assert [(task["name"], task["paused_reason"]) for task in paused] == [("poll", "unpaid"), ("peek", "unpaid")]
    assert db.execute("SELECT count(*) FROM ticker.tasks WHERE paused_by = 'ann'").fetchone() == (2,)
    resumed = client.post(f"{API}/owners/{path}/resume", json={}).json()["tasks"]
    assert [task["paused_by"] for task in resumed] == [None, None]
    planned = client.post(f"{API}/owners/{path}/run", json={})
    assert planned.status_code == 202 and len(planned.json()["run_ids"]) == 2


@pytest.mark.parametrize(
    ("owner", "status"), [("a:nobody", 404), ("nobody", 422), (":1", 422), ("a:", 422), ("a:%00", 422)]
)
def test_an_owner_that_has_no_tasks_or_is_none_is_told_so(owner: str, status: int, client: TestClient, owned: None) -> None:  # fmt: skip
    for what in ("pause", "resume", "run"):
        found = problem(client.post(f"{API}/owners/{owner}/{what}", json={}), status)
        assert status == 404 or found["field"] == "owner"


# -------------------------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("said", "kind", "normalized"),
    [({"expression": "90s"}, "interval", "1m30s"), ({"expression": "0 9 * * 1-5"}, "cron", "0 9 * * 1-5"),
     ({"expression": "Mon..Fri 09:00"}, "calendar", "Mon..Fri *-*-* 09:00:00"),
     ({"expression": "@daily"}, "cron", "0 0 * * *"), ({"expression": "daily", "zone": "Europe/Berlin"}, "calendar", "*-*-* 00:00:00 Europe/Berlin"),
     ({"expression": "4102444800000"}, "once", "2100-01-01T00:00:00Z"),
     ({"expression": "90s", "during": "9-17", "zone": "Europe/Berlin"}, "interval", "1m30s"), ({"expression": "1m", "during": "22-6"}, "interval", "1m"),
     ({"every": 90}, "interval", "1m30s"), ({"cron": "@daily"}, "cron", "0 0 * * *"), ({"at": 4102444800}, "once", "2100-01-01T00:00:00Z"),
     ({"calendar": "daily", "zone": "Europe/Berlin"}, "calendar", "*-*-* 00:00:00 Europe/Berlin"),
     ({"every": "90s", "during": "9-17", "zone": "Europe/Berlin"}, "interval", "1m30s")],
)  # fmt: skip
def test_a_schedule_is_explained_before_it_is_used(said: dict[str, Any], kind: str, normalized: str, client: TestClient) -> None:  # fmt: skip
    answer = client.post(f"{API}/schedules/validate", json=said | {"count": 3})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["kind"], len(found["times"])) == (kind, 1 if kind == "once" else 3)
    assert found["normalized"] == normalized or found["zone"] == "Europe/Berlin"
    assert found["words"] and found["times"] == sorted(found["times"])


@pytest.mark.parametrize(
    ("said", "field"),
    [({}, "expression"), ({"zone": "UTC"}, "expression"), ({"expression": "whenever"}, "expression"), ({"expression": "61 * * * *"}, "expression"),
     ({"expression": "0 0 30 2 *"}, "expression"), ({"expression": "1m", "every": "1m"}, "every"),
     ({"expression": "2001-01-01T00:00:00Z"}, "expression"), ({"expression": "0 9 * * *", "zone": "Mars"}, "zone"),
     ({"expression": "1m", "zone": "Europe/Berlin"}, "zone"), ({"expression": "1m", "count": 1001}, "count"), ({"expression": "1m", "count": "5.0"}, "count"),
     ({"expression": 5}, "expression"), ({"expression": "1m", "count": True}, "count"),
     ({"expression": "1m", "during": "9"}, "during"), ({"expression": "@daily", "during": "9-17"}, "during"), ({"expression": "9h", "during": "9-17"}, "during"),
     ({"expression": "1m", "during": 5}, "during"), ({"cron": "61 * * * *"}, "cron"), ({"cron": "0 0 30 2 *"}, "cron"), ({"every": 0}, "every"),
     ({"every": "1m", "cron": "* * * * *"}, "cron"), ({"at": "2001-01-01T00:00:00Z"}, "at"), ({"cron": "0 9 * * *", "zone": "Mars"}, "zone"),
     ({"every": "1m", "zone": "Europe/Berlin"}, "zone"), ({"cron": "@daily", "during": "9-17"}, "during"), ({"every": "9h", "during": "9-17"}, "during")],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_by_its_field(said: dict[str, Any], field: str, client: TestClient) -> None:
    assert problem(client.post(f"{API}/schedules/validate", json=said), 422)["field"] == field


# ------------------------------------------------------------------------------------------------------ how it stands


def test_the_statistics_count_tasks_and_say_what_is_wrong(client: TestClient, task: Task) -> None:
    found = client.get(f"{API}/stats").json()
    assert (found["counts"]["tasks"], found["counts"]["planned"]) == (1, 1)
    assert found["health"]["healthy"] is False
    assert found["health"]["problems"] == [sentence("health.no_ticker_start_one", remedy="ticker run")]
    assert (found["read_only"], found["hides_args"]) == (False, False)


def test_the_functions_that_workers_have_announced_are_listed_by_name(client: TestClient, db: Db) -> None:
    db.execute(
        "INSERT INTO ticker.functions VALUES ('mail.peek', 50, clock_timestamp()), ('mail.fetch', 1, clock_timestamp())"
    )
    found = client.get(f"{API}/functions").json()["functions"]
    assert [(one["name"], one["batch"]) for one in found] == [("mail.fetch", 1), ("mail.peek", 50)]
