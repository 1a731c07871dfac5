"""Owners as people ask about them: who is in trouble, who rests; and the whole of an owner paused and resumed."""

import json
from datetime import timedelta

import pytest

import ticker
from tests.harness import command
from tests.plans import indexes, plan, read_whole
from tests.sentences import sentence
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.read import owners as read_owners

pytestmark = pytest.mark.slow

TYPE = "mail_channels"


@pytest.fixture
def crowd(environ, db):
    """Owners a to f with two tasks each, all well; and a task of nobody's."""
    for id_ in "abcdef":
        for name in ("one", "two"):
            ticker.register(db, "poll", name=name, every="1m", owner=(TYPE, id_))
    ticker.register(db, "poll", every="1m")
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 minute'")


def change(db, id_, change, name="one"):
    query = f"UPDATE ticker.tasks SET {change} WHERE owner_type = %s AND owner_id = %s AND name = %s"
    db.execute(query, [TYPE, id_, name])


FAILING = "failures = 3, last_outcome = 'failed'"
LATE = "next_run = clock_timestamp() - interval '61 s'"
NOT_YET_LATE = "next_run = clock_timestamp() - interval '29 s'"
PAUSED = "paused_by = 'ann', next_run = '2020-01-01Z'"


def ids(owners):
    return "".join(owner.owner_id for owner in owners)


def listed(db, **filters):
    return ids(ticker.list_owners(db, **filters))


# ------------------------------------------------------------------------------------------------------- the list


def test_an_owner_is_its_tasks_counted(crowd, db):
    change(db, "c", FAILING + ", last_success_at = '2026-01-01Z'")
    change(db, "c", PAUSED + ", last_success_at = '2026-01-02Z'", name="two")
    [first, *_] = ticker.list_owners(db)
    assert (first.owner, first.tasks, first.failing, first.late, first.paused, first.inactive) == (
        f"{TYPE}:c",
        2,
        1,
        0,
        1,
        0,
    )
    assert first.last_success.isoformat() == "2026-01-02T00:00:00+00:00"
    assert first.next_run == ticker.get(db, "one", owner=(TYPE, "c")).next_run  # a paused task has none


def test_those_in_trouble_come_first_and_nobody_is_no_owner(crowd, db):
    assert listed(db) == "abcdef"
    change(db, "e", FAILING)
    change(db, "c", LATE)
    change(db, "b", NOT_YET_LATE)
    change(db, "a", PAUSED)
    change(db, "d", f"enabled = false, {LATE}")
    assert listed(db) == "ceabdf"


def test_only_those_are_listed_of_whom_it_is_asked_for(crowd, db):
    change(db, "b", FAILING)
    change(db, "c", LATE)
    change(db, "d", PAUSED)
    change(db, "e", "owner_active = false")
    change(db, "f", "enabled = false")
    assert listed(db, failing=True) == "b"
    assert listed(db, late=True) == "c"
    assert listed(db, paused=True) == "def"
    assert listed(db, failing=True, paused=True) == "bdef"
    assert listed(db, owner_type="phones") == ""
    ticker.register(db, "poll", every="1m", owner=("phones", "z"))
    assert listed(db, owner_type="phones") == "z"


@pytest.mark.parametrize(("tick", "wanted"), [("10s", "c"), ("1m", "")])
def test_a_tick_of_this_process_counts_and_at_least_thirty_seconds(crowd, db, monkeypatch, tick, wanted):
    change(db, "c", LATE)
    change(db, "d", NOT_YET_LATE)
    monkeypatch.setenv("TICKER_TICK", tick)
    assert listed(db, late=True) == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("filters", [{}, {"failing": True, "paused": True}], ids=["all", "filtered"])
@pytest.mark.parametrize("many", [1, 20_000], ids=["in a crowd", "of few"])
def test_pages_go_on_behind_the_last_one(crowd, db, size, filters, many, monkeypatch):
    monkeypatch.setattr(read_owners, "CROWD", many)
    change(db, "e", FAILING)
    change(db, "c", LATE)
    change(db, "a", PAUSED)
    whole, found, after = ("ae" if filters else "ceabdf"), "", None
    while page := ticker.list_owners(db, after=after, limit=size, **filters):
        found, after = found + ids(page), page[-1]
    assert found == whole


@pytest.mark.parametrize("many", [1, 20_000], ids=["in a crowd", "of few"])
@pytest.mark.parametrize(
    ("filters", "wanted"),
    [({"failing": True}, "e"), ({"late": True}, "c"), ({"paused": True}, "abd"), ({"failing": True, "late": True}, "ce"),
     ({"owner_type": "phones"}, ""), ({"owner_type": TYPE, "late": True}, "c")],
)  # fmt: skip
def test_a_crowd_in_trouble_is_listed_as_a_few_are(crowd, db, filters, wanted, many, monkeypatch):
    monkeypatch.setattr(read_owners, "CROWD", many)
    for id_, what in [
        ("e", FAILING),
        ("c", LATE),
        ("a", PAUSED),
        ("b", "enabled = false"),
        ("d", "owner_active = false"),
    ]:
        change(db, id_, what)
    assert listed(db, **filters) == wanted


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "5"])
def test_a_limit_that_is_none_is_refused(environ, db, limit):
    with pytest.raises(BadInput, check=sentence("errors.whole_number_from_to", first=1, last=10000).within):
        ticker.list_owners(db, limit=limit)


