"""What is no request is refused with 422 and the name of the field, never with an error of ours; nothing is written."""

import json
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.bad_input.rows import SLOWLY
from tests.web.asking import ALL, API, JSON, WITH_BODY, Asking, named, problem, rows
from ticker.tasks.fields import Task

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

WITH_QUERY = [one for one in ALL if one.operation.query]
NO_JSON = [b"{", b"{]", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": -Infinity}', b"\xff\xfe", b'"\xed\xa0\x80"', b"[" * 100_000,
           b'{"a":' * 50_000, b'{"a": ' + b"9" * 10_000 + b"}", b"'a'", b"{'a': 1}", b"{}x", b"\x00", "{}".encode("utf-16"), b"\xef\xbb\xbf{}x"]  # fmt: skip
NO_OBJECT = [b"[]", b"5", b"null", b"true", b'"text"', b'[{"function": "x"}]']
NO_TEXT: list[Any] = [None, 5, 1.5, True, [], {}, ["x"], {"x": 1}, 10**400, "\ud800", "a\0b", "a\nb", "x" * 201]
WRONG: dict[str, list[Any]] = {
    "function": [*NO_TEXT, ""], "name": [*NO_TEXT, ""], "queue": [*NO_TEXT, ""], "owner": [*NO_TEXT, "", "x", ":1", "a:"],
    "group": NO_TEXT, "submitter": NO_TEXT, "subject": NO_TEXT[:-1], "description": [*NO_TEXT[:-1], "x" * 2001],
    "kwargs": [None, 5, "x", [], {"*": [1]}, {"a": "\0"}, {"a": "\ud800"}, {"\ud800": 1}, {"a": 10**400}, {"a": "x" * 65_536}],
    "args": [None, 5, True, "x", {}, {"0": 1}, ["\0"], ["\ud800"], [10**400], ["x" * 65_536]],
    "metadata": [None, 5, "x", [], {"a": "\0"}], "tolerance": [None, True, [], {}, "x", -1, "366d", 10**400, 1e300, "\ud800"],
    "every": [None, True, [], {}, "x", 0, -1, 10**400, 1e300, "0s", "367d", "5M", "\ud800"], "box": [None, 0, "x", [], 10**400],
    "cron": [None, 5, "x", "* * *", "61 * * * *", "\ud800 * * * *", "* " * 10_000], "calendar": [None, 5, "x", "\ud800"],
    "at": [None, True, [], 1.5, "x", 10**400, -1, "2001-01-01T00:00:00Z", "2100-01-01T00:00:00", "\ud800"],
    "zone": [None, 5, [], "x", "../../etc/passwd", "\ud800"], "first": NO_TEXT, "starts": [None, True, [], "x", "\ud800"],
    "ends": [None, True, [], "x", "1999-01-01T00:00:00Z"], "during": [*NO_TEXT, "9", "9-25", "9-17 xyz", "9-9"], "max_runs": [None, "5", -1, 1.5, True, 10**400],
    "catch_up": [None, "two", 5, [], True], "remove": [None, 1, "true", []], "spread": [None, 1, "true"], "within": [None, True, [], "x", -1], "overlap": [None, "x", 5, {}], "limits": [None, 5, True, {}, "a b", "a,a", "a,b,c", [5], [None], ["a", "a"], ["a*"], [["a"]], "\ud800"],
    "retries": [None, -1, 101, "5", 1.5, True, 10**400], "backoff": [None, True, [], "x", "5m..10s", -1], "stretch": [None, True, [], "x", -1],
    "pause_after": [None, -1, "5", True, 10**400], "probe": [None, True, [], "x", -1], "dead_man": [None, -1, "5", 10**400],
    "keep": [None, "x", 5, []], "priority": [None, -1001, 1001, "5", True, 10**400],
    "concurrency": [None, 0, 10_001, "5", 1.5, True, [], 10**400], "rate": [None, 5, True, [], "", "x", "0/1m", "1/0s", "1/\ud800"],
    "burst": [None, 0, "5", 1.5, True, {}],
}  # fmt: skip
BASES = {"create_task": {"function": "poll", "every": "1m"}, "declare_limit": {"rate": "9/1m"}}
NUMBERS = {"limit": ["0", "-1", "1001", "x", "1.0", "", " 1", "٣", "9" * 5000, "1e3", "0x1"], "count": ["0", "-1", "1001", "x", ""],
           "after": ["", "0", "x", "-1", "9" * 30, "1-run-1", "\0"], "before": ["", "0", "1", "1-run", "1-x-1", "x-run-1", f"{'9' * 18}-run-1", f"1-run-{'9' * 30}", "\0"],
           "task": ["", "0", "x", "-1", "9" * 30], "state": ["", "x", "PAUSED"], "outcome": ["", "x", "Failed"], "reason": ["", "x"], "by": ["", "x"],
           "owner": ["", "x", ":", ":1", "a:", "a:\0", f"{'x' * 201}:1"], "since": ["", "x", "2026-01-01", "2026-01-01T00:00:00", "9999-12-31T23:59:59-23:59", "2999-01-01T00:00:00Z", "\0"],
           "until": ["", "x", "2026-01-01", "25:00", "\0"],
           "at": ["", "x", "2026-01-01", "-1"], "failing": ["", "x", "1", "True"], "search": ["", "\0", "x" * 201], "name": ["", "\0", "\u202e"]}  # fmt: skip


def sent(client: TestClient, one: Asking, body: Any) -> Any:
    """As JSON in ASCII: half of a surrogate pair can be written so."""
    return client.request(one.method, one.path, content=json.dumps(body), headers=JSON)


@pytest.mark.parametrize("one", WITH_BODY, ids=named)
def test_a_body_that_is_no_json_object_is_refused(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for content in NO_JSON + NO_OBJECT:
        answer = client.request(one.method, one.path, content=content, headers=JSON)
        assert problem(answer, 422)["field"] == "body", content[:40]
        assert "set_int_max" not in answer.text
    assert rows(db) == before


@pytest.mark.parametrize("one", [one for one in WITH_BODY if one.operation.name.endswith(("task", "limit"))], ids=named)
def test_a_value_of_the_wrong_kind_is_refused_by_its_field(one: Asking, client: TestClient, task: Task, db: Db) -> None:  # fmt: skip
    before = rows(db)
    base = BASES.get(one.operation.name, {})
    schedule = {"every", "cron", "calendar", "at", "zone"}
    for field in one.fields:
        for value in WRONG.get(field, [None, [], {}]):
            said = {name: base[name] for name in base if not (field in schedule - {"zone"} and name == "every")}
            found = problem(sent(client, one, {**said, field: value}), 422)
            assert found["field"] == field, (value, found)
    assert rows(db) == before


@pytest.mark.parametrize("action", ["", "x", None, 5, {}, [], ["run"]])
def test_an_action_on_many_tasks_is_one_of_ours(action: Any, client: TestClient, task: Task, db: Db) -> None:
    answer = client.post(f"{API}/bulk", json={"filter": {}, "action": action})
    assert problem(answer, 422)["field"] == "action"


@pytest.mark.parametrize("one", [one for one in WITH_BODY if "by" in one.fields], ids=named)
def test_an_empty_author_is_refused(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    assert problem(sent(client, one, {**(one.body or {}), "by": ""}), 422)["field"] == "by"
    assert rows(db) == before


@pytest.mark.parametrize("one", WITH_BODY, ids=named)
def test_a_field_that_is_not_known_is_refused_by_its_name(one: Asking, client: TestClient, task: Task, db: Db) -> None:
    before = rows(db)
    for name in ("nope", "id", "next_run", "owner_active", "__class__", "Function"):
        found = problem(sent(client, one, {**(one.body or {}), name: 1}), 422)
        assert found["field"] == name and "known" in found["detail"]
    for name in ("", "\ud800", "a\0b", "x" * 61):  # what cannot be shown is not shown
        assert problem(sent(client, one, {**(one.body or {}), name: 1}), 422)["field"] == "body"
    assert rows(db) == before


@pytest.mark.parametrize("one", ALL, ids=named)
def test_a_parameter_that_is_not_known_is_refused_by_its_name(one: Asking, client: TestClient, task: Task, db: Db) -> None:  # fmt: skip
    before = rows(db)
    path = one.path
    for name in ("nope", "Limit", "tasks[]"):
        answer = client.request(one.method, path, params={name: "1"}, json=one.body)
        assert problem(answer, 422)["field"] == name
    assert rows(db) == before


@pytest.mark.parametrize("one", WITH_QUERY, ids=named)
def test_a_parameter_that_cannot_be_taken_is_refused_by_its_name(one: Asking, client: TestClient, task: Task) -> None:
    for field in one.operation.query:
        for text in NUMBERS.get(field, [""]):
            if (field, text, one.operation.name) == ("after", "0", "list_owners"):
                continue
            assert problem(client.get(one.path, params={field: text}), 422)["field"] == field, (field, text)


def test_a_parameter_is_given_once(client: TestClient) -> None:
    assert problem(client.get(f"{API}/tasks?limit=1&limit=2"), 422)["field"] == "query"


def test_what_is_missing_is_named(client: TestClient) -> None:
    for content in (b"", b"{}", b'{"every": "1m"}'):
        answer = client.post(f"{API}/tasks", content=content, headers=JSON)
        assert problem(answer, 422)["field"] == "function"
    assert problem(client.post(f"{API}/tasks", json={"function": "poll"}), 422)["field"] == "every"


def test_two_schedules_exclude_each_other(client: TestClient, db: Db) -> None:
    said = {"function": "poll", "every": "1m", "cron": "* * * * *"}
    assert problem(client.post(f"{API}/tasks", json=said), 422)["field"] == "cron"
    assert rows(db)[0] == []


# ---------------------------------------------------------------------------------------------- whatever is sent

FIELDS = WITH_BODY[0].fields
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(), max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=3), max_leaves=5,
)  # fmt: skip


@SLOWLY
@given(
    one=st.sampled_from(WITH_BODY),
    said=st.dictionaries(st.sampled_from(FIELDS) | st.text(st.characters(), max_size=8), ANY, max_size=4),
)
def test_whatever_object_is_sent_the_answer_is_no_error_of_ours(
    one: Asking, said: dict[str, Any], client: TestClient, task: Task
) -> None:
    assert sent(client, one, said).status_code in (200, 201, 202, 404, 422), (one, said)


@SLOWLY
@given(one=st.sampled_from(WITH_BODY), content=st.binary(max_size=60))
def test_whatever_bytes_are_sent_the_answer_is_no_error_of_ours(
    one: Asking, content: bytes, client: TestClient, task: Task
) -> None:
    answer = client.request(one.method, one.path, content=content, headers=JSON)
    assert answer.status_code in (200, 201, 202, 404, 422), (one, content)


@SLOWLY
@given(pick=st.sampled_from([(one.path, field) for one in WITH_QUERY for field in one.operation.query]),
       text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))  # fmt: skip
def test_whatever_text_is_asked_for_the_answer_is_no_error_of_ours(
    pick: tuple[str, str], text: str, client: TestClient, task: Task
) -> None:
    path, field = pick
    assert client.get(path, params={field: text}).status_code in (200, 404, 422), (path, field, text)
