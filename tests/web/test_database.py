"""Many requests at once, and the connections that they share."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.bad_input.rows import nested
from tests.running import until
from tests.sentences import sentence
from tests.web.asking import API
from ticker.db import connections
from ticker.db.connections import Pool
from ticker.errors import DatabaseUnavailable, Unavailable
from ticker.read import health
from ticker.read.health import CircuitBreaker
from ticker.settings import Settings
from ticker.tasks.fields import Task
from ticker.web.site import Database

Db = psycopg.Connection[Any]


@pytest.mark.slow
def test_of_many_who_make_the_same_task_at_once_all_get_the_one_that_there_is(client: TestClient, db: Db) -> None:
    said = {"function": "poll", "owner": "a:1", "every": "1m"}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post(f"{API}/tasks", json=said), range(32)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert {answer.json()["id"] for answer in answers} == {ticker.list_tasks(db)[0].id}
    assert len(ticker.list_tasks(db)) == 1


def test_many_threads_share_a_few_connections(database_url: str) -> None:
    database = Database(Settings(database_url=database_url), CircuitBreaker())

    def ask(number: int) -> Any:
        with database.reading() as db:
            return db.execute("SELECT %s::int, pg_backend_pid()", [number]).fetchone()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(400)))
    database.close()
    assert [number for number, _ in found] == list(range(400))
    assert len({pid for _, pid in found}) <= 8


def test_a_spare_connection_that_another_thread_has_just_taken_costs_a_new_one(database_url: str) -> None:
    class Taken(list[Any]):
        """One is there when it is looked for, and gone when it is taken."""

        def __bool__(self) -> bool:
            return True

    pool = Pool(database_url)
    pool._spare = Taken()
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.slow
def test_a_spare_connection_that_the_server_has_ended_is_not_lent(database_url: str, db: Db) -> None:
    pool = Pool(database_url)
    with pool.connection() as connection:
        connection.execute("SET idle_session_timeout TO '10ms'")
        pid = connection.info.backend_pid
    until(lambda: not db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone(), "its end")
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    pool.close()


def test_what_fails_within_a_change_leaves_nothing_of_it(database_url: str, db: Db) -> None:
    database = Database(Settings(database_url=database_url), CircuitBreaker())
    for _ in range(2):  # nor a connection that is of no use
        try:
            with database.writing() as connection:
                connection.execute("INSERT INTO ticker.functions VALUES ('x', 1, clock_timestamp())")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    assert db.execute("SELECT count(*) FROM ticker.functions").fetchone() == (0,)
    database.close()


@pytest.mark.slow
def test_a_server_that_leaves_a_statement_without_an_answer_is_not_asked_again_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT", 0.2)
    monkeypatch.setattr(health, "LONG", 0.1)
    database = Database(Settings(database_url=database_url), CircuitBreaker())
    with (
        pytest.raises(DatabaseUnavailable, check=sentence("errors.no_answer_to_a_statement").within),
        database.reading() as db,
    ):
        db.execute("SELECT pg_sleep(5)")
    with (
        pytest.raises(
            Unavailable,
            check=sentence("errors.no_answer_asked", ago=re.compile(r"[\d.]+ s"), span=re.compile(r".*")).within,
        ),
        database.reading(),
    ):
        pass
    database.close()


@pytest.mark.slow
def test_a_server_that_ends_a_statement_itself_is_asked_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LONG", 0.1)
    database = Database(Settings(database_url=database_url), CircuitBreaker())
    with (
        pytest.raises(DatabaseUnavailable, match=r"stopped .*statement timeout"),
        database.reading() as db,
    ):
        db.execute("SET statement_timeout = 200")
        db.execute("SELECT pg_sleep(5)")
    with database.reading() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    database.close()


@pytest.mark.slow
def test_arguments_as_deep_as_they_may_be_are_taken_and_told(client: TestClient, task: Task) -> None:
    value = nested(249)
    assert client.patch(f"{API}/tasks/1", json={"kwargs": value}).json()["kwargs"] == value
    assert client.get(f"{API}/tasks").json()["tasks"][0]["kwargs"] == value
