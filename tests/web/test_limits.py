"""Limits by key: declared, listed with their use, and removed."""

from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.sentences import sentence
from tests.web.asking import API, problem

Db = psycopg.Connection[Any]
STRANGE = """a/b?c=d#'"<i>&amp;{{x}}100%"""


@pytest.fixture
def full(play: Played) -> Played:
    """The one slot of `imap.gmail.com` is taken, and one of its two tokens; a second task waits."""
    ticker.limit(play.db, "imap.*", concurrency=1, rate="2/1m", burst=2)
    for owner in ("mail_channels:1", "mail_channels:2"):
        ticker.register(play.db, "poll", owner=owner, every="1m", first=play.now, limits=["imap.gmail.com"])
    play.tick()
    [taken] = play.take()
    assert taken.refusal is None
    return play


def listed(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get(f"{API}/limits", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["limits"]
    return found


# ----------------------------------------------------------------------------------------------------------- over HTTP


@pytest.mark.parametrize("key", ["imap.gmail.com", "imap.*", "*", STRANGE, "release/release"])
def test_a_limit_is_declared_replaced_and_removed(key: str, client: TestClient) -> None:
    address = f"{API}/limits/{quote(key, safe='')}"
    made = client.put(address, json={"concurrency": 20, "rate": "300/1m"}).json()
    assert made | {"updated_at": ""} == {"key": key, "concurrency": 20, "rate": 300, "period_ms": 60_000, "burst": 5,
                                         "by": "the HTTP API", "updated_at": ""}  # fmt: skip
    made = client.put(address, json={"rate": "300/1m", "burst": 9}).json()
    assert (made["concurrency"], made["rate"], made["burst"]) == (None, 300, 9)
    assert [one["key"] for one in listed(client)] == [key]
    answer = client.delete(address)
    assert (answer.status_code, answer.text, listed(client)) == (204, "", [])
    assert problem(client.delete(address), 404)["detail"] == sentence("http.no_limit", key=repr(key))


@pytest.mark.parametrize(
    ("key", "body", "field"),
    [("a b", {"concurrency": 1}, "key"), ("a*b", {"concurrency": 1}, "key"), ("\u00e9", {"concurrency": 1}, "key"), ("a", {}, "concurrency"),
     ("a", {"burst": 1, "concurrency": 1}, "burst"), ("a", {"concurrency": 10_001}, "concurrency"), ("a", {"rate": "1/1m", "burst": 2}, "burst")],
)  # fmt: skip
def test_what_is_no_limit_is_refused_by_its_field(key: str, body: Any, field: str, client: TestClient) -> None:
    assert problem(client.put(f"{API}/limits/{quote(key)}", json=body), 422)["field"] == field
    assert listed(client) == []


def test_a_key_is_listed_with_its_use_and_those_with_most_due_tasks_come_first(client: TestClient, full: Played) -> None:  # fmt: skip
    client.put(f"{API}/limits/a", json={"concurrency": 5})
    [one, other] = listed(client)
    assert (one["key"], one["limited_by"], one["active"], one["tokens"], one["waiting"]) == (
        "imap.gmail.com",
        "imap.*",
        1,
        1,
        1,
    )
    assert (other["key"], other["active"]) == ("a", 0) and listed(client, limit=1) == [one]
