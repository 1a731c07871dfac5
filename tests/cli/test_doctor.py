"""`ticker doctor`: each finding with its remedy, what could not be checked, and that it writes nothing."""

import re
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Never
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

import ticker as api
from tests.cli.answers import answer, refused
from tests.factories import SECOND, a_need, ticked
from tests.harness import command as ticker
from tests.harness import start
from tests.poolers import is_installed, pooler, through
from tests.rights import PASSWORD, block, with_user
from tests.sentences import sentence
from ticker import clock, embedded, owners
from ticker.cli import doctor
from ticker.db.connections import Connection
from ticker.embedded import Servers
from ticker.errors import Unavailable
from ticker.queue.rq import RedisQueue
from ticker.read import overview
from wrappers.rq import compatibility

pytestmark = pytest.mark.usefixtures("environ")

Db = psycopg.Connection[Any]
CHECKS = ["settings", "tables", "health", "tasks", "postgresql", "redis", "owners", "packages"]
NOWHERE = "postgresql://me@/name?host=/nowhere"
WELL: dict[str, list[str]] = {}


def examined(code: int = 1) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The findings by their checks, and what was not checked."""
    told = answer("doctor", code=code)
    assert told["well"] is (code == 0) and list(dict.fromkeys(note["check"] for note in told["notes"])) == CHECKS
    kinds: dict[str, dict[str, list[str]]] = {"finding": {}, "not checked": {}, "well": {}}
    for note in told["notes"]:
        kinds[note["status"]].setdefault(note["check"], []).append(note["sentence"])
    assert set(map(tuple, kinds["well"].values())) <= {("",)}
    return kinds["finding"], kinds["not checked"]


@pytest.fixture
def ticking(db: Db) -> None:
    ticked(db, 3 * SECOND)


@pytest.fixture
def feeds(db: Db) -> Callable[..., None]:
    """Makes a table of owners, with triggers, and a task of each of its rows."""

    def make(columns: str, *rows: str, ids: tuple[str, ...] = (), **options: Any) -> None:
        db.execute(f"CREATE TABLE feeds ({columns})")
        db.execute("\n".join(owners.triggers("feeds", **options)))
        for row in rows:
            db.execute(f"INSERT INTO feeds VALUES {row}")
        for id_ in ids:
            ticker("add", "poll", "--every", "1m", "--owner", f"feeds:{id_}")

    return make


def without_triggers(db: Db, statement: str) -> None:
    """As a restore of some tables does."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(statement)


# -------------------------------------------------------------------------------------------------------- all is well


@pytest.mark.slow
def test_all_is_well(ticking: None, db: Db, redis: Redis, feeds: Callable[..., None]) -> None:
    feeds("id int PRIMARY KEY", "(1)", ids=("1",))
    before = db.execute("SELECT t, t.xmin FROM ticker.tasks t").fetchall(), redis.keys()
    assert examined(code=0) == (WELL, {})
    out, err = ticker("doctor")
    told, *lines, _ = out.splitlines()
    assert told.startswith("All is well: 1 task, last tick ") and lines == [f"ok: {name}" for name in CHECKS]
    assert err == ""
    assert (db.execute("SELECT t, t.xmin FROM ticker.tasks t").fetchall(), redis.keys()) == before


@pytest.mark.slow
def test_versions_have_stable_keys(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "unix:///nowhere")
    versions = answer("doctor", code=1)["versions"]
    assert list(versions) == ["python", "rq", "sqlalchemy", "psycopg", "postgresql", "redis"]
    assert versions.pop("redis") is None
    assert all(re.match(r"[0-9]+\.[0-9]+", version) for version in versions.values())
    assert "redis unknown\n" in ticker("doctor", code=1)[0]


