"""What the environment may say, what it says by default, and the one sentence for what cannot be taken."""

import re
from dataclasses import fields

import pytest

from tests.refusals import SECRET, not_startable
from tests.sentences import sentence
from ticker.db.sql import statements
from ticker.errors import BadInput, ConfigurationError
from ticker.queue import inspect
from ticker.schedules.duration import HOUR, SECOND
from ticker.settings import Settings, from_environment, psycopg_url, schema_name

SECONDS_OF_366_DAYS = 31_622_400


def refused(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as error:
        from_environment(environ)
    return str(error.value)


# ------------------------------------------------------------------------------------------------------ every variable


def test_an_empty_environment_gives_the_defaults():
    assert from_environment({}) == Settings(
        database_url="", redis_url="", schema="ticker", tick_ms=30_000, batch=1000,
        result_ttl=0, failure_ttl=3600, hard_limit="auto", tasks=(),
    )  # fmt: skip
    assert from_environment({}) == Settings()


def test_every_setting_has_its_variable():
    environ = {
        "DATABASE_URL": "postgres://localhost/app", "REDIS_URL": "redis://localhost", "TICKER_SCHEMA": "Jobs_2",
        "TICKER_TICK": "10s", "TICKER_BATCH": "3000", "TICKER_RESULT_TTL": "60",
        "TICKER_QUEUE_DEPTH": "polling=10000, reports=5",
        "TICKER_FAILURE_TTL": "86400", "TICKER_HARD_LIMIT": "watchdog", "TICKER_TASKS": " app.polls, ,app.reports,",
        "TICKER_FUNCTIONS": "app.jobs,app.daily:poll",
        "TICKER_SIGNING_KEY": "a key of enough length",
        "TICKER_WAKE": "on", "TICKER_OUTPUT": "pass", "TICKER_LOG": "json",
        "TICKER_KEEP_SUCCESSES": "7d", "TICKER_KEEP_FAILURES": "8d",
        "TICKER_NOTIFY": "log, mail,log", "TICKER_WEBHOOK_URL": "https://h/p", "TICKER_WEBHOOK_KEY": "another key of length",
        "TICKER_HEARTBEAT_URL": "https://h/beat", "TICKER_SMTP_URL": "smtp://u:p@h:25", "TICKER_MAIL_FROM": "a@x.org", "TICKER_MAIL_TO": "b@x.org, c@x.org",
        "TICKER_WEB_TOKEN": "a third key of length", "TICKER_WEB_NO_TOKEN": "on", "TICKER_WEB_READ_ONLY": "on", "TICKER_HIDE_ARGS": "on",
        "TICKER_ENVIRONMENT": "production", "TICKER_LISTEN_URL": "postgres://direct/app", "TICKER_PREPARED_STATEMENTS": "on",
        "TICKER_STRICT_OWNERS": "on", "TICKER_OTEL": "on",
        "TICKER_WAITING_JOBS": "4", "TICKER_NOTIFY_BY_CAUSE": "mail,webhook", "TICKER_PAGE_URL": "https://h/page",
    }  # fmt: skip
    found = from_environment(environ)
    assert found == Settings(
        "postgres://localhost/app", "redis://localhost", "Jobs_2", 10_000, 3000, {"polling": 10_000, "reports": 5}, 60, 86_400, "watchdog",
        ("app.polls", "app.reports"), ("app.jobs", "app.daily:poll"), ("a key of enough length",), True, "pass", "json",
        604_800_000, 691_200_000, ("log", "mail"), "https://h/p", ("another key of length",), "https://h/beat", "smtp://u:p@h:25",
        "a@x.org", ("b@x.org", "c@x.org"), ("a third key of length",), True, True, True, "production",
        "postgres://direct/app", "on", True, 4, True, ("mail", "webhook"), "https://h/page",
    )  # fmt: skip
    assert len(environ) == len(fields(Settings))
    assert not any(getattr(found, field.name) in (field.default, {}) for field in fields(Settings))


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("TICKER_TICK", "0.1", "tick_ms", SECOND // 10), ("TICKER_TICK", "PT1H", "tick_ms", HOUR),
        ("TICKER_BATCH", "1", "batch", 1), ("TICKER_BATCH", "10000", "batch", 10_000),
        ("TICKER_RESULT_TTL", "31622400", "result_ttl", SECONDS_OF_366_DAYS), ("TICKER_FAILURE_TTL", "60", "failure_ttl", 60),
        ("TICKER_HARD_LIMIT", "off", "hard_limit", "off"), ("TICKER_SCHEMA", "_" + "a" * 62, "schema", "_" + "a" * 62),
    ],
)  # fmt: skip
def test_a_value_at_a_limit_is_taken(name, value, field, expected):
    assert getattr(from_environment({name: value}), field) == expected


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TICKER_TICK", "", sentence("durations.value_is_none", value="''", examples="90 or 90s, 30s, 5m, 1h30m, 1d, or PT5M")),
        ("TICKER_TICK", "often", sentence("durations.value_is_none", value="'often'", examples="90 or 90s, 30s, 5m, 1h30m, 1d, or PT5M")),
        ("TICKER_TICK", "5M", sentence("durations.value_minutes_or_months", value="'5M'", minutes="5m or PT5M")),
        ("TICKER_TICK", "99ms", sentence("durations.value_under_the_limit", value="'99ms'", limit="minimum of 100ms")),
        ("TICKER_TICK", "0", sentence("durations.value_under_the_limit", value="'0'", limit="minimum of 100ms")),
        ("TICKER_TICK", "61m", sentence("durations.value_over_the_limit", value="'61m'", limit="limit of 1h")),
        *(("TICKER_BATCH", value, sentence("errors.value_whole_number", value=f'{value!r}', least=1, most="10,000")) for value in
          ("0", "10001", "-1", "1e3", "1_000", " 5", "\u0665", "", "9" * 40)),
        ("TICKER_RESULT_TTL", "-1", sentence("errors.value_whole_number", value="'-1'", least=0, most="31,622,400")),
        ("TICKER_FAILURE_TTL", "31622401", sentence("errors.value_whole_number", value="'31622401'", least=60, most="31,622,400")),
        ("TICKER_HARD_LIMIT", "on", sentence("errors.value_none_of", value="'on'", values="auto, watchdog, off")),
        ("TICKER_HARD_LIMIT", "", sentence("errors.value_none_of", value="''", values="auto, watchdog, off")),
        *(("TICKER_SCHEMA", value, sentence("errors.value_no_schema_name", value=f'{value!r}', most=63)) for value in
          ("", "a b", 'a"; --', "1a", "pg_catalog", "information_schema")),
    ],
)  # fmt: skip
def test_a_bad_value_is_one_sentence_that_names_the_variable(name, value, said):
    assert refused({name: value}).split(": ", 1) == [name, said]


