"""The description of the API against what is served, what is stored, and what is answered."""

import re
from typing import Any

import jsonschema_rs
import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.web.asking import ALL, API, BEARER, PREPARED, Asking, named
from tests.web.conftest import Serve
from ticker.tasks import fields
from ticker.tasks.fields import Task
from ticker.tasks.sorts import Schema
from ticker.web.api import router

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]
Document = dict[str, Any]


@pytest.fixture
def document(client: TestClient) -> Document:
    found: Document = client.get(f"{API}/openapi.json").json()
    return found


def validator(document: Document, schema: dict[str, Any]) -> Any:
    """Of a schema that names the components."""
    return jsonschema_rs.validator_for({**schema, "components": document["components"]}, validate_formats=True)


def described(document: Document, one: Asking) -> Document:
    found: Document = document["paths"][one.operation.template][one.method.lower()]
    return found


# ------------------------------------------------------------------------------------------------------- the routes


def test_what_is_served_and_what_is_described_are_the_same(document: Document) -> None:
    served = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in router.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    told = {(path, method.upper()) for path, found in document["paths"].items() for method in found}
    assert served == told and len(served) == len(ALL)


def test_each_operation_has_a_name_and_words_of_its_own(document: Document) -> None:
    found = [operation for path in document["paths"].values() for operation in path.values()]
    assert (
        len({operation["operationId"] for operation in found})
        == len({operation["summary"] for operation in found})
        == len(found)
    )
    assert all(operation["summary"].endswith(".") for operation in found)


def test_a_summary_is_one_sentence_and_each_operation_stands_under_one_tag(document: Document) -> None:
    found = [operation for path in document["paths"].values() for operation in path.values()]
    tags = [tag["name"] for tag in document["tags"]]
    for operation in found:
        assert ". " not in operation["summary"] and len(operation["summary"]) < 160
        assert operation["description"].startswith(operation["summary"].removesuffix("."))
    assert {tag for operation in found for tag in operation["tags"]} == {*tags}
    assert all(len(operation["tags"]) == 1 for operation in found)


def test_a_page_shows_the_document(client: TestClient, document: Document) -> None:
    page = client.get("/api")
    assert "<script>" not in page.text and "http://" not in page.text and "https://" not in page.text
    shown = {(path, method) for method, path in re.findall(r"<summary><b>([A-Z]+)</b> <code>([^<]+)</code>", page.text)}
    assert shown == {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    for name, schema in document["components"]["schemas"].items():
        assert f'id="schema-{name}"' in page.text
        assert all(f'<td class="name">{field}' in page.text for field in schema.get("properties", {}))
    links = set(re.findall(r'href="#(schema-\w+)"', page.text))
    assert links and all(f'id="{link}"' in page.text for link in links)


def test_the_schemas_have_the_names_of_the_glossary(document: Document) -> None:
    assert sorted(document["components"]["schemas"]) == [
        "Activity", "ActivityPoint", "Bulk", "BulkGroup", "Counts", "Drops", "Event", "FullRun", "Function", "Health",
        "JournalEntry", "Limit", "LimitStatus", "Owner",
        "Pause", "Preview", "Problem", "Run", "Task", "Ticker", "Why",
    ]  # fmt: skip


@pytest.mark.parametrize("one", ALL, ids=named)
def test_each_piece_of_a_path_is_described(one: Asking, document: Document) -> None:
    told = described(document, one)
    assert [p["name"] for p in told["parameters"] if p["in"] == "path"] == re.findall(
        r"{(\w+)}", one.operation.template
    )
    assert all(p["description"].endswith(".") for p in told["parameters"])
    assert all(content["description"] for content in told["responses"].values())


def test_every_schema_is_one_and_every_reference_leads_somewhere(document: Document) -> None:
    names = set(re.findall(r"'#/components/schemas/(\w+)'", repr(document)))
    assert names <= document["components"]["schemas"].keys()
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def test_a_token_is_described_as_needed_where_it_is(serve: Serve, document: Document) -> None:
    assert {} in document["security"]
    with_token = serve(TICKER_WEB_TOKEN=BEARER["Authorization"].removeprefix("Bearer "))
    assert {} not in with_token.get(f"{API}/openapi.json", headers=BEARER).json()["security"]


# ------------------------------------------------------------------------------------------------- what can be said


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [("/tasks", "post", fields.body_of_register()), ("/tasks/{id}", "patch", fields.body_of_edit())],
)
def test_the_bodies_of_tasks_are_those_of_the_table_of_fields(
    path: str, method: str, body: Schema, document: Document
) -> None:
    assert document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"] == body


