"""Tasks over HTTP: listed, made, read, changed, deleted; paused, resumed, run; why and when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.sentences import sentence
from tests.web.asking import API, problem
from ticker.cli import main
from ticker.db import connections
from ticker.read import formatting
from ticker.tasks import filters
from ticker.tasks.fields import Task

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

MANY = (
    "INSERT INTO ticker.functions (name, batch, announced_at) SELECT n, 1, clock_timestamp() FROM unnest(%s::text[]) n"
)


def listed(client: TestClient, **query: Any) -> list[str]:
    """The names of the tasks that fit."""
    answer = client.get(f"{API}/tasks", params=query)
    assert answer.status_code == 200, answer.text
    return [task["name"] for task in answer.json()["tasks"]]


def done(client: TestClient, what: str, task: int = 1, **body: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/tasks/{task}/{what}", json=body)
    assert answer.status_code in (200, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


# ---------------------------------------------------------------------------------------------------- list and read


def test_a_list_goes_on_where_its_page_ended(client: TestClient, db: Db) -> None:
    for number in range(5):
        ticker.register(db, "poll", name=f"poll {number}", every="1m")
    pages, query = [], {"limit": 2}
    while True:
        found = client.get(f"{API}/tasks", params=query).json()
        pages.append([task["name"] for task in found["tasks"]])
        if found["next"] is None:
            break
        query["after"] = found["next"]
    assert pages == [["poll 0", "poll 1"], ["poll 2", "poll 3"], ["poll 4"]]
    assert client.get(f"{API}/tasks", params={"limit": 5}).json()["next"] is None


def test_a_search_says_how_far_it_looked_where_it_ended_before_its_page_was_full(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "SEARCHED", 2)
    for name in ("one", "two", "three"):
        ticker.register(db, "poll", name=name, every="1m")
    found = client.get(f"{API}/tasks", params={"search": "three"}).json()
    assert (found["tasks"], found["looked_through"], found["next"]) == ([], 2, "2")
    found = client.get(f"{API}/tasks", params={"search": "three", "after": found["next"]}).json()
    assert (len(found["tasks"]), found["looked_through"], found["next"]) == (1, None, None)


def test_a_list_is_of_fifty_unless_more_are_asked_for(client: TestClient, db: Db) -> None:
    db.execute("SET synchronous_commit = off")
    for number in range(51):
        ticker.register(db, "poll", name=str(number), every="1m")
    assert (len(listed(client)), len(listed(client, limit=1000))) == (50, 51)


@pytest.mark.parametrize(
    "query",
    [{"owner": "channels:1"}, {"owner_type": "channels"}, {"name": "a"}, {"function": "mail.a"}, {"queue": "mail"},
     {"group": "eu"}, {"submitter": "ann"}, {"search": "CHANNELS:1"}, {"search": "ubje"}, {"state": "paused"},
     {"owner": "channels:1", "name": "a", "state": "paused"}],
)  # fmt: skip
def test_a_filter_leaves_those_that_fit(query: dict[str, str], client: TestClient, db: Db) -> None:
    ticker.register(db, "mail.a", name="a", owner="channels:1", every="1m", queue="mail", group="eu", submitter="ann", subject="Subject")  # fmt: skip
    ticker.register(db, "mail.b", name="b", owner="feeds:1:x", every="1m")
    ticker.pause(db, "a", owner="channels:1")
    assert listed(client, **query) == ["a"]


def test_a_task_is_shown_as_the_command_shows_it_with_its_schedule_in_words(client: TestClient, db: Db) -> None:
    task = ticker.register(db, "report", cron="0 9 * * 1-5", zone="Europe/Berlin", kwargs={"ä": [1, None]})
    found = client.get(f"{API}/tasks/1").json()
    assert found == formatting.task_data(task, {})
    assert found["schedule"] == "cron 0 9 * * 1-5 Europe/Berlin"
    assert found["in_words"] == "At 09:00, Monday through Friday"


@pytest.mark.parametrize(
    "id_", ["2", "0", "-1", "x", "1.0", "99999999999999999999", "9" * 5000, "%00", "%F0%9F%98%80", "1%20", "0x1"]
)
def test_a_task_that_is_not_there_is_not_found_by_any_call(id_: str, client: TestClient, task: Task) -> None:
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"),
                         ("POST", "/run"), ("GET", "/why"), ("GET", "/next")):  # fmt: skip
        answer = client.request(method, f"{API}/tasks/{id_}{path}", json={} if method in ("POST", "PATCH") else None)
        assert sentence("http.no_task").begins(problem(answer, 404)["detail"])


# ------------------------------------------------------------------------------------------------------------ create


def test_a_task_is_made_once_for_its_owner_and_name(client: TestClient, db: Db) -> None:
    said = {"function": "mail.fetch", "owner": "mail_channels:5", "every": "1m", "kwargs": {"channel_id": 5}}
    first = client.post(f"{API}/tasks", json=said)
    again = client.post(f"{API}/tasks", json=said)
    assert (first.status_code, again.status_code) == (201, 200)
    assert {**first.json(), "warnings": []} == again.json()
    assert first.headers["location"] == again.headers["location"] == f"{API}/tasks/1"
    [task] = ticker.list_tasks(db)
    assert (task.name, task.owner, task.every_ms, task.kwargs) == (
        "mail.fetch",
        "mail_channels:5",
        60_000,
        {"channel_id": 5},
    )


@pytest.mark.parametrize(
    ("said", "kind", "expression"),
    [({"every": 90}, "interval", ""), ({"every": "PT1M30S"}, "interval", ""), ({"cron": "0 9 * * *"}, "cron", "0 9 * * *"),
     ({"calendar": "Mon 09:00"}, "calendar", "Mon *-*-* 09:00:00"), ({"at": 4102444800}, "once", "2100-01-01T00:00:00Z"),
     ({"at": "2100-01-01T01:00:00+01:00"}, "once", "2100-01-01T00:00:00Z"), ({"at": 4102444800000}, "once", "2100-01-01T00:00:00Z")],
)  # fmt: skip
def test_a_schedule_of_each_kind_can_be_given(said: dict[str, Any], kind: str, expression: str, client: TestClient) -> None:  # fmt: skip
    found = client.post(f"{API}/tasks", json={"function": "poll", **said}).json()
    assert (found["kind"], found["expression"]) == (kind, expression)
    assert kind != "interval" or found["every_ms"] == 90_000


def test_the_first_time_is_a_time_with_an_offset(client: TestClient) -> None:
    made = client.post(f"{API}/tasks", json={"function": "poll", "every": "1m", "first": "2100-01-01T09:00:00+02:00"})
    assert made.json()["next_run"] == "2100-01-01T07:00:00.000000Z"
    for wrong in ("2100-01-01T09:00:00", "2100-01-01", 4102444800, "4102444800", "now", ""):
        answer = client.post(f"{API}/tasks", json={"function": "other", "every": "1m", "first": wrong})
        assert problem(answer, 422)["field"] == "first"


def test_a_function_that_no_worker_has_announced_is_warned_of_and_those_that_are_known_are_named(
    client: TestClient, db: Db
) -> None:
    quiet = client.post(f"{API}/tasks", json={"function": "mail.fech", "name": "before", "every": "1m"})
    assert quiet.json()["warnings"] == []
    db.execute(MANY, [["mail.fetch", "mail.peek"]])
    made = client.post(f"{API}/tasks", json={"function": "mail.fech", "every": "1m"})
    assert made.status_code == 201
    assert made.json()["warnings"] == [
        sentence(
            "warnings.unannounced_like", function="'mail.fech'", near="'mail.fetch'", known="mail.fetch, mail.peek"
        )
    ]
    known = client.patch(f"{API}/tasks/2", json={"function": "mail.peek"})
    assert known.json()["warnings"] == []


def test_the_command_warns_of_it_too_and_names_the_most_similar_of_many(environ: dict[str, str], db: Db) -> None:
    db.execute(MANY, [["mail.fetch", *(f"feeds.{number}" for number in range(12))]])
    result = CliRunner().invoke(main, ["add", "mail.fech", "--every", "1m"])
    assert result.exit_code == 0
    assert sentence(
        "cli.warning_unannounced_function", function="'mail.fech'", near="'mail.fetch'", known="mail.fetch, feeds."
    ).within(result.stderr)
    assert result.stderr.rstrip().endswith(" and 3 more")
    assert CliRunner().invoke(main, ["edit", "1", "--function", "feeds.1"]).stderr == ""


# ------------------------------------------------------------------------------------------------------------ change


@pytest.mark.parametrize(
    ("change", "column", "expected"),
    [({"every": "5m"}, "every_ms", 300_000), ({"queue": "other"}, "queue", "other"), ({"enabled": False}, "enabled", False),
     ({"kwargs": {"a": {"b": [1, 2.5, None, "ü"]}}}, "kwargs", {"a": {"b": [1, 2.5, None, "ü"]}}), ({"tolerance": 2.5}, "tolerance_ms", 2500),
     ({"box": "10s"}, "box_ms", 10_000), ({"max_runs": 3}, "max_runs", 3), ({"retries": 2}, "retries", 2),
     ({"cron": "0 9 * * *"}, "kind", "cron"), ({"starts": "2100-01-01T00:00:00Z"}, "starts_at", "2100-01-01T00:00:00.000000Z"),
     ({"subject": "<b>Ärger</b>"}, "subject", "<b>Ärger</b>"), ({}, "every_ms", 60_000)],
)  # fmt: skip
def test_a_change_takes_effect_at_once(change: dict[str, Any], column: str, expected: Any, client: TestClient, task: Task) -> None:  # fmt: skip
    answer = client.patch(f"{API}/tasks/1", json=change)
    assert answer.status_code == 200, answer.text
    assert answer.json()[column] == expected == client.get(f"{API}/tasks/1").json()[column]


def test_a_bound_is_taken_away_by_an_empty_text(client: TestClient, task: Task) -> None:
    client.patch(f"{API}/tasks/1", json={"ends": "2100-01-01T00:00:00Z"})
    assert client.patch(f"{API}/tasks/1", json={"ends": ""}).json()["ends_at"] is None


def test_a_deleted_task_is_gone_and_the_record_of_its_runs_stays(client: TestClient, play: Played) -> None:
    ticker.register(play.db, "poll", every="1m")
    play.run(0, "failed", "no route to host")
    answer = client.delete(f"{API}/tasks/1")
    assert (answer.status_code, answer.content) == (204, b"")
    problem(client.delete(f"{API}/tasks/1"), 404)
    [run] = client.get(f"{API}/runs", params={"task": 1}).json()["runs"]
    assert (run["task_name"], run["reason"]) == ("poll", "no route to host")
    why = client.get(f"{API}/tasks/1/why").json()
    assert why["task"] is None and sentence("why.task_is_gone_in_words").within(why["next"][0])


def test_a_row_that_somebody_holds_is_a_conflict_and_nothing_is_written(
    client: TestClient, task: Task, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.SETTINGS, "lock_timeout", "50ms")
    with connections.connect(database_url) as other, other.transaction():
        other.execute("SELECT 1 FROM ticker.tasks FOR UPDATE")
        for method, path, body in (
            ("PATCH", "", {"every": "5m"}),
            ("DELETE", "", None),
            ("POST", "/pause", {}),
            ("POST", "/run", {}),
        ):
            assert "locked" in problem(client.request(method, f"{API}/tasks/1{path}", json=body), 409)["detail"]
    assert ticker.get(db, 1) == task


# -------------------------------------------------------------------------------------------------- pause, resume, run


def test_a_pause_says_who_why_and_how_long(client: TestClient, task: Task) -> None:
    past = client.post(f"{API}/tasks/1/pause", json={"until": "2020-01-01T00:00:00Z"})
    assert problem(past, 422)["field"] == "until"
    found = done(client, "pause", reason="moved", until="2100-01-01T00:00:00Z", by="ann")
    assert (found["state"], found["paused_by"], found["paused_reason"]) == ("paused", "ann", "moved")
    assert found["paused_until"] == "2100-01-01T00:00:00.000000Z"
    assert done(client, "resume")["state"] == "ok"
    assert done(client, "pause")["paused_by"] == "the HTTP API"


def test_to_resume_what_was_not_paused_changes_nothing(client: TestClient, task: Task, db: Db) -> None:
    before = ticker.get(db, 1)
    assert done(client, "resume")["id"] == 1
    assert ticker.get(db, 1) == before


def test_a_run_by_hand_is_planned_and_the_schedule_is_not_touched(client: TestClient, task: Task, db: Db) -> None:
    assert done(client, "run") == {"run_ids": [1], "joined": [1]}
    assert client.get(f"{API}/runs/1").json()["kind"] == "manual"
    assert ticker.get(db, 1).next_run == task.next_run


def test_many_calls_within_a_time_are_one_run(client: TestClient, task: Task, db: Db) -> None:
    first = done(client, "run", once_within="30s")
    assert [done(client, "run", once_within=within) for within in ("30s", 5)] == [first, first]
    assert problem(client.post(f"{API}/tasks/1/run", json={"once_within": "2h"}), 422)["field"] == "once_within"


def test_an_interval_with_hours_is_made_read_and_changed(client: TestClient, db: Db) -> None:
    said = {"function": "poll", "every": "1m..30m", "during": "9-17 mon-fri", "zone": "Europe/Berlin"}
    made = client.post(f"{API}/tasks", json=said)
    assert made.status_code == 201, made.text
    url = f"{API}/tasks/{made.json()['id']}"
    assert (made.json()["during"], made.json()["schedule"]) == (
        "9-17 mon-fri",
        "every 1m..30m during 9-17 mon-fri Europe/Berlin",
    )
    assert client.patch(url, json={"during": "8-18"}).json()["during"] == "8-18"
    assert (client.get(url).json()["during"], client.get(url).json()["every_most_ms"]) == ("8-18", 1_800_000)
    assert problem(client.patch(url, json={"during": "9-9"}), 422)["field"] == "during"


# ------------------------------------------------------------------------------------------------------- why and when


def test_why_tells_each_occurrence_with_its_arithmetic(client: TestClient, play: Played) -> None:
    ticker.register(play.db, "poll", every="1m")
    play.run(0, "succeeded")
    play.run(60, "failed", "no route to host")
    found = client.get(f"{API}/tasks/1/why").json()
    assert [line["what"] for line in found["lines"]] == ["succeeded", "failed", "failed"]
    assert sentence("why.took", took="1 s", box="30 s").within(found["lines"][0]["words"])
    assert found["task"]["id"] == found["task_id"] == 1 and found["at"] is None and found["next"]
    assert len(client.get(f"{API}/tasks/1/why", params={"limit": 1}).json()["lines"]) < 3
    then = client.get(f"{API}/tasks/1/why", params={"at": play.begin.isoformat()}).json()
    assert then["at"] is not None and then["then"]


def test_the_next_times_begin_where_the_task_is_due(client: TestClient, db: Db) -> None:
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    ticker.register(db, "poll", every="1h", first=first, max_runs=3)
    found = client.get(f"{API}/tasks/1/next").json()
    assert found["times"] == [formatting.plain_data(first + timedelta(hours=n)) for n in range(3)]
    assert (found["kind"], found["normalized"], found["words"]) == ("interval", "1h", "Every 1h")
    assert len(client.get(f"{API}/tasks/1/next", params={"count": 2}).json()["times"]) == 2


def test_a_task_that_will_not_run_has_a_reason_and_no_next_time(client: TestClient, task: Task, db: Db) -> None:
    db.execute("UPDATE ticker.tasks SET owner_active = false")
    found = client.get(f"{API}/tasks/1/next").json()
    assert (found["times"], found["warnings"]) == ([], [sentence("why.owner_is_inactive")])
