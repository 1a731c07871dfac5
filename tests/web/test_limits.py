"""Limits by key, over HTTP and on the page: declared, listed with their use, and removed."""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.sentences import sentence
from tests.web.asking import API, SCRIPT, problem, text_of

Db = psycopg.Connection[Any]
STRANGE = """a/b?c=d#'"<i>&amp;{{x}}100%"""


@pytest.fixture
def full(play: Played) -> Played:
    """The one slot of `imap.gmail.com` is taken, and one of its two tokens; a second task waits."""
    ticker.limit(play.db, "imap.*", concurrency=1, rate="2/1m", burst=2)
    for owner in ("mail_channels:1", "mail_channels:2"):
        subject = f"{owner[-1]}@example.org"
        ticker.register(
            play.db, "poll", owner=owner, every="1m", first=play.now, limits=["imap.gmail.com"], subject=subject
        )
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


@pytest.mark.slow
def test_a_key_that_is_held_is_released_over_http_and_on_the_page(client: TestClient, db: Db) -> None:
    ticker.register(db, "poll", every="1m", limits=["a"])
    for release in (
        lambda: client.delete(f"{API}/closures/a"),
        lambda: client.post("/limits/release", data={"key": "a"}, headers=SCRIPT),
    ):
        db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z', allowed = 1")
        assert "2100" in client.get("/limits").text and listed(client)[0]["closed_until"]
        assert release().status_code == 204
        assert [one["closed_until"] for one in listed(client)] == [None]
    assert problem(client.delete(f"{API}/closures/a"), 404)["detail"] == sentence("http.not_closed", key="'a'")


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


@pytest.mark.slow
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


# ---------------------------------------------------------------------------------------------------------- the screen


def test_the_screen_shows_who_holds_a_limit_and_who_waits_for_it(client: TestClient, full: Played) -> None:
    page = client.get("/limits")
    words = text_of(page)
    for text in ("imap.gmail.com limited by imap.*", "1 of 1", "1 of 2 2/1m"):
        assert text in words, text
    assert re.search(
        r"(\d)@example.org poll of mail_channels:\1 *, started .* (?!\1)\d@example.org poll of mail_channels:\d *, due",
        words,
    )
    assert re.findall(r'<meter max="(\d)" value="(\d)"', page.text) == [("1", "1"), ("2", "1")]
    assert 'href="/runs/1"' in page.text and "closed" not in words


@pytest.mark.slow
def test_the_screen_counts_those_that_it_does_not_name(client: TestClient, full: Played) -> None:
    for number in range(7):
        ticker.register(full.db, "poll", name=f"{number}", every="1m", first=full.now, limits=["imap.gmail.com"])
    assert text_of(client.get("/limits")).count("due") == 6 and "3 more" in text_of(client.get("/limits"))


@pytest.mark.slow
def test_the_screen_says_until_when_a_key_is_held_off(client: TestClient, full: Played) -> None:
    full.db.execute("UPDATE ticker.limited_keys SET closed_until = clock_timestamp() + interval '1 h', allowed = 1")
    ticker.unlimit(full.db, "imap.*")
    words = text_of(client.get("/limits"))
    assert "imap.gmail.com without a limit" in words
    assert re.search(r"closed .*ends in (1 h|59 min)", words) and "1 allowed" in words


def test_idle_keys_of_a_pattern_are_one_row_and_its_removal_says_so(client: TestClient, full: Played) -> None:
    later = full.now + timedelta(hours=1)
    for number in range(20):
        ticker.register(full.db, "poll", owner=f"accounts:{number}", every="1h", first=later, limits=[f"imap.{number}"])
    page = client.get("/limits").text
    assert "limits 21 keys, 1 in use" in page and "imap.7" not in page
    [asked] = {*re.findall(r'hx-confirm="(Remove [^"]*)"', page)}
    assert sentence("page.remove_the_limit") == asked
    assert '<span class="bad">1 of 1</span>' in page


def test_a_limit_is_set_changed_and_removed_on_the_screen(client: TestClient, db: Db) -> None:
    said = {"key": " imap.* ", "concurrency": "20", "rate": "300/1m", "burst": ""}
    assert client.post("/limits/set", data=said, headers=SCRIPT).status_code == 204
    [limit] = ticker.list_limits(db)
    assert (limit.key, limit.concurrency, limit.rate, limit.period_ms, limit.burst) == ("imap.*", 20, 300, 60_000, 5)
    page = client.get("/limits")
    form = client.get(unescape(re.findall(r'href="([^"]+)#key"', page.text)[0])).text.partition("<form")[2]
    assert re.findall(r'name="(\w+)" value="([^"]*)"', form) == [
        ("key", "imap.*"), ("concurrency", "20"), ("rate", "300/1m"), ("burst", "5")]  # fmt: skip
    assert client.post("/limits/remove", data={"key": "imap.*"}, headers=SCRIPT).status_code == 204
    assert ticker.list_limits(db) == []


@pytest.mark.parametrize(
    ("said", "field"), [({"key": "a"}, "concurrency"), ({"key": "a", "concurrency": "many"}, "concurrency"),
                        ({"concurrency": "1"}, "key"), ({"key": "a", "rate": "5"}, "rate"), ({"key": "a", "burst": "0"}, "burst")]
)  # fmt: skip
def test_the_screen_reports_what_is_no_limit_next_to_its_field(said: dict[str, str], field: str, client: TestClient, db: Db) -> None:  # fmt: skip
    assert problem(client.post("/limits/set", data=said, headers=SCRIPT), 422)["field"] == field
    assert f'id="{field}-error"' in client.get("/limits").text and ticker.list_limits(db) == []


def test_any_key_is_shown_as_text_and_leads_back_to_itself(client: TestClient, db: Db) -> None:
    ticker.limit(db, STRANGE, concurrency=1)
    page = client.get("/limits").text
    assert "<i>" not in page and STRANGE in unescape(page)
    [values] = re.findall(r"hx-vals='([^']+)'", page)
    [link] = re.findall(r'href="([^"]+)#key"', page)
    assert f'value="{STRANGE}"' in unescape(client.get(unescape(link)).text)
    assert client.post("/limits/remove", data=json.loads(values), headers=SCRIPT).status_code == 204
    assert ticker.list_limits(db) == []


@pytest.mark.slow
def test_the_screen_has_no_form_where_nothing_can_be_changed(serve: Any, full: Played) -> None:
    page = serve(TICKER_WEB_READ_ONLY="on").get("/limits").text
    assert "imap.gmail.com" in page and "hx-post" not in page and "#key" not in page
