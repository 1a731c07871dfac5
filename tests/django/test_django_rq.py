"""django-rq: its workers run our tasks with the settings of Django, and errors name these settings."""

import re
import sys

import pytest

import ticker
from tests.documents.recipes import RECIPES, needs, run
from tests.sentences import sentence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each command starts an interpreter with Django


@pytest.fixture
def with_django_rq(project, environ, monkeypatch):
    """The project with the settings that the recipe shows for django-rq."""
    needs("django_rq")
    recipe = (RECIPES / "django.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^# project/settings\.py, with django-rq\n(.*?)^```", recipe, flags=re.DOTALL | re.MULTILINE)
    settings = project / "project" / "settings.py"
    own = re.sub(r"^TICKER_REDIS_URL = .*\n|^INSTALLED_APPS \+= .*\n", "", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(own + shown.replace("redis://localhost:6379/0", environ["REDIS_URL"]))
    return settings


@pytest.mark.parametrize("options", [[], ["--worker-class", "rq.Worker"]], ids=["ours", "stock"])
def test_its_workers_run_the_tasks(with_django_rq, options, db, manage):
    manage("migrate")
    db.execute("INSERT INTO myapp_mailchannel (host, enabled) VALUES ('mail.example.org', true)")
    manage("ticker", "tick")
    manage("rqworker", "--burst", *options, "polling")
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.cursor, str(task.last_outcome)) == ("myapp_mailchannel:1", 3, "succeeded")
    assert db.execute("SELECT count(*) FROM ticker.functions").fetchone() == (0 if options else 1,)


PROJECT = """
import sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["ticker.django"], DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3"}}, **%s)
import django
django.setup()
"""
WATCHED = {"SENTINELS": [("a", 1)], "MASTER_NAME": "m"}
URLS = [
    ({"polling": {"URL": "redis://a/1"}, "default": {"URL": "redis://b/1"}}, "redis://a/1"),
    ({"mail": {"URL": "redis://c"}, "default": {"URL": "redis://b?a=1", "DB": 2}}, "redis://b?a=1&db=2"),
    ({"mail": {"HOST": "h", "PORT": 1, "PASSWORD": "p@"}}, "redis://:p%40@h:1?db=0"),
    ({"mail": {"HOST": "h", "USERNAME": "u", "SSL": True, "DB": 3}}, "rediss://u:@h:6379?db=3"),
    ({"mail": {"UNIX_SOCKET_PATH": "/run/a", "DB": 1}}, "unix:///run/a?db=1"),
    ({"mail": {"SENTINELS": [("a", 1), ("b", 2)], "MASTER_NAME": "m", "DB": 3}}, "redis+sentinel://a:1,b:2/m/3"),
    (
        {"mail": WATCHED | {"PASSWORD": "p", "SENTINEL_KWARGS": {"password": "@"}}},
        "redis+sentinel://:p@a:1/m/0?sentinel_password=%40",
    ),
    (
        {"mail": WATCHED | {"DB": 1, "PASSWORD": "q", "CONNECTION_KWARGS": {"ssl": True, "password": "p", "db": 2}}},
        "rediss+sentinel://:p@a:1/m/2?sentinel_ssl=no",
    ),
    (
        {"mail": WATCHED | {"CONNECTION_KWARGS": {"ssl": True}, "SENTINEL_KWARGS": {"ssl": True}}},
        "rediss+sentinel://a:1/m/0",
    ),
    ({"mail": WATCHED | {"SENTINEL_KWARGS": {"ssl": True}}}, "redis+sentinel://a:1/m/0?sentinel_ssl=yes"),
    ({"mail": WATCHED | {"SSL": True}}, "rediss+sentinel://a:1/m/0"),
    ({}, ""),
]


def test_redis_is_that_of_its_queues(project):
    script = PROJECT % {} + (
        "from ticker.django.apps import redis_url\nfor settings.RQ_QUEUES in %s: print(redis_url())"
    )
    assert run(project, sys.executable, "-c", script % [queues for queues, _ in URLS]).split("\n")[:-1] == [
        url for _, url in URLS
    ]


def test_its_environment_is_that_of_its_start(project):
    """A child, such as that of runserver, may read these variables in its settings."""
    given = {"TICKER_REDIS_URL": "redis://a", "TICKER_DATABASE_URL": "postgresql://b"}
    script = (
        "import os\nbefore = dict(os.environ)\n"
        + PROJECT % given
        + (
            "from ticker.settings import current\n"
            "print(dict(os.environ) == before, current().redis_url, current().database_url)"
        )
    )
    assert run(project, sys.executable, "-c", script) == "True redis://a postgresql://b\n"


def test_a_worker_that_was_not_started_by_django_keeps_its_own_database(project):
    script = "import ticker.django.setup\nfrom ticker.settings import current\nprint(current().database_url)"
    own = "postgresql://own/d"
    assert run(project, sys.executable, "-c", script, DATABASE_URL=own).strip() == own
    assert "dbname=" in run(project, sys.executable, "-c", script)


@pytest.mark.parametrize(
    ("given", "setting"),
    [({}, "TICKER_DATABASE_URL"), ({"TICKER_DATABASE_URL": "postgresql://u@h/d"}, "TICKER_REDIS_URL")],
)
def test_a_missing_setting_is_named_as_in_django(given, setting, project):
    script = PROJECT % given + (
        "from ticker.settings import current\nfrom ticker.errors import ConfigurationError\n"
        "try: current().require_database(), current().require_redis()\nexcept ConfigurationError as error: print(error)"
    )
    assert sentence("errors.is_not_set", setting=setting).begins(run(project, sys.executable, "-c", script))


def test_a_server_that_does_not_answer_is_named_by_its_setting(with_django_rq, manage, tmp_path):
    nowhere = f"unix://{tmp_path}/nothing"
    with_django_rq.write_text(f"{with_django_rq.read_text()}\nRQ_QUEUES = {{'polling': {{'URL': {nowhere!r}}}}}\n")
    manage("migrate")
    assert "Redis (RQ_QUEUES)" in manage("ticker", "tick", expected=78)
    with_django_rq.write_text(f"{with_django_rq.read_text()}\nDATABASES['default']['HOST'] = {str(tmp_path)!r}\n")
    told = manage("ticker", "list", expected=78)
    assert sentence("errors.database_unavailable", setting="DATABASES").within(told)
