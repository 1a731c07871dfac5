"""`ticker.testing.servers` and the pytest plugin: nothing of the user's is touched, and nothing is imported too early."""

import json
import os
import sys

import pytest
from redis import Redis

from tests.documents.recipes import run, shown, write
from tests.refusals import refused
from tests.running import ROOT
from tests.sentences import sentence
from ticker import testing
from ticker.testing.queues import claimed


def test_a_redis_database_with_keys_is_refused_and_left_alone(environ, redis):
    redis.set("mine", "1")
    assert refused(lambda: testing.servers().__enter__()) == sentence("testing.redis_with_keys", keys=1)
    assert redis.keys() == [b"mine"]


def test_a_redis_database_belongs_to_one_session(redis_url, redis):
    with claimed(redis_url):
        assert refused(lambda: claimed(redis_url).__enter__()) == sentence("testing.redis_in_use")
    assert redis.keys() == []


@pytest.mark.slow
def test_the_tables_are_in_a_schema_that_is_dropped_at_the_end(environ, db):
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ticker%' ORDER BY 1"
    with testing.servers() as servers:
        assert [name for (name,) in db.execute(schemas)] == ["ticker", servers.schema]
        with testing.Kit(servers) as kit:
            assert os.environ["TICKER_SCHEMA"] == servers.schema
            testing_tasks = f"INSERT INTO {servers.schema}.tickers (id, host, pid, started_at) VALUES (gen_random_uuid(), '', 1, now())"
            kit.db.execute(testing_tasks)
        with testing.Kit(servers) as kit:
            assert kit.db.execute(f"SELECT count(*) FROM {servers.schema}.tickers").fetchone() == (0,)
    assert "TICKER_SCHEMA" not in os.environ
    assert [name for (name,) in db.execute(schemas)] == ["ticker"]


@pytest.mark.slow
def test_the_plugin_imports_nothing_before_a_fixture_is_used():
    code = "import json, sys, ticker.testing.plugin; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run(ROOT, sys.executable, "-c", code)))
    ours = {name for name in loaded if name.partition(".")[0] in {"ticker", "wrappers"}}
    assert ours == {"ticker", "ticker.errors", "ticker.testing", "ticker.testing.plugin"}
    assert not loaded & {"psycopg", "redis", "rq", "sqlalchemy", "freezegun"}


@pytest.mark.slow
def test_the_tests_of_the_guide_pass_on_given_servers(tmp_path, environ, db):
    write(tmp_path, **{"myapp/__init__.py": "", **shown(ROOT / "docs/guides/frozen-clock.md")})
    printed = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider")
    assert "5 passed" in printed
    assert db.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ticker_testing%'").fetchone() == (0,)
    with Redis.from_url(environ["REDIS_URL"]) as redis:
        assert redis.keys() == []