@pytest.mark.parametrize("one", [one for one in ALL if one.operation.example], ids=named)
def test_an_example_fits_its_description_and_is_taken(one: Asking, document: Document, client: TestClient, task: Task) -> None:  # fmt: skip
    media = described(document, one)["requestBody"]["content"]["application/json"]
    assert validator(document, media["schema"]).is_valid(media["example"])
    assert one.ask(client).status_code in one.operation.answers


# ---------------------------------------------------------------------------------------------------- what is told


@pytest.fixture
def full(play: Played) -> Played:
    """Something of everything: a run that ended, a drop, an event, a ticker, a function, a limit."""
    ticker.limit(play.db, "imap.gmail.com", concurrency=1, rate="300/1m")
    play.db.execute(PREPARED)
    ticker.register(play.db, "poll", owner="mail_channels:5", every="1m", kwargs={"a": 1})
    play.run(0, "failed", "no route to host")
    play.at(60)
    play.tick()
    ticker.pause(play.db, 1)
    play.take()
    ticker.resume(play.db, 1)
    play.store.heartbeat("0f0e0d0c-0b0a-4908-8706-050403020100", "host", 1, play.now, {"enqueued": 1})
    play.db.execute("INSERT INTO ticker.functions VALUES ('poll', 1, clock_timestamp())")
    return play


@pytest.mark.parametrize("hide", ["off", "on"])
@pytest.mark.parametrize("one", ALL, ids=named)
def test_every_answer_is_as_it_is_described(one: Asking, hide: str, serve: Serve, full: Played) -> None:
    client = serve(TICKER_HIDE_ARGS=hide)
    document = client.get(f"{API}/openapi.json").json()
    told = described(document, one)["responses"]
    if one.operation.name == "stop_run":  # run 1 has ended
        full.db.execute("UPDATE ticker.runs SET state = 'processing', outcome = NULL, ended_at = NULL WHERE id = 1")
    answer = one.ask(client)
    assert str(answer.status_code) in told, answer.text
    if answer.status_code == 204:
        assert "content" not in told["204"]
        return
    schema = told[str(answer.status_code)]["content"]["application/json"]["schema"]
    problems = [error.message for error in validator(document, schema).iter_errors(answer.json())]
    assert not problems, problems
    assert undescribed(document, schema, answer.json()) == []


@pytest.mark.parametrize(("path", "status"), [("/tasks/99", 404), ("/tasks?limit=0", 422)])
def test_every_problem_is_as_it_is_described(path: str, status: int, client: TestClient, document: Document) -> None:
    found = client.get(API + path).json()
    problem = document["components"]["schemas"]["Problem"]
    assert validator(document, problem).is_valid(found) and found["status"] == status
    assert found.keys() <= problem["properties"].keys()


def undescribed(document: Document, schema: Document, value: Any) -> list[str]:
    """The names in an answer that its description does not have."""
    schemas_ = resolved(document, schema)
    if isinstance(value, list):
        return [name for s in schemas_ if "items" in s for item in value for name in undescribed(document, s["items"], item)]  # fmt: skip
    known = {name: part for s in schemas_ for name, part in s.get("properties", {}).items()}
    if not isinstance(value, dict) or not known:
        return []
    return [name for name in value if name not in known] + [
        name for key, item in value.items() if key in known for name in undescribed(document, known[key], item)
    ]


def resolved(document: Document, schema: Document) -> list[Document]:
    """A schema as all those that it stands for."""
    if "$ref" in schema:
        return resolved(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ())]
    return [schema, *(found for part in parts for found in resolved(document, part))]