def test_the_command_lists_them(crowd, db):
    change(db, "c", FAILING)
    first, second = command("owners", "--limit", "1")
    assert first.splitlines()[1].split()[:3] == [f"{TYPE}:c", "2", "1"]
    assert sentence("cli.there_are_more", number=1, things="owners").within(second)
    told = json.loads(command("owners", "--json", "--failing")[0])
    assert [(one["owner"], one["tasks"], one["failing"]) for one in told] == [(f"{TYPE}:c", 2, 1)]
    assert set(told[0]) == {
        "owner", "owner_type", "owner_id", "subject", "tasks", "failing", "late", "paused", "inactive", "last_success", "next_run",
    }  # fmt: skip
    assert command("owners", "--late")[0] == "no owners\n"
    assert command("owners", "--type", "phones", "--json")[0] == "[]\n"


MANY = """INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms,
    queue, next_run, failures, paused_by)
SELECT 'mail_channels', n / 2, n % 2, 'poll', 'interval', 60000, 5000, 30000, 1000, 'polling',
    clock_timestamp() + (n - 20) * interval '1 s', (n % 1000 = 0)::int, CASE WHEN n % 1000 = 1 THEN 'ann' END
FROM generate_series(1, 20000) n"""


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ("", "tasks_owner_name"),
        ("failing", "tasks_failing"),
        ("paused", "tasks_paused"),
        ("late", "tasks_due"),
        ("one", "tasks_owner_name"),
    ],
)
def test_owners_are_found_by_an_index(db, asked, index):
    db.execute(MANY)
    db.execute("INSERT INTO ticker.limited_keys (key) SELECT 'key:' || n FROM generate_series(1, 20000) n")
    db.execute("VACUUM ANALYZE ticker.tasks, ticker.limited_keys")
    of_one = (
        {"owner_type": "mail_channels", "owner_id": "77"} if asked == "one" else {"owner_type": None, "owner_id": None}
    )
    values = of_one | {"now": None, "failing": asked == "failing" or not asked, "late": asked == "late" or not asked,
              "paused": asked == "paused", "is_filtered": bool(asked), "late_ms": 60_000, "after_rank": 0, "after_type": "", "after_id": "", "limit": 100, "crowd": 20_000}  # fmt: skip
    found = plan(db, "list_owners", **values)
    assert index in indexes(found)
    assert read_whole(found) <= {"tickers"}


# ------------------------------------------------------------------------------------------------ an owner as a whole


def test_all_tasks_of_an_owner_are_paused_with_a_reason_and_resume_by_themselves(crowd, db, store, queue):
    command("pause", "--owner", f"{TYPE}:b", "--reason", "the host is down", "--until", "2h", "--by", "ann")
    paused = ticker.list_tasks(db, owner=(TYPE, "b"))
    assert [(t.paused_by, t.paused_reason) for t in paused] == [("ann", "the host is down")] * 2
    assert listed(db, paused=True) == "b"
    events = "SELECT what, by, words FROM ticker.events WHERE owner_id = 'b' ORDER BY id"
    assert db.execute(events).fetchall() == [("paused", "ann", "the host is down")] * 2
    tick(store, queue, paused[0].paused_until - timedelta(seconds=1))
    assert listed(db, paused=True) == "b"
    tick(store, queue, paused[0].paused_until)
    assert listed(db, paused=True) == ""
    assert [what for what, _, _ in db.execute(events)] == ["paused"] * 2 + ["resumed"] * 2


def test_an_owner_is_resumed_by_hand_and_others_are_left_alone(crowd, db):
    for id_ in "bc":
        command("pause", "--owner", f"{TYPE}:{id_}")
    assert command("resume", "--owner", f"{TYPE}:b")[0].count("resumed ") == 2
    assert listed(db, paused=True) == "c"
    assert command("resume", "--owner", f"{TYPE}:b")[0] == "nothing was resumed\n"
    assert sentence("errors.no_task_of_an_owner").within(command("pause", "--owner", f"{TYPE}:x", code=1)[1])


def test_for_whom_a_task_is_stands_in_its_details(environ, db):
    ticker.register(db, "poll", every="1m", submitter="ann", group="imports", priority=-3, subject="Post")
    shown = command("list", "poll")[0]
    for line in ("submitter", "ann"), ("group", "imports"), ("priority", "-3"), ("subject", "Post"):
        assert any(row.split() == list(line) for row in shown.splitlines()), (line, shown)


def test_tasks_are_listed_by_group_and_submitter(environ, db):
    ticker.register(db, "poll", name="a", every="1m", group="imports", submitter="ann")
    ticker.register(db, "poll", name="b", every="1m", group="imports")
    ticker.register(db, "poll", name="c", every="1m")
    assert [t.name for t in ticker.list_tasks(db, group="imports")] == ["a", "b"]
    assert [
        t["name"] for t in json.loads(command("list", "--group", "imports", "--submitter", "ann", "--json")[0])
    ] == ["a"]
