"""The servers of the test kit, and the pytest plugin: nothing of the user's is touched, and nothing is imported too early."""

import json
import os
import re
import sys

import pytest
from redis import Redis

import ticker
from tests.documents.recipes import run, shown, write
from tests.refusals import refused
from tests.running import ROOT
from tests.sentences import sentence
from ticker import testing
from ticker.testing.queues import CLAIM, claimed

SERVER = re.compile(r"[^@' ]+[:/]\S+")  # never with a user or a password


def test_a_redis_database_with_keys_is_refused_and_left_alone(environ, redis):
    redis.set("mine", "1")
    assert refused(lambda: testing.servers().__enter__()) == sentence("testing.redis_with_keys", server=SERVER, keys=1)
    assert redis.keys() == [b"mine"]


def test_a_redis_database_belongs_to_one_session(redis_url, redis):
    with claimed(redis_url):
        assert refused(lambda: claimed(redis_url).__enter__()) == sentence("testing.redis_in_use", server=SERVER)
    assert redis.keys() == []


def kit(environ, schema="mine"):
    return testing.Kit(testing.Servers(environ["DATABASE_URL"], environ["REDIS_URL"], schema))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ("production", sentence("testing.tables_of_production", schema="'ticker'", database=SERVER)),
        ("", sentence("testing.tables_without_environment", schema="'ticker'", database=SERVER)),
    ],
)
def test_a_kit_refuses_tables_that_no_kit_created(environment, found, environ, db, redis):
    db.execute("UPDATE ticker.installation SET environment = %s", [environment])
    ticker.register(db, "mail.fetch", every="1m")
    assert refused(lambda: kit(environ, "ticker").__enter__()) == found
    db.execute("DELETE FROM ticker.installation")
    assert sentence("testing.tables_without_environment", schema="'ticker'", database=SERVER) == refused(
        lambda: kit(environ, "ticker").__enter__()
    )
    assert [task.name for task in ticker.list_tasks(db)] == ["mail.fetch"] and redis.keys() == []


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["", "staging"])
def test_a_kit_creates_its_tables_on_the_first_use_and_empties_them_on_the_next(
    environment, environ, db, redis, function, monkeypatch
):
    monkeypatch.setenv("TICKER_ENVIRONMENT", environment)
    function("mail.fetch")(lambda: None)
    db.execute("CREATE SCHEMA mine; CREATE TABLE mine.channels AS SELECT 1 AS id")
    for _ in range(2):
        with kit(environ) as first:
            assert ticker.list_tasks(first.db) == []
            ticker.register(first.db, "mail.fetch", every="1m")
            assert [str(run.outcome) for run in first.run_due(until="0s")] == ["succeeded"]
            redis.set("of the test", "1")
        assert redis.keys() == []
    assert db.execute("SELECT count(*) FROM mine.channels").fetchone() == (1,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("mine", sentence("testing.redis_with_keys", server=SERVER, keys=1)),
        (CLAIM, sentence("testing.redis_in_use", server=SERVER)),
    ],
    ids=["keys", "in use"],
)
@pytest.mark.parametrize("empties", [True, False])
def test_a_kit_refuses_a_redis_database_that_is_not_its_own(key, found, empties, environ, redis):
    redis.set(key, "1")
    schema = "mine" if empties else "ticker"
    own = testing.Servers(environ["DATABASE_URL"], environ["REDIS_URL"], schema, empties_tables=empties)
    assert refused(lambda: testing.Kit(own).__enter__()) == found
    assert redis.keys() == [key.encode()]


@pytest.mark.slow
def test_several_kits_of_a_session_share_its_servers(environ, redis):
    with testing.servers() as servers:
        for _ in range(2):
            with testing.Kit(servers), kit(environ):
                redis.set("of the test", "1")
            assert redis.exists(CLAIM)
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
    code = "import json, sys, pytest; before = {*sys.modules}; import rq_ticker_pytest; print(json.dumps([*{*sys.modules} - before]))"
    assert json.loads(run(ROOT, sys.executable, "-c", code)) == ["rq_ticker_pytest"]


FOREIGN = {
    "ticker/__init__.py": "PRICES = [1]",
    "ticker/testing.py": "",
    "test_prices.py": "import ticker\n\n\ndef test_prices():\n    assert ticker.PRICES == [1]\n",
}
OWN_FIXTURE = {"conftest.py": "import pytest\n\n\n@pytest.fixture\ndef ticker_kit():\n    return 5\n",
               "test_own.py": "def test_own(ticker_kit):\n    assert ticker_kit == 5\n"}  # fmt: skip
USES_OURS = {"test_ours.py": "def test_ours(ticker_kit):\n    pass\n"}


@pytest.mark.slow
def test_a_project_with_a_package_ticker_of_its_own_runs_its_tests(tmp_path):
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider")
    write(tmp_path, **FOREIGN, **OWN_FIXTURE)
    assert "2 passed" in run(tmp_path, *pytest_)
    write(tmp_path, **USES_OURS, **{"conftest.py": ""})
    assert f"'ticker.testing' ({tmp_path}/ticker/testing.py)" in run(tmp_path, *pytest_, "test_ours.py", expected=1)


@pytest.mark.slow
def test_the_tests_of_the_guide_pass_on_given_servers(tmp_path, environ, db):
    write(tmp_path, **{"myapp/__init__.py": "", **shown(ROOT / "docs/guides/frozen-clock.md")})
    printed = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider")
    assert "5 passed" in printed
    assert db.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ticker_testing%'").fetchone() == (0,)
    with Redis.from_url(environ["REDIS_URL"]) as redis:
        assert redis.keys() == []