@pytest.mark.slow
def test_the_rights_in_the_document_are_enough(
    ticking: None, roles: dict[str, str], redis: Redis, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"test-{uuid4().hex[:8]}"
    for line in block("redis").splitlines():
        if line.startswith("ACL SETUSER ticker"):
            redis.execute_command("ACL", "SETUSER", user, *line.replace("PASSWORD", PASSWORD).split()[3:])
    monkeypatch.setenv("DATABASE_URL", with_user(environ["DATABASE_URL"], roles["ticker"]))
    monkeypatch.setenv("REDIS_URL", with_user(environ["REDIS_URL"], user))
    try:
        assert examined(code=0) == (WELL, {})
    finally:
        redis.acl_deluser(user)


# ------------------------------------------------------------------------------------------- tickers, queues, servers


@pytest.mark.slow
def test_no_ticker_and_a_queue_without_a_worker(db: Db) -> None:
    ticker("add", "f", "--every", "1m", "--queue", "lonely")
    ticker("tick")
    assert examined() == ({"health": [
        sentence("health.no_ticker_start_one", remedy="ticker run"),
        sentence("health.unattended", jobs="1 job waits", queue="lonely", remedy="ticker worker --tasks ... lonely"),
    ]}, {})  # fmt: skip
    out, err = ticker("doctor", code=1)
    assert sentence("health.no_ticker_start_one", remedy="ticker run").within(out)
    assert err == sentence("doctor.findings", number=2)


def test_a_queue_without_a_worker_and_the_queues_to_which_workers_listen(ticking: None, db: Db, redis: Redis) -> None:
    ticker("add", "f", "--every", "1m", "--queue", "lonely")
    ticker("tick")
    redis.hset("rq:worker:one", mapping={"state": "idle", "queues": "othr"})
    redis.sadd("rq:workers", "rq:worker:one")
    redis.sadd("rq:workers:othr", "rq:worker:one")
    [told] = examined()[0]["health"]
    assert told == sentence(
        "health.unattended_others", jobs="1 job waits", queue="lonely", others="othr",
        remedy="ticker worker --tasks ... lonely",
    )  # fmt: skip


def test_a_ticker_that_pushes_to_another_redis(db: Db, redis: Redis) -> None:
    here = RedisQueue(redis).place()
    ticked(db, redis=here)
    assert examined(code=0) == (WELL, {})
    ticker("add", "poll", "--every", "1m")
    a_need(db, "polling", 5.2, 9)
    ticked(db, redis=here + "1", crews=[[["polling"], 0, 0]])
    assert examined()[0]["health"] == [sentence("health.other_redis")]


def test_without_a_tick_the_need_of_workers_is_not_told(db: Db) -> None:
    ticker("add", "poll", "--every", "1m")
    a_need(db, "polling", 5.2, 9)
    ticked(db, ended=True)
    [told] = examined()[0]["health"]
    assert sentence("health.last_ticker_stopped", at=re.compile(".*"), remedy="ticker run") == told


@pytest.mark.slow
def test_too_few_workers(db: Db) -> None:
    ticker("add", "poll", "--every", "1m")
    a_need(db, "polling", 5.2, 9)
    ticked(db, crews=[[["polling"], 4, 3]])
    [told] = examined()[0]["health"]
    assert sentence("workers.need", queue="polling", average="5.2", most=9, listen="4 listen").begins(told)


@pytest.mark.slow
def test_a_worker_that_does_all_the_work_is_no_problem_although_a_second_one_would_start_jobs_sooner(db: Db) -> None:
    ticker("add", "poll", "--every", "1m")
    a_need(db, "polling", 0.7, 2)
    ticked(db, crews=[[["polling"], 1, 1]])
    [note] = [note for note in answer("doctor", code=0)["notes"] if note["status"] == "warning"]
    assert note["sentence"] == sentence(
        "workers.need_hint", queue="polling", average="0.7", most=2, listen="1 listens", missing=1,
        remedy="ticker worker --tasks ... polling",
    )  # fmt: skip


@pytest.mark.slow
def test_a_function_that_no_worker_knows_once_with_its_tasks(ticking: None, db: Db) -> None:
    ticker("add", "mail.fetch", "--every", "1m")
    for name in "one", "two":
        ticker("add", "mail.fetsh", "--every", "1m", "--name", name)
    assert examined(code=0) == (WELL, {})
    db.execute("INSERT INTO ticker.functions (name, queues, announced_at) VALUES ('mail.fetch', '{polling}', now())")
    assert examined(code=0) == (WELL, {})  # within a minute of the last edit, workers may still have to start
    db.execute("UPDATE ticker.tasks SET updated_at = updated_at - interval '2 minutes'")
    ticker("add", "mail.fatch", "--every", "1m")
    ticker("edit", "mail.fatch", "--disable")
    db.execute("UPDATE ticker.tasks SET updated_at = updated_at - interval '2 minutes'")
    [told] = examined()[0]["tasks"]
    warning = sentence("warnings.unannounced_like", function="'mail.fetsh'", near="'mail.fetch'", known="mail.fetch")
    assert warning.begins(told) and told.endswith("; its tasks: ticker list --function mail.fetsh")
    db.execute("UPDATE ticker.tasks SET declared_in = 'reports'")
    [told] = examined()[0]["tasks"]
    assert sentence("doctor.declared", module="reports", remedy="ticker sync --tasks ... --prune-modules").ends(told)


@pytest.mark.slow
def test_a_function_that_a_worker_does_not_know_any_more_is_named_at_once_and_is_a_problem_after_a_minute(
    ticking: None, db: Db
) -> None:
    """It was renamed in the code: it has been announced, but the worker that was deployed last does not know it."""
    ticker("add", "mail.fetch", "--every", "1m")
    db.execute("INSERT INTO ticker.functions (name, queues, announced_at) VALUES ('mail.fetch', '{polling}', now())")
    assert examined(code=0) == (WELL, {})
    [(occurrence,)] = db.execute("SELECT next_run FROM ticker.tasks").fetchall()
    assert start(db, 1, occurrence, None, functions=["mail.fetch_all"])["refusal"] == "unknown_here"
    [told] = [note["sentence"] for note in answer("doctor")["notes"] if note["status"] == "warning"]
    assert sentence("doctor.unknown_here", function="'mail.fetch'", remedy="ticker list --function mail.fetch") == told
    db.execute("UPDATE ticker.pauses SET paused_at = paused_at - interval '1 minute'")
    assert examined()[0] == {"tasks": [told]}


@pytest.mark.slow
def test_a_task_that_cannot_be_pushed(ticking: None, db: Db) -> None:
    ticker("add", "poll", "--every", "1m")
    ticker("add", "poll", "--every", "1m", "--name", "off")
    ticker("edit", "off", "--disable")
    db.execute("UPDATE ticker.tasks SET push_errors = 1, push_error = 'zone: no such zone'")
    told = sentence("doctor.cannot_be_pushed", tasks="1 task", task=1, name="poll", error="zone: no such zone")
    assert examined()[0] == {"tasks": [told]}


@pytest.mark.slow
def test_what_keeps_tasks_from_running_is_a_warning_and_no_problem(ticking: None, db: Db) -> None:
    ticker("add", "poll", "--every", "1m")
    db.execute("UPDATE ticker.tasks SET failures = 3, last_outcome = 'failed'")
    ticker("pause", "--all", "--by", "ann", "--reason", "upgrade")
    pause, failing = [note["sentence"] for note in answer("doctor")["notes"] if note["status"] == "warning"]
    assert "by ann" in pause and "upgrade" in pause
    assert failing == sentence("doctor.failing", number=1)
    assert f"warning: tasks: {failing}\n" in ticker("doctor")[0]


def test_tasks_that_people_have_paused_one_by_one_are_counted_with_the_way_to_resume_them(
    ticking: None, db: Db
) -> None:
    for number, by in enumerate(["ann", "bob", "ann", "ticker", "carl", "dora"]):
        api.pause(db, api.register(db, "poll", name=f"poll {number}", every="1m"), by=by)
    notes = [note["sentence"] for note in answer("doctor")["notes"] if note["status"] == "warning"]
    said = sentence(
        "doctor.paused_one_by_one", count="5", authors="2 by ann, 1 by bob, 1 by carl, ...",
        remedy="ticker resume --each --state paused", more="--apply",
    )  # fmt: skip
    assert said in notes


def test_jobs_of_other_installations_that_were_put_aside_are_counted(ticking: None, redis: Redis) -> None:
    now = clock.python_utc().timestamp()
    redis.zadd("ticker:foreign", {"other123-r1": now - 60, "other123-r2": now - 3500, "other123-r3": now - 3700})
    told = answer("doctor", code=0)
    [warning] = [note for note in told["notes"] if note["status"] == "warning"]
    assert (warning["check"], warning["sentence"]) == ("redis", sentence("doctor.put_aside", jobs="2 jobs"))


@pytest.mark.slow
def test_without_redis_the_rest_is_checked(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "unix:///nowhere")
    findings, unchecked = examined()
    assert list(findings) == ["health"] and list(unchecked) == ["redis"]
    assert findings["health"] == unchecked["redis"]
    assert sentence("errors.redis_refuses", setting="REDIS_URL").begins(findings["health"][0])
    assert "not checked: redis: see health\n" in ticker("doctor", code=1)[0]


def test_without_postgresql_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", NOWHERE)
    findings, unchecked = examined()
    assert list(findings) == ["health"] and list(unchecked) == ["tables", "tasks", "postgresql", "owners"]
    assert sentence("errors.database_unavailable", setting="DATABASE_URL").begins(findings["health"][0])
    assert all(reasons == findings["health"] for reasons in unchecked.values())


def test_a_server_that_stops_answering_in_the_midst_of_a_check_is_a_problem(
    ticking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "REDIS_URL: it did not answer within 2s"

    def hang(sources: object) -> Never:
        raise Unavailable(silent)

    monkeypatch.setattr(doctor, "scheduled_again", hang)  # the last that the check of the tasks asks for
    assert examined(code=1) == ({}, {"tasks": [silent]})
    assert answer("doctor", code=1)["verdict"] == silent


@pytest.mark.slow
def test_a_server_that_is_not_fit_is_one_finding(ticking: None, db: Db, redis: Redis) -> None:
    db.execute(f'ALTER DATABASE "{db.info.dbname}" SET default_transaction_read_only = on')
    [told] = examined()[0]["postgresql"]
    assert sentence("errors.read_only", setting="DATABASE_URL").begins(told)


@pytest.mark.slow
def test_a_redis_that_loses_jobs(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded.valkey() as valkey:
        monkeypatch.setenv("REDIS_URL", valkey.url)
        with Redis.from_url(valkey.url) as redis:
            redis.config_set("maxmemory-policy", "volatile-ttl")
        findings, unchecked = examined()
    policy = sentence("errors.policy", setting="REDIS_URL", policy="volatile-ttl", remedy="noeviction")
    assert (findings, unchecked) == ({"health": [policy]}, {"redis": [policy]})


@pytest.mark.parametrize(("name", "value"), [("DATABASE_URL", ""), ("DATABASE_URL", "mysql://x"), ("TICKER_TICK", "0")])
def test_a_setting_that_cannot_be_read_ends_it(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert refused("doctor", code=78).startswith(name)


def test_a_channel_that_keeps_a_ticker_from_starting(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKER_NOTIFY", "webhook")
    unset = {"setting": "TICKER_WEBHOOK_URL", "notify": "TICKER_NOTIFY", "channel": "webhook"}
    assert examined() == ({"settings": [sentence("errors.channel_without_setting", **unset)]}, {})


def test_a_misspelt_setting_is_a_warning_and_variables_of_others_are_not(
    ticking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKER_DEBUG", "1")  # read outside ticker.settings
    monkeypatch.setenv("TICKER_SERVICE_HOST", "10.0.0.1")  # set by Kubernetes for a service named ticker
    monkeypatch.setenv("TICKER_TIK", "5s")
    [warning] = [note for note in answer("doctor")["notes"] if note["status"] == "warning"]
    misspelt = sentence("doctor.misspelt", variable="TICKER_TIK", setting="TICKER_TICK")
    assert (warning["check"], warning["sentence"]) == ("settings", misspelt)


# ------------------------------------------------------------------------------------------------- tables and owners


def test_failing_tasks_are_advised_with_their_two_largest_causes(ticking: None, db: Db) -> None:
    for number, cause in enumerate(
        ("OSError: *", "OSError: *", "TimeoutError", "ValueError: *", "TimeoutError", "OSError: *")
    ):
        ticker("add", "poll", "--every", "1m", "--name", f"n{number}")
        db.execute("UPDATE ticker.tasks SET failures = 1, cause = %s WHERE name = %s", [cause, f"n{number}"])
    ticker("add", "poll", "--every", "1m", "--name", "well")
    db.execute("UPDATE ticker.tasks SET last_outcome = 'succeeded' WHERE name = 'well'")
    told = answer("doctor")
    assert told["verdict"] == "6 tasks fail, 3 of them with OSError: *"
    causes = sentence("doctor.failing_causes", number=6, first="3 with OSError: *", second="2 with TimeoutError")
    assert causes in [note["sentence"] for note in told["notes"] if note["status"] == "warning"]


def test_a_task_that_succeeds_counts_wherever_it_stands(ticking: None, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "COUNTED_AT_MOST", 1)
    for name in ("new", "one", "two"):
        ticker("add", "poll", "--every", "1m", "--name", name)
    db.execute("UPDATE ticker.tasks SET failures = 1, cause = 'OSError: *', last_outcome = 'failed' WHERE name = 'one'")
    db.execute("UPDATE ticker.tasks SET last_outcome = 'succeeded' WHERE name = 'two'")
    assert answer("doctor", code=0)["well"]


def test_that_no_task_succeeds_is_a_problem(ticking: None, db: Db) -> None:
    for name in ("one", "two", "new", "off"):
        ticker("add", "poll", "--every", "1m", "--name", name)
    db.execute("UPDATE ticker.tasks SET last_outcome = 'succeeded' WHERE name IN ('one', 'two', 'off')")
    db.execute("UPDATE ticker.tasks SET failures = 1, cause = 'OSError: *', last_outcome = 'failed' WHERE name = 'one'")
    ticker("edit", "off", "--disable")
    assert answer("doctor", code=0)["well"]
    db.execute("UPDATE ticker.tasks SET failures = 1, cause = 'OSError: *', last_outcome = 'failed' WHERE name = 'two'")
    assert examined()[0] == {"tasks": [sentence("doctor.none_succeeds", number=2, cause="2 with OSError: *")]}
    assert answer("doctor", code=1)["verdict"] == "2 tasks fail with OSError: *"
    ticker("pause", "--all")
    assert answer("doctor", code=0)["well"]


def test_tables_that_are_missing_are_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKER_SCHEMA", "other")
    findings, unchecked = examined()
    assert findings == {"tables": [sentence("db.no_tables", schema="other", remedy="ticker db upgrade")]}
    assert list(unchecked) == ["health", "tasks", "postgresql", "redis", "owners"]
    out, err = ticker("doctor", code=1)
    assert out.splitlines()[:-1] == [
        findings["tables"][0],
        f"problem: tables: {findings['tables'][0]}",
        "ok: settings",
        "not checked: health, tasks, postgresql, redis, owners: see tables",
        "ok: packages",
    ]
    assert err == sentence("doctor.one_finding", number=1)


@pytest.mark.slow
def test_tables_of_another_installation(ticking: None, db: Db) -> None:
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    findings, unchecked = examined()
    told = sentence(
        "errors.tables_of_another_installation", adopt="ticker db adopt", restored="ticker db adopt --resume"
    )
    assert (findings, unchecked) == ({"health": [told]}, {"postgresql": [told]})


@pytest.mark.slow
def test_a_table_of_owners_without_triggers(ticking: None, db: Db) -> None:
    db.execute("CREATE TABLE feeds (id int PRIMARY KEY); INSERT INTO feeds VALUES (1)")
    ticker("add", "poll", "--every", "1m", "--owner", "feeds:1")
    [told] = examined()[0]["owners"]
    assert sentence("errors.no_trigger_of_ours", table="feeds").begins(told) and 'owners.install(op, "feeds")' in told


@pytest.mark.parametrize(
    ("columns", "rows", "ids", "key"),
    [
        ("id int PRIMARY KEY", ("(1)", "(2)", "(3)"), ("1", "2", "3"), None),
        ("id int PRIMARY KEY, owner_id text UNIQUE", ("(7, '1')", "(8, '2')", "(9, '3')"), ("1", "2", "3"), "owner_id"),
        ("a int, b text, PRIMARY KEY (a, b)", ("(1, 'x')", "(2, 'x AND')", "(3, 'z')"),
         ('[1, "x"]', '[2, "x AND"]', '[3, "z"]'), ("a", "b")),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_tasks_whose_owner_has_no_row(
    columns: str,
    rows: tuple[str, ...],
    ids: tuple[str, ...],
    key: Any,
    ticking: None,
    db: Db,
    feeds: Callable[..., None],
) -> None:
    feeds(columns, *rows, ids=ids, key=key)
    assert examined(code=0) == (WELL, {})
    without_triggers(db, "DELETE FROM public.feeds WHERE (SELECT count(*) FROM public.feeds f WHERE f <= feeds) > 1")
    remedy = "ticker owners --orphans --remove"
    outlived = sentence("doctor.outlived", number=2, table="feeds", remedy=remedy)
    assert examined() == ({"owners": [outlived]}, {})
    for id_ in ids[1:]:
        ticker("remove", "--owner", f"feeds:{id_}")
    assert examined(code=0) == (WELL, {})


@pytest.mark.slow
def test_owners_that_a_ticker_may_not_read_are_not_checked(
    ticking: None, feeds: Callable[..., None], roles: dict[str, str], environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    feeds("id int PRIMARY KEY", "(1)", ids=("1",))
    monkeypatch.setenv("DATABASE_URL", with_user(environ["DATABASE_URL"], roles["ticker"]))
    denied = "permission denied for view owner_rows_feeds"
    hidden = sentence("errors.owners_out_of_sight", type="feeds", role=roles["ticker"], error=denied)
    assert examined(code=0) == (WELL, {"owners": [hidden]})
    assert hidden.within(ticker("doctor")[0])


# ------------------------------------------------------------------------------------- clocks, poolers, rights, versions


@pytest.mark.slow
def test_clocks_that_differ(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "python_utc", lambda: datetime.now(UTC) + timedelta(minutes=10))
    host = socket.gethostname()
    lag = sentence("doctor.lag", host=host, setting="DATABASE_URL", span=re.compile("10m|9m5.s"), remedy="NTP")
    assert examined() == ({"postgresql": [lag]}, {})
    monkeypatch.setattr(clock, "python_utc", lambda: datetime.now(UTC) + timedelta(hours=2))
    [told] = examined()[0]["postgresql"]
    assert sentence("errors.clocks_differ", host=host, span=re.compile(r"\w+"), way="ahead of", limit="1h") == told


@pytest.mark.slow
def test_a_pooler_between_a_ticker_and_what_wakes_it(
    ticking: None, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "has_pooler", property(lambda self: True, lambda self, value: None))
    assert examined(code=0) == (WELL, {})
    monkeypatch.setenv("TICKER_WAKE", "on")
    assert examined() == ({"postgresql": [sentence("doctor.pooler", remedy="TICKER_LISTEN_URL")]}, {})


@pytest.mark.pooler
def test_a_real_pooler_and_the_address_of_postgresql_itself(
    ticking: None, servers: Servers, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_installed(), "apt-get install pgbouncer"
    with pooler(servers.database_url) as folder:
        monkeypatch.setenv("DATABASE_URL", through(folder, environ["DATABASE_URL"]))
        assert examined(code=0) == (WELL, {})
        monkeypatch.setenv("TICKER_WAKE", "on")
        assert examined() == ({"postgresql": [sentence("doctor.pooler", remedy="TICKER_LISTEN_URL")]}, {})
        monkeypatch.setenv("TICKER_LISTEN_URL", environ["DATABASE_URL"])
        assert examined(code=0) == (WELL, {})


@pytest.mark.slow
def test_an_address_to_listen_on_that_does_not_answer(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKER_WAKE", "on")
    monkeypatch.setenv("TICKER_LISTEN_URL", NOWHERE)
    [told] = examined()[0]["postgresql"]
    assert sentence("errors.database_unavailable", setting="TICKER_LISTEN_URL").begins(told)


@pytest.mark.slow
def test_each_right_that_the_role_of_a_ticker_lacks(
    ticking: None, roles: dict[str, str], db: Db, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute(
        f"REVOKE INSERT ON ticker.tickers FROM {roles['ticker']}; REVOKE DELETE ON ticker.runs FROM {roles['ticker']}"
    )
    monkeypatch.setenv("DATABASE_URL", with_user(environ["DATABASE_URL"], roles["ticker"]))
    missing = [
        sentence("errors.right_is_missing", right="DELETE ticker.runs"),
        sentence("errors.right_is_missing", right="INSERT ticker.tickers"),
    ]
    assert examined() == ({"postgresql": missing}, {})


@pytest.fixture
def weak(redis: Redis, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Gives REDIS_URL a user with all rights but these."""
    user = f"test-{uuid4().hex[:8]}"

    def use(*rules: str) -> None:
        redis.execute_command("ACL", "SETUSER", user, "on", f">{PASSWORD}", "+@all", "~*", "&*", *rules)
        monkeypatch.setenv("REDIS_URL", with_user(environ["REDIS_URL"], user))

    yield use
    redis.acl_deluser(user)


@pytest.mark.slow
def test_each_call_that_the_user_of_redis_may_not_make(ticking: None, redis: Redis, weak: Callable[..., None]) -> None:
    ticker("add", "f", "--every", "1m", "--queue", "my queue")
    weak("-rpush", "-expire")
    calls = "EXPIRE rq:job:x, RPUSH rq:queue:my queue"
    told = sentence("doctor.not_in_redis", setting="REDIS_URL", calls=calls, remedy="docs/operations/security.md")
    assert examined() == ({"redis": [told]}, {})
    assert redis.keys() == []


@pytest.mark.slow
def test_an_rq_that_is_newer_than_those_tried(ticking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    version = compatibility.VERSION
    monkeypatch.setattr(compatibility, "TRIED", "2.0.0")
    untried = sentence("doctor.untried", version=version, tried="2.0.0", remedy="pip install 'rq<=2.0.0'")
    assert examined() == ({"packages": [untried]}, {})
