"""Pauses of many tasks: one row that says who paused what, for how long, and who ended it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import ticker
from tests.bad_input.rows import NO_NAME, NO_PROSE, NO_TIME, Silent, each, refused
from tests.drivers.doors import DOORS
from tests.harness import events
from ticker import clock
from ticker.db.connections import connect

Db = psycopg.Connection[Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
SCOPES: dict[str, str] = {
    "group": "mail", "function": "poll", "queue": "slow", "owner_type": "channel", "limit": "imap.*",
}  # fmt: skip
ALL: dict[str, str] = {}

pytestmark = pytest.mark.usefixtures("environ", "at_noon")


@pytest.fixture
def at_noon() -> Any:
    with clock.use(lambda: NOW):
        yield


def at(instant: datetime, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with clock.use(lambda: instant):
        return operation(*args, **kwargs)


def rows(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT scope, value, resumed_at IS NULL FROM ticker.pauses ORDER BY id").fetchall()


# ------------------------------------------------------------------------------------------------------------ paused


@pytest.mark.parametrize("scope", [ALL, *({name: value} for name, value in SCOPES.items())], ids=str)
def test_a_pause_is_one_row_that_says_who_why_since_when_and_until_when(scope: dict[str, str], db: Db) -> None:
    pause = ticker.pause_all(db, **scope, by="ann", reason="the host moves", until=NOW + MINUTE)
    name, value = next(iter(scope.items()), ("all", ""))
    assert (pause.scope, pause.value, pause.by, pause.reason) == (name, value, "ann", "the host moves")
    assert (pause.paused_at, pause.until, pause.resumed_at) == (NOW, NOW + MINUTE, None)
    assert (pause.in_force, pause.budget, pause.waiting) == (True, None, 0)
    assert ticker.list_pauses(db) == [pause] and rows(db) == [(name, value, True)]


def test_a_pause_changes_no_task(db: Db) -> None:
    ticker.register(db, "poll", every="1m")
    before = db.execute("TABLE ticker.tasks").fetchall()
    ticker.pause_all(db)
    assert db.execute("TABLE ticker.tasks").fetchall() == before


def test_pauses_of_different_scopes_are_in_force_next_to_each_other(db: Db) -> None:
    for name, value in SCOPES.items():
        ticker.pause_all(db, **{name: value})
    ticker.pause_all(db, group="other")
    ticker.pause_all(db)
    assert [(pause.scope, pause.value) for pause in ticker.list_pauses(db)] == [
        *SCOPES.items(),
        ("group", "other"),
        ("all", ""),
    ]


def test_a_pause_that_is_in_force_gets_the_new_reason_and_end_and_keeps_its_beginning(db: Db) -> None:
    first = ticker.pause_all(db, group="mail", by="ann", reason="a", until=NOW + MINUTE)
    second = at(NOW + SECOND, ticker.pause_all, db, group="mail", by="ann", reason="b")
    assert second == replace(first, reason="b", until=None)
    assert len(rows(db)) == 1


def test_a_pause_that_someone_else_takes_over_begins_with_them(db: Db) -> None:
    first = ticker.pause_all(db, group="mail", by="ann")
    second = at(NOW + SECOND, ticker.pause_all, db, group="mail", by="bob")
    assert second == replace(first, by="bob", paused_at=NOW + SECOND)


def test_a_pause_whose_time_has_passed_begins_anew(db: Db) -> None:
    ticker.pause_all(db, until=NOW + MINUTE)
    later = NOW + 2 * MINUTE
    pause = at(later, ticker.pause_all, db)
    assert (pause.paused_at, pause.until, pause.in_force) == (later, None, True)


def test_a_pause_after_a_resumed_one_is_another_row(db: Db) -> None:
    first = ticker.pause_all(db)
    ticker.resume_all(db)
    second = ticker.pause_all(db)
    assert (first.id != second.id, rows(db)) == (True, [("all", "", False), ("all", "", True)])


def test_a_pause_joins_the_transaction_of_its_caller(db: Db, database_url: str) -> None:
    with connect(database_url) as other, db.transaction(force_rollback=True):
        ticker.pause_all(db)
        assert rows(other) == []
    assert rows(db) == []


# ----------------------------------------------------------------------------------------------------------- resumed


@pytest.mark.parametrize("scope", [ALL, *({name: value} for name, value in SCOPES.items())], ids=str)
def test_the_end_of_a_pause_says_when_and_by_whom(scope: dict[str, str], db: Db) -> None:
    ticker.pause_all(db, **scope, by="ann")
    resumed = at(NOW + MINUTE, ticker.resume_all, db, **scope, by="bob")
    assert (resumed.resumed_at, resumed.resumed_by, resumed.in_force) == (NOW + MINUTE, "bob", False)
    assert ticker.resume_all(db, **scope) is None


@pytest.mark.parametrize("scope", [ALL, {"group": "news"}, {"queue": "mail"}, {"limit": "imap.a"}])
def test_only_the_pause_with_the_same_scope_is_ended(scope: dict[str, str], db: Db) -> None:
    ticker.pause_all(db, group="mail")
    ticker.pause_all(db, limit="imap.*")
    assert ticker.resume_all(db, **scope) is None
    assert [pause.in_force for pause in ticker.list_pauses(db)] == [True, True]


def test_a_pause_whose_time_has_passed_is_not_ended_again(db: Db) -> None:
    ticker.pause_all(db, until=NOW + MINUTE)
    assert at(NOW + MINUTE, ticker.resume_all, db) is None


def test_a_resumed_pause_tells_how_many_tasks_wait_for_their_turn(db: Db) -> None:
    pause = ticker.pause_all(db)
    for name in "ab":
        task = ticker.register(db, "poll", name=name, every="1m")
        db.execute("UPDATE ticker.tasks SET pause_id = %s WHERE id = %s", [pause.id, task.id])
    assert ticker.resume_all(db).waiting == 2
    assert [one.waiting for one in ticker.list_pauses(db)] == [2]


# ------------------------------------------------------------------------------------------------------------- events


def test_each_pause_and_each_end_is_an_event_with_its_author_and_its_words(db: Db) -> None:
    ticker.pause_all(db, group="mail", by="ann", reason="the host moves")
    ticker.resume_all(db, group="mail", by="bob")
    ticker.resume_all(db, group="mail", by="bob")
    words = "tasks of the group mail: the host moves"
    assert events(db, "task_id, what, by, words") == [(0, "paused", "ann", words), (0, "resumed", "bob", words)]


def test_the_author_is_that_of_the_transaction_or_the_user_of_the_database(db: Db) -> None:
    ticker.pause_all(db, group="mail")
    with db.transaction():
        db.execute("SELECT set_config('ticker.by', 'deploy', true)")
        ticker.pause_all(db)
        ticker.resume_all(db)
    assert [by for (by,) in events(db, "by")] == [db.info.user, "deploy", "deploy"]
    assert [pause.by for pause in ticker.list_pauses(db)] == [db.info.user]


# ----------------------------------------------------------------------------------------- a task leaves its pause


def wait_for_a_pause(db: Db, scope: str) -> None:
    """Pauses the tasks of a scope. All tasks wait for the pause."""
    pause = ticker.pause_all(db, **{scope: {"queue": "slow", "limit": "imap.*"}.get(scope, SCOPES[scope])})
    db.execute("UPDATE ticker.tasks SET pause_id = %s", [pause.id])


@pytest.mark.parametrize(
    ("scope", "change"),
    [
        ("function", {"function": "fetch"}), ("queue", {"queue": "polling"}), ("group", {"group": "news"}),
        ("limit", {"limits": ["smtp"]}), ("limit", {"limits": []}),
    ],
    ids=str,
)  # fmt: skip
def test_an_edit_that_may_take_the_task_out_of_its_pause_makes_it_wait_no_longer(
    scope: str, change: dict[str, Any], db: Db
) -> None:
    task = ticker.register(db, "poll", every="1m", group="mail", queue="slow", limits=["imap.a"])
    wait_for_a_pause(db, scope)
    ticker.edit(db, task, **change)
    assert db.execute("SELECT pause_id FROM ticker.tasks").fetchone() == (None,)


def test_an_edit_of_what_still_waits_for_a_pause_that_is_over_leaves_it_waiting(db: Db) -> None:
    task = ticker.register(db, "poll", every="1m", group="mail")
    wait_for_a_pause(db, "group")
    ticker.resume_all(db, group="mail")
    ticker.edit(db, task, group="news")
    assert db.execute("SELECT pause_id IS NULL FROM ticker.tasks").fetchone() == (False,)


@pytest.mark.parametrize(
    "change", [{"every": "2m"}, {"kwargs": {"a": 1}}, {"queue": "slow"}, {"enabled": False}], ids=str
)
def test_any_other_edit_leaves_it_waiting(change: dict[str, Any], db: Db) -> None:
    task = ticker.register(db, "poll", every="1m", group="mail", queue="slow")
    wait_for_a_pause(db, "group")
    ticker.edit(db, task, **change)
    assert db.execute("SELECT pause_id IS NULL FROM ticker.tasks").fetchone() == (False,)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.slow
@pytest.mark.parametrize("operation", [ticker.pause_all, ticker.resume_all])
@pytest.mark.parametrize(("field", "value"), each(*((field, NO_NAME) for field in SCOPES), ("by", NO_NAME)))
def test_what_names_no_tasks_or_nobody_is_refused(operation: Callable[..., Any], field: str, value: Any) -> None:
    refused(lambda: operation(Silent(), **{field: value}), field)


@pytest.mark.parametrize(("field", "value"), each(("reason", NO_PROSE), ("until", NO_TIME)))
def test_a_reason_or_an_end_that_is_none_is_refused(field: str, value: Any) -> None:
    refused(lambda: ticker.pause_all(Silent(), **{field: value}), field)


@pytest.mark.parametrize("operation", [ticker.pause_all, ticker.resume_all])
def test_two_scopes_at_once_are_refused(operation: Callable[..., Any]) -> None:
    refused(lambda: operation(Silent(), group="mail", queue="slow"), "pause")


@pytest.mark.parametrize("until", [NOW - MINUTE, NOW])
def test_an_end_that_has_passed_is_refused_and_nothing_is_written(until: datetime, db: Db) -> None:
    refused(lambda: ticker.pause_all(db, until=until), "until")
    assert (rows(db), events(db, "what")) == ([], [])


# ------------------------------------------------------------------------------------------------------- every driver


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "asyncpg" else pytest.mark.slow) for name in DOORS]
)
def test_every_driver_pauses_lists_and_resumes(name: str, db: Db, database_url: str) -> None:
    door = DOORS[name](database_url)
    until = datetime.now(UTC) + timedelta(hours=1)
    pause = door("pause_all", limit="imap.*", by="ann", reason="50% off", until=until)
    assert door("list_pauses") == [pause] and (pause.until, pause.until.tzinfo) == (until, UTC)
    resumed = door("resume_all", limit="imap.*")
    assert (resumed.id, resumed.in_force) == (pause.id, False)
    assert door("resume_all") is None
