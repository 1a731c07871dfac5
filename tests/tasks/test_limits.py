"""Limits by key: declared, changed and removed in the caller's transaction, and applied to every key that tasks use."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

import ticker
import wrappers
from tests.bad_input.rows import refused
from tests.running import LOCK_AWAITED, until
from ticker import owners
from ticker.daemon import prune
from ticker.db.connections import connect
from ticker.db.steps import run
from ticker.db.store import PostgresStore
from ticker.read.gates import LimitStatus
from ticker.settings import Settings
from ticker.tasks import many, sync
from ticker.tasks.checks import MOST_AT_ONCE, MOST_PER_PERIOD
from wrappers.pipeline import registry

Db = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("environ")


def keys(db: Db) -> dict[str, tuple[Any, ...]]:
    """The keys in use: the limit that applies, and its numbers."""
    rows = db.execute("SELECT key, limited_by, concurrency, burst, token_us FROM ticker.limited_keys ORDER BY key")
    return {key: tuple(rest) for key, *rest in rows}


def slots(db: Db, key: str) -> dict[str, int]:
    return dict(db.execute("SELECT kind, count(*) FROM ticker.slots WHERE key = %s GROUP BY kind", [key]).fetchall())


def used(db: Db, *wanted: str, name: str = "poll") -> None:
    ticker.register(db, name, every="1m", limits=wanted)


# --------------------------------------------------------------------------------------------------------- what applies


def test_a_limit_applies_to_keys_that_are_in_use_and_to_those_that_come(db: Db) -> None:
    used(db, "a", name="one")
    assert keys(db) == {"a": (None, None, None, None)}
    ticker.limit(db, "a", concurrency=3, rate="10/1m", burst=2)
    assert keys(db) == {"a": ("a", 3, 2, 12_000_000)} and slots(db, "a") == {"run": 3, "start": 2}
    ticker.limit(db, "b", concurrency=1)
    assert keys(db).keys() == {"a"}
    used(db, "b", "a", name="two")
    assert keys(db)["b"] == ("b", 1, None, None) and slots(db, "b") == {"run": 1}


@pytest.mark.slow
def test_of_the_limits_for_a_key_its_own_wins_and_otherwise_the_longest_pattern(db: Db) -> None:
    used(db, "imap.gmail.com", "smtp.gmail.com")
    for key, count in {"*": 1, "imap.*": 2, "imap.g*": 3, "imap.gmail.com": 4}.items():
        ticker.limit(db, key, concurrency=count)
    assert {key: row[:2] for key, row in keys(db).items()} == {"imap.gmail.com": ("imap.gmail.com", 4), "smtp.gmail.com": ("*", 1)}  # fmt: skip
    for key, winner in {"imap.gmail.com": "imap.g*", "imap.*": "imap.g*", "imap.g*": "*", "*": None}.items():
        assert ticker.unlimit(db, key) is not None
        assert keys(db)["imap.gmail.com"][0] == winner
    assert ticker.unlimit(db, "*") is None


def test_an_underscore_or_a_percent_sign_in_a_pattern_stands_for_itself(db: Db) -> None:
    used(db, "axb", "a_b")
    ticker.limit(db, "a_*", concurrency=1)
    ticker.limit(db, "%*", concurrency=1)
    assert {key: row[0] for key, row in keys(db).items()} == {"axb": None, "a_b": "a_*"}


def test_a_task_or_a_limit_that_is_written_by_hand_counts_the_same(db: Db) -> None:
    used(db)
    db.execute("UPDATE ticker.tasks SET limits = '{a,b}'")
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('a', 2), ('b*', 1)")
    assert {key: row[0] for key, row in keys(db).items()} == {"a": "a", "b": "b*"}
    db.execute("UPDATE ticker.limits SET key = 'c', concurrency = 4 WHERE key = 'a'")
    db.execute("DELETE FROM ticker.limits WHERE key = 'b*'")
    assert {key: row[0] for key, row in keys(db).items()} == {"a": None, "b": None}


@pytest.mark.parametrize(
    "value", ["{}", "{NULL}", "{a,NULL}", "{a,a}", "{a,b,c}", "{{a,b}}", "[0:1]={a,b}", "{a*}", "{'a b'}", '{""}', '{"a,b"}']
)  # fmt: skip
def test_the_table_refuses_what_are_not_one_or_two_keys(value: str, db: Db) -> None:
    used(db)
    with pytest.raises((errors.CheckViolation, errors.FeatureNotSupported)):
        db.execute("UPDATE ticker.tasks SET limits = %s", [value])


def test_default_tasks_have_their_keys(db: Db) -> None:
    db.execute("CREATE TABLE channels (id bigint PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("channels")))
    ticker.defaults(db, "channels", [ticker.Wanted(function="poll", every="1m", limits=["a"])])
    db.execute("INSERT INTO channels VALUES (1), (2)")
    assert [task.limits for task in ticker.list_tasks(db)] == [("a",)] * 2 and keys(db).keys() == {"a"}


# ------------------------------------------------------------------------------------------------------------ changes


@pytest.mark.slow
def test_a_limit_is_replaced_as_a_whole_and_keeps_the_author_of_its_last_change(db: Db) -> None:
    first = ticker.limit(db, "a", concurrency=3, rate="5/1s", by="anna")
    assert (first.concurrency, first.rate, first.period_ms, first.burst, first.by) == (3, 5, 1000, 5, "anna")
    assert ticker.limit(db, "a", concurrency=3, rate="5/1s", by="bert") == first
    second = ticker.limit(db, "a", concurrency=2, by="bert")
    assert (second.concurrency, second.rate, second.period_ms, second.burst, second.by) == (2, None, None, None, "bert")
    assert second.updated_at > first.updated_at
    assert ticker.unlimit(db, "a") == second


def test_a_lowered_limit_keeps_its_rows_and_a_raised_one_gets_more(db: Db) -> None:
    used(db, "a")
    for count, rows in ((3, 3), (1, 3), (5, 5)):
        ticker.limit(db, "a", concurrency=count)
        assert keys(db)["a"][1] == count and slots(db, "a") == {"run": rows}


def test_a_raised_rate_frees_a_token_when_the_new_rate_does(db: Db) -> None:
    used(db, "a")
    ticker.limit(db, "a", concurrency=1, rate="1/1d")
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '23 h'")
    ticker.limit(db, "a", concurrency=1, rate="1/1h")
    ahead = dict(db.execute("SELECT kind, until - clock_timestamp() FROM ticker.slots").fetchall())
    assert timedelta(minutes=59) < ahead["start"] <= timedelta(hours=1) < timedelta(hours=22) < ahead["run"]
    ticker.limit(db, "a", concurrency=1, rate="1/2h")
    assert db.execute("SELECT until - clock_timestamp() < '1 h' FROM ticker.slots WHERE kind = 'start'").fetchone() == (True,)  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "burst", "token"),
    [("300/1m", 5, 1_000_000), ("1/1d", 1, 86_400_000_000), ("3/1s", 3, 1_000_000), ("7/60", 1, 8_571_429),
     (f"{MOST_PER_PERIOD}/1s", MOST_AT_ONCE, 10_000)],
)  # fmt: skip
def test_a_burst_is_by_default_what_starts_in_a_second(rate: str, burst: int, token: int, db: Db) -> None:
    used(db, "a")
    assert ticker.limit(db, "a", rate=rate).burst == burst
    assert keys(db)["a"][2:] == (burst, token)


def test_a_change_goes_with_the_transaction_of_the_caller(db: Db) -> None:
    used(db, "a")
    with db.transaction(force_rollback=True):
        ticker.limit(db, "a", concurrency=1)
        assert keys(db)["a"][1] == 1
    assert keys(db)["a"][1] is None and ticker.list_limits(db) == []


# -------------------------------------------------------------------------------------------------------- concurrency


@pytest.mark.slow
def test_a_new_key_and_a_new_limit_do_not_miss_each_other(db: Db, database_url: str) -> None:
    """Each of the two waits until the other one's transaction ends."""
    calls: list[Callable[[Db], Any]] = [lambda db: used(db, "a"), lambda db: ticker.limit(db, "a", concurrency=1)]
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ticker.limits'::regclass"
    for first, second in (calls, calls[::-1]):
        with connect(database_url) as one, connect(database_url) as other, ThreadPoolExecutor(1) as pool:
            with one.transaction():
                first(one)
                later = pool.submit(second, other)
                until(lambda: db.execute(waiting).fetchone() == (1,), "a lock that is not granted")
            later.result(timeout=60)
        assert keys(db)["a"][:2] == ("a", 1)
        db.execute("DELETE FROM ticker.tasks; DELETE FROM ticker.limited_keys; DELETE FROM ticker.limits")