def test_a_long_or_strange_value_is_cut_and_escaped():
    said = refused({"TICKER_BATCH": "\x1b[31m\n" + "x" * 1000})
    assert said.isprintable() and len(said) < 150


def test_a_schema_is_refused_wherever_it_comes_from():
    for use in (lambda name: schema_name("schema", name), statements):
        with pytest.raises(BadInput, check=sentence("errors.is_no_schema_name", field="schema", value="'a b'").within):
            use("a b")


def test_a_channel_whose_name_cannot_be_one_is_refused():
    assert sentence("errors.no_channel", setting="TICKER_NOTIFY", value="'a b'").begins(
        refused({"TICKER_NOTIFY": "a b"})
    )


# --------------------------------------------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    "rest",
    [
        "", "/app", "localhost", "localhost/app", "user@localhost/app", f"user:{SECRET}@localhost:5432/app",
        f"user:{SECRET}%40%2F%3A@[::1]:5432/app", "user@h1:5432,h2:5433/app?target_session_attrs=read-write",
        "/app?host=/var/run/postgresql", f"/app?user=u&password={SECRET}&sslmode=require", "%2Ftmp/app", f"u:a#{SECRET}@h/app",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg"]
)
def test_all_schemes_mean_the_same_database(scheme, rest):
    assert Settings(database_url=f"{scheme}://{rest}").require_database() == f"postgresql://{rest}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", sentence("errors.not_set_write", setting="DATABASE_URL", example="DATABASE_URL=postgresql://user@localhost/name")),
        *((f"{scheme}://u:{SECRET}@h/app",
           sentence("errors.no_postgresql_url_write", setting="DATABASE_URL", scheme=scheme, remedy="postgresql://user@localhost/name"))
          for scheme in ("mysql", "mysql+pymysql", "sqlite", "redis", "postgresql+pg8000")),
        *((url, sentence("errors.text_is_no_postgresql_url", setting="DATABASE_URL", remedy="postgresql://user@localhost/name"))
          for url in (SECRET, f"host=h password={SECRET}", f"u:{SECRET}://x@h", f"password=x{SECRET}://y", "://", "POSTGRESQL://h")),
    ],
)  # fmt: skip
def test_another_kind_of_database_url_is_refused_in_a_sentence(url, said):
    with pytest.raises(ConfigurationError) as error:
        Settings(database_url=url).require_database()
    assert str(error.value) == said


