"""Real servers for all tests: embedded ones, or those that DATABASE_URL and REDIS_URL name.

Each test gets a database of its own, already migrated, and an empty Redis database (the given one is emptied).
"""

import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import hypothesis
import psycopg
import pytest
from redis import Redis

from tests import plans, sentences
from tests.doubles import INSTALLATION
from tests.factories import create_trace
from tests.followed import ACTIVE, Channel, add, put
from tests.harness import Played
from tests.poolers import pooler, through
from tests.rights import PASSWORD, block
from tests.running import servers_or_given
from ticker import embedded, migrations, owners
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.embedded import Postgres, Servers, Valkey
from ticker.errors import TickerError
from ticker.model import REGISTERED
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings, psycopg_url
from wrappers.pipeline import registry

# Where PYTHONDONTWRITEBYTECODE is set, each of the thousands of processes would compile all that it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
hypothesis.settings.register_profile("patient", deadline=None)  # a loaded machine is no error
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-sentences", action="store_true", help="write the observed sentences to tests/sentences/*.toml"
    )


def pytest_configure(config: pytest.Config) -> None:
    sentences.rewriting = config.getoption("--rewrite-sentences")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Handles SIGINT as Python does. After `&`, a shell ignores it, and each process started here would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def signals_of_this_process() -> Iterator[None]:
    """RQ's SimpleWorker sets them, and leaves them so."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def functions_of_this_process() -> None:
    """A test may register functions with `@task`. Registrations of tasks in later tests do not store them."""
    REGISTERED.clear()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with servers_or_given() as running:
        yield running


@pytest.fixture(scope="session")
def template(servers: Servers) -> Iterator[str]:
    """The name of a migrated database, from which each test's own is copied."""
    name = f"ticker_test_{uuid4().hex[:12]}"
    admin(servers, f'CREATE DATABASE "{name}"')
    migrations.upgrade(of_database(servers.database_url, name))
    with connect(of_database(servers.database_url, name)) as connection:
        connection.execute("UPDATE ticker.installation SET id = %s", [INSTALLATION])
    yield name
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def new_database(servers: Servers) -> Iterator[Callable[[str], str]]:
    """Creates databases, which are empty unless `options` name a template. Returns their URLs."""
    with ExitStack() as made:

        def create(options: str = "") -> str:
            name = f"ticker_test_{uuid4().hex[:12]}"
            admin(servers, f'CREATE DATABASE "{name}" {options}')
            made.callback(admin, servers, f'DROP DATABASE "{name}" WITH (FORCE)')
            return of_database(servers.database_url, name)

        yield create


@pytest.fixture(scope="session")
def by_way(servers: Servers) -> Iterator[Callable[[str], str]]:
    """With TICKER_TEST_POOLER=1, tests reach their databases through PgBouncer, which pools transactions."""
    if not os.environ.get("TICKER_TEST_POOLER"):
        yield str
        return
    with pooler(servers.database_url) as folder:
        yield partial(through, folder)


@pytest.fixture
def database_url(servers: Servers, template: str, spare: list[str], by_way: Callable[[str], str]) -> Iterator[str]:
    """Emptied and used again where a test has only written rows: to copy a database takes 0.1 s, to empty it a tenth."""
    if not spare:
        spare.append(f"{template}_{uuid4().hex[:12]}")
        copy_of(servers, template, spare[-1])
    name = spare.pop()
    url = of_database(servers.database_url, name)
    with connect(url) as connection:
        before = structure(connection)
    yield by_way(url)
    if is_emptied(url, before):
        spare.append(name)
    else:
        admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def spare(servers: Servers, template: str) -> Iterator[list[str]]:
    """Names of databases that are as the template is."""
    names: list[str] = []
    yield names
    for name in names:
        admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def redis_url(servers: Servers, worker_id: str) -> str:
    """Parallel pytest processes each use a database of their own: n, n + 1, ..."""
    with Redis.from_url(servers.redis_url) as redis:
        first = int(redis.connection_pool.connection_kwargs.get("db", 0))
    number = first + int(worker_id.removeprefix("gw") if worker_id.startswith("gw") else 0)
    bare = re.sub(r"(?<=[?&])db=[0-9]+&?", "", servers.redis_url).rstrip("?&")
    url = f"{bare}{'&' if '?' in bare else '?'}db={number}"
    with Redis.from_url(url) as redis:
        redis.flushdb()
    return url


@pytest.fixture(scope="module")
def crowd(servers: Servers, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A database of 200,000 tasks and as many runs."""
    name = f"{template}_crowd"
    with psycopg.connect(copy_of(servers, template, name), autocommit=True) as db:
        plans.crowd(db)
        yield db
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def closed_port() -> Iterator[int]:
    """A port on which no process listens. It is bound, so that no other process takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def environ(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment as a user would set it, in this process and for the ones it starts."""
    for name in [name for name in os.environ if name.startswith("TICKER_") and not name.startswith("TICKER_POSTGRES")]:
        if name != "TICKER_REDIS_SERVER":
            monkeypatch.delenv(name)
    values = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


@pytest.fixture
def own_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Postgres, Valkey]]:
    """Servers that the test may take away."""
    with embedded.postgres() as postgres, embedded.valkey() as valkey:
        migrations.upgrade(postgres.url)
        monkeypatch.setenv("DATABASE_URL", postgres.url)
        monkeypatch.setenv("REDIS_URL", valkey.url)
        yield postgres, valkey


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return Settings(database_url=database_url, redis_url=redis_url)


@pytest.fixture
def db(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit, for looking and for editing by hand."""
    with connect(database_url) as connection:
        connection.execute("SET timezone TO 'UTC'")
        yield connection


@pytest.fixture
def channels(db: psycopg.Connection[Any]) -> None:
    """Owners 1, 2 and 3 with a task each, which follow their rows; and a task of somebody else's with the same id."""
    db.execute(
        "CREATE TABLE mail_channels (id bigint PRIMARY KEY, kind text, enabled boolean DEFAULT true,"
        " paused boolean DEFAULT false, note text DEFAULT '');"
        " INSERT INTO mail_channels (id, kind) SELECT g, 'channel' FROM generate_series(1, 3) g"
    )
    put(db, owners.triggers(Channel, active_when=ACTIVE))
    for id_ in ("1", "2", "3"):
        add(db, "mail_channels", id_)
    add(db, "phones", "2")


@pytest.fixture
def traced(environ: dict[str, str], db: psycopg.Connection[Any]) -> Callable[[str], list[Any]]:
    """A function that reads what the functions of `tests.sample_tasks` left in the table `trace`."""
    create_trace(db)
    query = "SELECT value FROM trace WHERE what = %s ORDER BY id"
    return lambda what: [value for (value,) in db.execute(query, [what])]


@pytest.fixture
def store(database_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database_url)
    yield store
    store.close()


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as connection:
        yield connection


@pytest.fixture
def queue(redis: Redis) -> RedisQueue:
    return RedisQueue(redis)


@pytest.fixture
def roles(servers: Any, db: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """Creates PostgreSQL roles as docs/operations/security.md does. Returns their names by the names in the document."""
    roles = {name: f"test_{name}_{uuid4().hex[:8]}" for name in ("ticker", "worker", "application", "page", "viewer")}
    for role in roles.values():
        admin(servers, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    for statement in filter(str.strip, block("sql").split(";")):
        rights, _, to = statement.partition(" TO ")
        db.execute(f"{rights} TO {', '.join(roles[name.strip()] for name in to.split(','))}")
    yield roles
    for role in roles.values():
        db.execute(f"DROP OWNED BY {role}")
        admin(servers, f"DROP ROLE {role}")


@pytest.fixture
def play(
    environ: dict[str, str], db: psycopg.Connection[Any], store: PostgresStore, queue: RedisQueue, redis: Redis
) -> Iterator[Played]:
    """A ticker and a worker that the test plays by hand; whatever asks for the time is told where the play stands."""
    played = Played(db, store, queue, redis)
    with played.clock():
        yield played


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[Any], Any]]:
    """`wrappers.task`, for the functions and declared limits of one test only."""
    monkeypatch.setattr(registry, "_functions", {})
    monkeypatch.setattr(registry, "_limits", {})
    return registry.task


CATALOGS = ("pg_namespace", "pg_class", "pg_attribute", "pg_constraint", "pg_index", "pg_proc", "pg_trigger", "pg_type",
            "pg_attrdef", "pg_db_role_setting", "pg_policy", "pg_rewrite", "pg_event_trigger")  # fmt: skip
TABLES = (
    "tasks", "runs", "tickers", "events", "notices", "templates", "functions", "limits", "limited_keys", "slots", "pauses", "minutes", "hours",
)  # fmt: skip

TRUNCATE = f"TRUNCATE {', '.join(f'ticker.{name}' for name in TABLES)} RESTART IDENTITY"
DELETE = "; ".join(
    [f"DELETE FROM ticker.{name}" for name in TABLES]
    + [f"SELECT setval('ticker.{name}_id_seq', 1, false)" for name in ("tasks", "runs", "events", "pauses")]
)
"""A tenth of the time of a TRUNCATE."""
SIZE = "SELECT pg_table_size('ticker.tasks') + pg_table_size('ticker.runs') + pg_table_size('ticker.events')"
MUCH = 400_000  # bytes, dead rows included


def structure(connection: psycopg.Connection[Any]) -> Any:
    """Changes with every CREATE, ALTER and DROP of this database: the rows of its catalogs, and who wrote them."""
    watched = (*CATALOGS, "ticker.ticker_version")
    sums = ", ".join(f"(SELECT row(count(*), sum(xmin::text::bigint)) FROM {table})" for table in watched)
    return connection.execute(f"SELECT {sums}").fetchone()  # type: ignore[arg-type]


def is_emptied(url: str, before: Any) -> bool:
    """Whether the database is as new again; not where the test changed more than rows, or broke the server."""
    try:
        with connect(url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if structure(connection) != before:
                return False
            connection.execute(TRUNCATE if connection.execute(SIZE).fetchone() > (MUCH,) else DELETE)
            return mark(connection)
    except (psycopg.Error, TickerError):
        return False


def of_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    parts = urlsplit(psycopg_url(url))
    return urlunsplit(parts._replace(path=f"/{quote(name)}"))


def copy_of(servers: Servers, template: str, name: str) -> str:
    """The URL of a new database that is as the template is: of the same installation, and marked as its own."""
    admin(servers, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    url = of_database(servers.database_url, name)
    with connect(url) as connection:
        mark(connection)
    return url


def mark(connection: psycopg.Connection[Any]) -> bool:
    """These tables belong here, as if they had been created here. Returns False where a test has deleted the mark."""
    marked = connection.execute(
        "UPDATE ticker.installation SET id = %s, environment = '', system_identifier = ticker.cluster_identifier(),"
        " marker_oid = tableoid, adopted_at = NULL, traced_until = NULL, taken_from = DEFAULT,"
        " counted_until = NULL, counted_twice_until = NULL,"
        " database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        [INSTALLATION],
    )
    return marked.rowcount == 1


def admin(servers: Servers, statement: str) -> None:
    with connect(psycopg_url(servers.database_url)) as connection:
        connection.execute(statement)