@pytest.mark.slow
def test_tasks_that_bring_the_same_keys_in_any_order_wait_for_each_other_but_never_in_a_circle(
    db: Db, database_url: str
) -> None:
    ticker.limit(db, "*", concurrency=2, rate="5/1s")

    def registered(number: int) -> None:
        with connect(database_url) as own:
            for step in range(20):
                pair = [f"a{step}", f"b{step}"]
                used(own, *(pair if number % 2 else pair[::-1]), name=f"{number}.{step}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(registered, range(8)))
    assert len(keys(db)) == 40 and set(keys(db).values()) == {("*", 2, 5, 1_000_000)}
    assert db.execute("SELECT count(*) FROM ticker.slots").fetchone() == (40 * 7,)


def interrupted(steps: Any, meanwhile: Callable[[], None]) -> Any:
    """The same steps. After the first task is inserted, `meanwhile` is called."""
    asked, is_first = next(steps), True
    while True:
        rows = yield asked
        if is_first and "INSERT INTO" in asked.text:
            is_first = False
            meanwhile()
        try:
            asked = steps.send(rows)
        except StopIteration as end:
            return end.value


def reconciled(number: int, *limits: str) -> Any:
    wanted = [{"function": "poll", "every": "1m", "name": f"{n}", "limits": [key]} for n, key in enumerate(limits)]
    return ticker.reconcile.steps(f"mail:{number}", wanted)


def synced(number: int, *limits: str) -> Any:
    fields = [{"name": f"{number}.{n}", "every": "1m", "limits": [key]} for n, key in enumerate(limits)]
    return sync.sync.steps([sync.Declared("poll", f"m{number}", said) for said in fields], {}, [f"m{number}"])


def registered_in_parts(number: int, *limits: str) -> Any:
    items = [
        {"function": "poll", "every": "1m", "name": f"{number}.{n}", "limits": [key]} for n, key in enumerate(limits)
    ]
    return ticker.register_many.steps(items)


@pytest.mark.slow
@pytest.mark.parametrize("call", [reconciled, synced, registered_in_parts])
def test_calls_that_bring_the_same_keys_with_several_tasks_never_wait_in_a_circle(
    call: Callable[..., Any], db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "AT_ONCE", 1)
    later = []
    with connect(database_url) as one, connect(database_url) as other, ThreadPoolExecutor(1) as pool:

        def meanwhile() -> None:
            later.append(pool.submit(run, other, call(2, "a", "b"), writes=True))
            until(lambda: db.execute(LOCK_AWAITED).fetchone(), "the other call waits")

        run(one, interrupted(call(1, "b", "a"), meanwhile), writes=True)
        later[0].result(timeout=60)
    assert keys(db).keys() == {"a", "b"}


# ------------------------------------------------------------------------------------------------------------- unused


@pytest.mark.slow
def test_keys_that_no_task_has_are_deleted_with_their_slots_once_they_are_free(db: Db, store: PostgresStore) -> None:
    ticker.limit(db, "*", concurrency=2)
    used(db, "used", "shared")
    for key in ("unused", "busy", "held"):
        used(db, key, "shared", name=key)
        ticker.unregister(db, key)
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 h' WHERE (key, n) = ('busy', 2)")
    db.execute("UPDATE ticker.limited_keys SET closed_until = clock_timestamp() + interval '1 h' WHERE key = 'held'")
    list(prune.lap(store, Settings()))
    assert keys(db).keys() == {"used", "shared", "busy", "held"}
    assert (slots(db, "unused"), slots(db, "busy")) == ({}, {"run": 2})
    used(db, "unused", name="again")
    assert keys(db)["unused"][:2] == ("*", 2) and slots(db, "unused") == {"run": 2}


@pytest.mark.slow
def test_a_key_that_a_transaction_is_about_to_use_stays(db: Db, database_url: str, store: PostgresStore) -> None:
    used(db, "a")
    ticker.unregister(db, "poll")
    with connect(database_url) as other, other.transaction():
        used(other, "a", name="other")
        list(prune.lap(store, Settings()))
        assert keys(db).keys() == {"a"}


@pytest.mark.slow
def test_a_task_whose_key_is_being_deleted_waits_and_brings_it_again(
    db: Db, database_url: str, store: PostgresStore
) -> None:
    used(db, "a")
    ticker.limit(db, "a", concurrency=3)
    ticker.unregister(db, "poll")
    with connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        with store.transaction() as execute:
            assert execute("lock_unused_keys", now=None, limit=10) == [{"key": "a"}]
            execute("prune_keys", now=None, keys=["a"])
            later = pool.submit(used, other, "a")
            until(lambda: db.execute(LOCK_AWAITED).fetchone(), "the registration waits")
        later.result(timeout=60)
    assert keys(db)["a"][:2] == ("a", 3) and slots(db, "a") == {"run": 3}


def test_a_key_that_a_task_got_before_it_was_locked_is_not_deleted(db: Db, store: PostgresStore) -> None:
    used(db, "a")
    with store.transaction() as execute:
        execute("prune_keys", now=None, keys=["a"])
    assert keys(db).keys() == {"a"}


@pytest.mark.slow
def test_deploys_that_declare_limits_and_tasks_at_the_same_time_wait_for_each_other(db: Db, database_url: str) -> None:
    def deployed(number: int) -> None:
        with connect(database_url) as own, own.transaction():
            for step in range(10):
                ticker.limit(own, f"{number}.{step}*", concurrency=1)
            for step in range(10):
                used(own, f"{number}.{step}", name=f"{number}.{step}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(deployed, range(6)))
    assert {key: row[0] for key, row in keys(db).items()} == {f"{n}.{m}": f"{n}.{m}*" for n in range(6) for m in range(10)}  # fmt: skip


def test_a_change_locks_no_key_that_it_does_not_change(db: Db, database_url: str) -> None:
    used(db, "a", "b")
    ticker.limit(db, "a", concurrency=1)
    with connect(database_url) as other, other.transaction():
        ticker.limit(other, "*", concurrency=5)
        db.execute("SET lock_timeout = '5s'; UPDATE ticker.limited_keys SET closed_step = 1 WHERE key = 'a'")


# ------------------------------------------------------------------------------------------------------ the field `limits`


def test_the_keys_of_a_task_are_a_list_or_a_text_and_an_empty_one_removes_them(db: Db) -> None:
    task = ticker.register(db, "poll", every="1m", limits=["a", "b"])
    assert task.limits == ("a", "b")
    assert ticker.edit(db, task, limits="b, c").limits == ("b", "c")
    assert ticker.edit(db, task, queue="slow").limits == ("b", "c")
    assert ticker.register(db, "poll", every="1m", limits=["a", "b"]).limits == ("b", "c")
    assert ticker.register(db, "poll", every="1m", limits=["a"]).limits == ("a",)
    assert ticker.edit(db, task, limits=[]).limits == ()
    assert db.execute("SELECT limits FROM ticker.tasks").fetchone() == (None,)
    words = [words for (words,) in db.execute("SELECT words FROM ticker.events ORDER BY id")]
    assert [text for text in words if text.startswith("limits: ")][-1] == 'limits: ["a"] -> none'


NO_KEY: list[Any] = [5, True, b"a", "", " ", "a b", "a,b", "ä", "a\n", "x" * 201, "a*b", None]


@pytest.mark.parametrize("value", [5, 0, True, False, {}, {"a": 1}, {"a"}, ["a"] * 3, ["a", "a"], "a,a", *([one] for one in NO_KEY), ["a*"]], ids=repr)  # fmt: skip
def test_what_are_not_one_or_two_keys_is_refused(value: Any) -> None:
    refused(lambda: ticker.Wanted(function="poll", every="1m", limits=value).given(), "limits")


@pytest.mark.parametrize(
    ("field", "value"),
    [*(("key", value) for value in [*NO_KEY, "a**", "**", "x" * 200 + "*"]),
     *(("concurrency", value) for value in (0, -1, 1.5, True, "5", MOST_AT_ONCE + 1)),
     *(("rate", value) for value in (5, "", "5", "5/", "/1m", "0/1m", "-1/1m", "5/0", "5/0.5", "5/367d", "1.5/1m", "٣/1m", f"{MOST_PER_PERIOD + 1}/1m")),
     *(("burst", value) for value in (0, 301, "5", True))],
)  # fmt: skip
def test_what_is_not_a_limit_is_refused(field: str, value: Any) -> None:
    said = {"key": "a", "concurrency": None, "rate": "300/1m", field: value}
    key = said.pop("key")
    refused(lambda: ticker.limit(None, key, **said), field)  # type: ignore[arg-type]
    refused(lambda: wrappers.limit(key, **said), field)
    assert registry.limits() == {}


def test_a_limit_says_what_it_limits(db: Db) -> None:
    refused(lambda: ticker.limit(db, "a"), "concurrency")
    refused(lambda: wrappers.limit("a"), "concurrency")
    refused(lambda: ticker.limit(db, "a", concurrency=1, burst=1), "burst")
    refused(lambda: ticker.unlimit(db, "a b"), "key")


# -------------------------------------------------------------------------------------------------------- list_limits


def test_limits_are_listed_with_their_use_those_with_most_due_tasks_first(db: Db) -> None:
    for number in range(3):
        used(db, "b", *["a"] * (number == 0), name=f"task {number}")
    used(db, "free", name="unlimited")
    ticker.limit(db, "c*", concurrency=1)
    ticker.limit(db, "a", rate="10/1s", burst=4)
    ticker.limit(db, "b", concurrency=3)
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() + interval '1 h' WHERE n = 1")
    db.execute("UPDATE ticker.slots SET until = clock_timestamp() - interval '1 h' WHERE n = 2")
    db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z', allowed = 1 WHERE key = 'a'")
    assert ticker.list_limits(db) == [
        LimitStatus("b", "b", 3, None, None, None, 1, None, 3, None, None),
        LimitStatus("a", "a", None, 10, 1000, 4, 0, 3, 1, datetime(2100, 1, 1, tzinfo=UTC), 1),
        LimitStatus("c*", "c*", 1, None, None, None, 0, None, 0, None, None),
    ]
    assert [one.key for one in ticker.list_limits(db, limit=1)] == ["b"]


def test_a_key_without_a_limit_is_listed_while_it_is_held(db: Db) -> None:
    used(db, "a")
    assert ticker.list_limits(db) == []
    db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z'")
    assert [(one.key, one.limited_by) for one in ticker.list_limits(db)] == [("a", None)]


def test_a_hold_is_released_before_its_time(db: Db) -> None:
    used(db, "a")
    assert not ticker.release(db, "a") and not ticker.release(db, "unheard")
    db.execute("UPDATE ticker.limited_keys SET closed_until = '2100-01-01Z', allowed = 1, closed_step = 3")
    assert ticker.release(db, "a")
    [key] = ticker.list_limits(db)
    assert (key.closed_until, key.allowed) == (None, 1)
    assert not ticker.release(db, "a")
