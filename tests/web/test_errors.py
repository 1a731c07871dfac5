"""What is told of an error, and what is not; and that one which is over costs no further request."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from tests.sentences import sentence
from tests.web.asking import ALL, API, BEARER, TOKEN, problem
from tests.web.conftest import Serve
from ticker import ConfigurationError
from ticker.db.connections import Connection, Pool
from ticker.read import health
from ticker.tasks import filters
from ticker.tasks.fields import Task
from ticker.web import application
from ticker.web.access import HEADERS

Db = psycopg.Connection[Any]


def test_an_error_that_nobody_expected_is_logged_and_told_without_its_words(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("the word of the day")

    monkeypatch.setattr(filters, "query", breaks)
    for address in (f"{API}/tasks", "/tasks"):
        caplog.clear()
        with caplog.at_level(logging.ERROR, "ticker.web"):
            answer = client.get(address)
        assert answer.status_code == 500 and "the word of the day" not in answer.text
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        [record] = caplog.records
        assert record.exc_info and "RuntimeError" in record.getMessage()


def test_a_database_that_is_away_is_told_in_one_sentence_without_the_password(
    environ: dict[str, str], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve(DATABASE_URL="postgresql://somebody:s3cr3t-word@127.0.0.1:1/nothing", TICKER_WEB_TOKEN=TOKEN)
    for one in ALL:
        answer = one.ask(client, headers=BEARER)
        assert "s3cr3t-word" not in answer.text + caplog.text and TOKEN not in answer.text + caplog.text
        if one.operation.name not in ("description", "validate_schedule"):
            assert "does not answer" in problem(answer, 503)["detail"]


def test_a_setting_that_is_missing_is_told_when_the_application_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(ConfigurationError, check=sentence("errors.is_not_set", setting="DATABASE_URL").within):
        application()


@pytest.mark.parametrize("address", ["/", "/processes", f"{API}/stats"])
def test_no_connection_is_kept_while_another_server_is_waited_for(
    address: str, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent, seen = [0], list[int]()
    connection, look = Pool.connection, health.look

    @contextmanager
    def counted(pool: Pool) -> Iterator[Connection]:
        with connection(pool) as one:
            lent[0] += 1
            yield one
            lent[0] -= 1

    def looked(*given: Any, **named: Any) -> health.Health:
        seen.append(lent[0])
        return look(*given, **named)

    monkeypatch.setattr(Pool, "connection", counted)
    monkeypatch.setattr(health, "look", looked)
    assert client.get(address).status_code == 200
    assert seen == [0]


@pytest.mark.slow
def test_a_connection_that_the_server_has_ended_meanwhile_costs_no_request(client: TestClient, task: Task, db: Db) -> None:  # fmt: skip
    assert client.get(f"{API}/tasks/1").status_code == 200
    ended = db.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'ticker-web'"
    ).fetchall()
    assert ended == [(True,)]
    assert client.get(f"{API}/tasks/1").status_code == 200