UNREADABLE = [
    f"u:a/{SECRET}@h/app", f"u:a?{SECRET}@h/app", f"u:1/{SECRET}@h/app", f"u:1?{SECRET}@h/app", f"u:a@{SECRET}@h/app",
    f"u:a {SECRET}@h/app", f"u:{SECRET}\n@h/app", f"u:a:{SECRET}/@h", f"u:{SECRET}@[::1/app", f"u:{SECRET}@h:port/app",
    f"u:{SECRET}@h:123456/app", f"h/app?password={SECRET}=1", f"h/app?password=a&{SECRET}", f"h/app?{SECRET}", "h/app\n",
]  # fmt: skip
"""What follows :// where a password was not escaped: read as written, a piece of it would be a host, a port or an option."""


@pytest.mark.parametrize("rest", [*UNREADABLE, f"u:{SECRET}%zz@h/app", f"u:{SECRET}%00@h/app", f"u:{SECRET}%@h"])
def test_a_password_that_is_not_escaped_is_refused_before_a_server_sees_a_piece_of_it(rest):
    with pytest.raises(ConfigurationError) as error:
        psycopg_url(f"postgresql://{rest}")
    assert SECRET not in str(error.value)
    assert sentence(
        "errors.url_unreadable_write",
        setting="DATABASE_URL",
        remedy="user:password@host:port/name",
        rest=re.compile(r".*"),
    ) == str(error.value)


def test_a_second_question_mark_is_named_as_such():
    with pytest.raises(ConfigurationError) as error:
        psycopg_url(f"postgresql://u:{SECRET}@h/app?sslmode=require?connect_timeout=5")
    assert str(error.value) == sentence("errors.url_second_question_mark", setting="DATABASE_URL")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", "redis://localhost"),
        (f"redis://:{SECRET}@localhost:6379/0", f"redis://:{SECRET}@localhost:6379/0"),
        ("rediss://h/1?ssl_cert_reqs=none", "rediss://h/1?ssl_cert_reqs=none"),
        ("unix:///tmp/valkey.sock?db=1", "unix:///tmp/valkey.sock?db=1"),
        ("valkey://valkey:1@valkey/valkey", "redis://valkey:1@valkey/valkey"),
        ("valkeys://h", "rediss://h"),
    ],
)
def test_redis_and_valkey_urls_are_handed_on_as_rq_reads_them(url, expected):
    assert Settings(redis_url=url).require_redis() == expected


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", sentence("errors.not_set_write", setting="REDIS_URL", example="REDIS_URL=redis://localhost:6379/0")),
        (
            f"http://:{SECRET}@h",
            sentence(
                "errors.no_redis_url",
                setting="REDIS_URL",
                value="'http://…'",
                schemes="redis://, rediss://, redis+sentinel:// or unix://",
            ),
        ),
        (
            f"h:6379:{SECRET}",
            sentence(
                "errors.text_is_no_redis_url",
                setting="REDIS_URL",
                schemes="redis://, rediss://, redis+sentinel:// or unix://",
            ),
        ),
        (
            "redis:localhost",
            sentence(
                "errors.text_is_no_redis_url",
                setting="REDIS_URL",
                schemes="redis://, rediss://, redis+sentinel:// or unix://",
            ),
        ),
    ],
)
def test_another_kind_of_redis_url_is_refused_in_a_sentence(url, said):
    with pytest.raises(ConfigurationError) as error:
        Settings(redis_url=url).require_redis()
    assert str(error.value) == said


