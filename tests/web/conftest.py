"""Fixtures of all tests of the page and the HTTP API: the real application, on the servers of `environ`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.web.asking import HERE, PREPARED, TOKEN
from ticker.tasks.fields import Task
from ticker.web import application

Db = psycopg.Connection[Any]
Serve = Callable[..., TestClient]


@pytest.fixture
def serve(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Makes an application with these settings, open to this host unless they name a token, and what asks it."""
    with ExitStack() as stack:

        def made(app: Any = None, **variables: str) -> TestClient:
            access = {"TICKER_WEB_NO_TOKEN": "off" if "TICKER_WEB_TOKEN" in variables else "on"}
            for name, value in (access | variables).items():
                monkeypatch.setenv(name, value)
            return stack.enter_context(TestClient(app or application(), base_url=HERE, client=("127.0.0.1", 50_000)))

        yield made


@pytest.fixture
def client(serve: Serve) -> TestClient:
    """On this host, without a token."""
    return serve()


@pytest.fixture
def with_token(serve: Serve) -> TestClient:
    """Opened by TOKEN, which each test shows itself."""
    return serve(TICKER_WEB_TOKEN=TOKEN)


@pytest.fixture
def task(environ: dict[str, str], db: Db) -> Task:
    """`mail.fetch` of mail_channels:5, each minute, with one run planned: both have the id 1. A limit is declared as well."""
    ticker.limit(db, "imap.gmail.com", concurrency=1)
    db.execute(PREPARED)
    found = ticker.register(db, "mail.fetch", owner="mail_channels:5", every="1m", kwargs={"channel_id": 5})
    ticker.run_now(db, found)
    return found
