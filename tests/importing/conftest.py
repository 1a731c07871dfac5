"""django-celery-beat, in an environment of its own: its `crontab` and rq-scheduler's install the same module."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from tests.conftest import admin, copy_of
from ticker.db.connections import Connection, connect
from ticker.embedded import Servers
from ticker.engine import jobs

PACKAGES = ("django-celery-beat>=2.9", "celery[redis]>=5.6", "psycopg[binary]>=3.2")
PROGRAM = Path(__file__).with_name("beat.py")


@pytest.fixture
def served(redis: Redis) -> None:
    """A ticker worker listens to the queues of the entries."""
    listens(redis, "polling,mail", ours=True)


def listens(redis: Redis, queues: str, *, ours: bool) -> None:
    redis.sadd("rq:workers", "rq:worker:w")
    redis.hset("rq:worker:w", mapping={"queues": queues, **({jobs.OURS: 1} if ours else {})})


@pytest.fixture(scope="session")
def beat_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beat") / "venv"
    python = folder / "bin" / "python"
    for command in (["venv", "--quiet", folder], ["pip", "install", "--quiet", "--python", python, *PACKAGES]):
        subprocess.run(["uv", *command], check=True)
    return python


@pytest.fixture(scope="session")
def beat_template(beat_python: Path, servers: Servers, template: str) -> Iterator[str]:
    """The name of a database that also has beat's tables, with 20 entries."""
    name = f"{template}_beat"
    environ = os.environ | {"DATABASE_URL": copy_of(servers, template, name), "REDIS_URL": ""}
    for command in ("migrate", "entries"):
        subprocess.run([beat_python, PROGRAM, command], check=True, env=environ)
    yield name
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def beat_db(
    servers: Servers, beat_template: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connection]:
    """A database with these entries, which DATABASE_URL names, and a connection in autocommit."""
    name = f"{beat_template}_{uuid4().hex[:12]}"
    url = copy_of(servers, beat_template, name)
    monkeypatch.setenv("DATABASE_URL", url)
    with connect(url) as connection:
        connection.execute("SET search_path TO public")
        yield connection
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')
