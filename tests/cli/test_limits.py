"""`ticker limit`."""

import re

import pytest

import ticker
from tests.cli.answers import INSTANT, answer, refused
from tests.harness import command
from tests.sentences import sentence

pytestmark = pytest.mark.usefixtures("environ")


def test_a_limit_is_declared_listed_and_removed(db):
    ticker.register(db, "poll", every="1m", limits=["imap.gmail.com"])
    assert (
        sentence("cli.limited", key="imap.gmail.com", concurrency=20, rate="300/1m", burst=5)
        == (command("limit", "imap.gmail.com", "--concurrency", "20", "--rate", "300/1m")[0])
    )
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 h' WHERE n = 1")
    head, row = command("limit")[0].splitlines()
    assert re.split(r"\s{2,}", head) == ["key", "limited by", "active", "rate", "free", "closed until (UTC)", "due"]
    assert re.split(r"\s{2,}", row) == ["imap.gmail.com", "imap.gmail.com", "1 of 20", "300/1m", "4 of 5", "1"]
    assert sentence("cli.limit_removed", key="imap.gmail.com") == command("limit", "imap.gmail.com", "--remove")[0]
    assert sentence("cli.had_no_limit", key="imap.gmail.com") == command("limit", "imap.gmail.com", "--remove")[0]
    assert sentence("cli.no_limits") == command("limit")[0]


def test_a_held_key_shows_until_when_and_how_many_may_be_active_after_it(db):
    ticker.register(db, "poll", every="1m", limits=["a"])
    db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z', allowed = 2")
    assert re.split(r"\s{2,}", command("limit")[0].splitlines()[1]) == ["a", "(2 allowed)", "2100-01-01 00:00:00", "1"]


def test_a_hold_is_released(db):
    ticker.register(db, "poll", every="1m", limits=["a"])
    db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z', allowed = 1")
    assert sentence("cli.limit_released", key="a") == command("limit", "a", "--release")[0]
    assert sentence("cli.limit_not_closed", key="a") == command("limit", "a", "--release")[0]
    assert answer("limit", "a", "--release") == {"key": "a", "released": False}


def test_limits_are_printed_as_json(db):
    made = answer("limit", "a*", "--rate", "10/1s", "--burst", "2")
    assert INSTANT.fullmatch(made.pop("updated_at")) and made.pop("by")
    assert made == {"key": "a*", "concurrency": None, "rate": 10, "period_ms": 1000, "burst": 2}
    [listed] = answer("limit")
    assert listed == {"key": "a*", "limited_by": "a*", "concurrency": None, "rate": 10, "period_ms": 1000, "burst": 2, "active": 0,
                      "tokens": None, "waiting": 0, "closed_until": None, "allowed": None}  # fmt: skip
    assert answer("limit", "a*", "--remove")["key"] == "a*" and answer("limit", "a*", "--remove") is None


def test_more_limits_than_are_shown_are_mentioned(db):
    for key in "ab":
        ticker.limit(db, key, concurrency=1)
    assert "--limit" in command("limit", "--limit", "1")[1]


@pytest.mark.parametrize(
    "words", [(), ("--remove", "--rate", "1/1s"), ("--release", "--remove"), ("--concurrency", "x")], ids=" ".join
)
def test_what_is_neither_a_limit_nor_its_removal_is_refused(words):
    assert refused("limit", "a", *words)


def test_what_is_to_be_done_needs_a_key():
    assert "missing argument 'KEY'" in refused("limit", "--remove")


def test_a_task_gets_its_keys_from_an_option(db):
    assert answer("add", "poll", "--every", "1m", "--limits", "a,b")["limits"] == ["a", "b"]
    [task] = ticker.list_tasks(db)
    assert "a, b" in command("list", str(task.id))[0]
    assert answer("edit", str(task.id), "--limits", "")["limits"] == []