@pytest.mark.parametrize("hosts", ["h1,h2", "h1:6379,h2:6380", f"u:{SECRET}@h1,h2/0", "h1,", "[::1]:6379,h2"])
def test_several_hosts_of_redis_are_refused_in_a_sentence(hosts):
    with pytest.raises(ConfigurationError) as error:
        Settings(redis_url=f"redis://{hosts}").require_redis()
    assert str(error.value) == sentence(
        "errors.several_redis_hosts", setting="REDIS_URL", example="redis://host:6379/0"
    )


@pytest.mark.parametrize("rest", [*UNREADABLE, f":1#{SECRET}@h"])
def test_the_password_of_redis_is_kept_as_well(rest):
    with pytest.raises(ConfigurationError) as error:
        Settings(redis_url=f"redis://{rest}").require_redis()
    assert SECRET not in str(error.value)
    assert sentence("errors.redis_url_unreadable", setting="REDIS_URL").begins(str(error.value))


def test_settings_do_not_show_a_password_when_they_are_printed():
    shown = repr(Settings(database_url=f"postgresql://u:{SECRET}@h", redis_url=f"redis://:{SECRET}@h"))
    assert SECRET not in shown and "schema='ticker'" in shown


# ------------------------------------------------------------------------------------------- servers that are not there


@pytest.mark.slow
def test_a_start_with_both_servers_there_says_nothing(settings):
    inspect.check(settings)


def test_an_absent_postgresql_is_named(redis_url, closed_port):
    said = not_startable(Settings(f"postgresql://u:{SECRET}@127.0.0.1:{closed_port}/app", redis_url))
    assert sentence("errors.database_unavailable_as", setting="DATABASE_URL").begins(said)
    assert said.endswith("Connection refused")


@pytest.mark.slow
def test_an_absent_redis_is_named(database_url, closed_port):
    said = not_startable(Settings(database_url, f"redis://u:{SECRET}@127.0.0.1:{closed_port}/0"))
    assert sentence("errors.redis_refuses_as", setting="REDIS_URL").begins(said)
    assert said.endswith("Connection refused")


def test_an_unset_server_is_named(database_url):
    assert sentence("errors.is_not_set_and", setting="DATABASE_URL").begins(not_startable(Settings()))
    assert sentence("errors.is_not_set_and", setting="REDIS_URL").begins(not_startable(Settings(database_url)))


@pytest.mark.parametrize(
    "rest",
    [
        f"u:{SECRET}@h.invalid/app",
        f"u:{SECRET}@127.0.0.1/app?no_such_option=1",
        f"u:{SECRET}@127.0.0.1/app?sslmode=odd",
        f"u:{SECRET}@127.0.0.1:99999/app",
        f"/app?host=/no/such/folder&password={SECRET}",
    ],
)
def test_a_database_url_that_leads_nowhere_is_one_sentence_that_names_the_setting(rest):
    assert "DATABASE_URL" in not_startable(Settings(f"postgresql://{rest}"))


@pytest.mark.slow
def test_a_redis_url_that_leads_nowhere_is_one_sentence_that_names_the_setting(database_url):
    for url in (
        f"redis://:{SECRET}@h.invalid",
        f"redis://:{SECRET}@127.0.0.1:99999",
        f"redis://:{SECRET}@127.0.0.1/0?no_such_option=1",
        f"redis://:{SECRET}@127.0.0.1/0?db=one",
        f"rediss://:{SECRET}@127.0.0.1/0?ssl_cert_reqs=odd",
        f"unix://:{SECRET}@/no/such/socket",
    ):
        assert "REDIS_URL" in not_startable(Settings(database_url, url)), url


def test_a_database_without_the_tables_says_what_to_run(database_url, redis_url):
    said = not_startable(Settings(database_url, redis_url, schema="elsewhere"))
    assert said == sentence(
        "errors.no_tables", setting="DATABASE_URL", schema="'elsewhere'", remedy="ticker db upgrade"
    )
