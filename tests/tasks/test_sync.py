"""`ticker sync`: what modules declare beside their functions becomes tasks and limits, and nothing else changes."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from click.testing import CliRunner

import ticker
import wrappers
from tests.bad_input.rows import refused
from tests.running import until
from tests.sentences import sentence
from ticker.cli import main
from ticker.db.connections import connect
from ticker.model import REGISTERED, RegisteredFunction
from ticker.read import overview
from ticker.tasks import sync as declarations
from wrappers.pipeline import registry

pytestmark = pytest.mark.slow


@pytest.fixture
def module(environ, function, monkeypatch):
    """A module `declared_polls`; `declare(...)` says anew what is in it."""
    name = "declared_polls"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))

    def declare(limits=None, **tasks):
        registry._functions.clear()
        registry._limits.clear()
        for key, said in (limits or {}).items():
            declare_limit(name, key, **said)
        for function_name, said in tasks.items():
            call = type(lambda: None)((lambda: None).__code__, {"__name__": name})
            call.__module__, call.__qualname__ = name, function_name
            function(function_name.replace("_", "."), **said)(call)

    return declare


def declare_limit(module, key, **said):
    """Calls `wrappers.limit` from a module of this name."""
    eval("limit(key, **said)", {"__name__": module, "limit": wrappers.limit, "key": key, "said": said})


def sync(*words, code=0):
    result = CliRunner().invoke(main, ["sync", "--tasks", "declared_polls", *words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def by_name(db):
    return {task.name: task for task in ticker.list_tasks(db)}


def test_what_is_declared_is_added_changed_and_removed(module, db):
    module(mail_clean={"every": "1h"}, reports_daily={"cron": "0 0 6 * * 1-5", "zone": "Europe/Berlin"})
    assert sync() == (
        sentence(
            "cli.sync_added",
            first="mail.clean",
            every="every 1h",
            second="reports.daily",
            cron="cron 0 0 6 * * 1-5 Europe/Berlin",
        )
    )
    assert by_name(db)["reports.daily"].zone == "Europe/Berlin"
    module(mail_clean={"every": "2h", "box": "5m"}, other={"calendar": "daily"})
    assert [line[:16] for line in sync().splitlines()] == ["~ change mail.cl", "+ add other: cal", "- remove reports"]
    tasks = by_name(db)
    assert set(tasks) == {"mail.clean", "other"}
    assert (tasks["mail.clean"].every_ms, tasks["mail.clean"].box_ms) == (7_200_000, 300_000)


def test_the_plan_is_shown_and_nothing_is_done(module, db):
    module(mail_clean={"every": "1h"})
    assert sync("--plan") == sentence("cli.sync_planned", task="mail.clean", every="every 1h")
    assert by_name(db) == {}
    assert json.loads(sync("--plan", "--json"))[0]["what"] == "add"


def test_a_second_time_there_is_nothing_to_do(module, db):
    module(mail_clean={"every": "1h"}, reports_daily={"at": "2099-01-01T00:00:00Z"})
    sync()
    before = by_name(db)
    assert sync() == sentence("cli.sync_nothing", number=2)
    assert by_name(db) == before


def test_what_an_operator_changed_stays_until_the_declaration_changes(module, db):
    module(mail_clean={"every": "1h"})
    sync()
    ticker.edit(db, "mail.clean", every="3h", queue="slow")
    sync()
    assert by_name(db)["mail.clean"].every_ms == 3 * 3_600_000
    module(mail_clean={"every": "2h"})
    sync()
    assert (by_name(db)["mail.clean"].every_ms, by_name(db)["mail.clean"].queue) == (7_200_000, "slow")


def test_declared_hours_are_added_changed_and_removed(module, db):
    module(mail_clean={"every": "1h", "during": "9-17 mon-fri", "zone": "Europe/Berlin"})
    assert "every 1h during 9-17 mon-fri Europe/Berlin" in sync()
    assert sync() == sentence("cli.sync_nothing", number=1)
    module(mail_clean={"every": "1h", "during": "8-18", "zone": "Europe/Paris"})
    sync()
    assert (by_name(db)["mail.clean"].during, by_name(db)["mail.clean"].zone) == ("8-18", "Europe/Paris")
    module(mail_clean={"every": "1h"})
    sync()
    assert (by_name(db)["mail.clean"].during, by_name(db)["mail.clean"].zone) == ("", "UTC")


def test_a_changed_zone_of_hours_that_an_operator_removed_is_no_error(module, db):
    module(mail_clean={"every": "1h", "during": "9-17", "zone": "Europe/Berlin"})
    sync()
    ticker.edit(db, "mail.clean", during="")
    module(mail_clean={"every": "1h", "during": "9-17", "zone": "Europe/Paris"})
    sync()
    assert (by_name(db)["mail.clean"].during, by_name(db)["mail.clean"].zone) == ("", "UTC")


def test_a_field_that_is_declared_no_more_goes_back_to_its_default(module, db):
    module(mail_clean={"every": "1h", "box": "1m", "tolerance": "1s", "queue": "slow"})
    sync()
    module(mail_clean={"every": "1h"})
    sync()
    task = by_name(db)["mail.clean"]
    assert (task.box_ms, task.tolerance_ms, task.queue) == (1_800_000, 180_000, "polling")


def test_what_was_registered_at_run_time_or_elsewhere_is_not_touched(module, db):
    ticker.register(db, "poll", every="1m")
    ticker.register(db, "poll", every="1m", owner=("channels", "1"))
    module(mail_clean={"every": "1h"})
    sync()
    db.execute("UPDATE ticker.tasks SET declared_in = 'another.module', name = 'theirs' WHERE name = 'mail.clean'")
    module()
    sync()
    assert sorted(task.name for task in ticker.list_tasks(db)) == ["poll", "poll", "theirs"]


def test_what_a_renamed_or_deleted_module_declared_is_named_and_removed_on_request(module, db):
    module({"imap.a": {"concurrency": 1}}, mail_clean={"every": "1h"}, mail_fetch={"every": "1m"})
    sync()
    db.execute("UPDATE ticker.tasks SET declared_in = 'old_polls'; UPDATE ticker.limits SET declared_in = 'old_polls'")
    module(mail_fetch={"every": "1m"})
    moved = f"{sentence('cli.sync_moved', task='mail.fetch', before='old_polls', after='declared_polls')}\n"
    skipped = [
        f"{sentence('cli.sync_skipped', name=name, module='old_polls')}\n" for name in ("limit imap.a", "mail.clean")
    ]
    hint = f"warning: {sentence('cli.sync_hint')}\n"
    assert sync("--plan").startswith(skipped[0] + moved + skipped[1] + hint)
    assert sync() == skipped[0] + moved + skipped[1] + hint
    assert sync() == skipped[0] + skipped[1] + hint
    assert set(by_name(db)) == {"mail.clean", "mail.fetch"}
    assert "- remove mail.clean: " in sync("--prune-modules", "--plan")
    assert set(by_name(db)) == {"mail.clean", "mail.fetch"}
    assert [line[:10] for line in sync("--prune-modules").splitlines()] == ["- remove l", "- remove m"]
    assert (set(by_name(db)), ticker.list_limits(db)) == ({"mail.fetch"}, [])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"every": "5M"},
            sentence("errors.declared_minutes_or_months", task="'mail.clean'", field="every", value="'5M'"),
        ),
        ({"evry": "5m"}, sentence("errors.no_field_of_a_task")),
        (
            {"cron": "0 0 30 2 *"},
            sentence("errors.declared_never_fires", task="'mail.clean'", field="cron", value="'0 0 30 2 *'"),
        ),
        ({"cron": "* * * * *", "every": "1m"}, sentence("errors.one_schedule")),
        ({"queue": "slow"}, sentence("errors.field_is_missing", field="every")),
    ],
    ids=str,
)
def test_a_bad_declaration_is_one_sentence_and_nothing_is_written(said, words, module, db):
    module(another={"every": "1m"}, mail_clean=said)
    assert words.within(sync(code=2))
    assert by_name(db) == {}


def test_a_single_time_that_has_passed_is_passed_over(module, db):
    module(mail_clean={"at": "2001-01-01T00:00:00Z", "remove": True}, another={"every": "1m"})
    assert sync() == "+ add another: every 1m\n"
    assert set(by_name(db)) == {"another"}


def test_a_plan_shows_what_the_real_thing_would_refuse(module, db):
    module(another={"every": "1m"}, mail_clean={"every": "1m", "box": "20s"})
    sync()
    ticker.edit(db, "mail.clean", tolerance="25s")
    module(another={"every": "2m"}, mail_clean={"every": "1m", "box": "40s"})
    assert sentence("errors.must_fit_into_the_interval").within(sync("--plan", code=2))
    assert sentence("errors.must_fit_into_the_interval").within(sync(code=2))
    assert by_name(db)["another"].every_ms == 60_000


def test_the_name_of_a_task_that_was_registered_at_run_time_is_refused(module, db):
    ticker.register(db, "other", name="mail.clean", every="1m")
    module(mail_clean={"every": "1h"})
    assert sentence("errors.registered_at_run_time").within(sync(code=2))


def test_tasks_may_be_named_more_than_once(module, db, monkeypatch):
    monkeypatch.setitem(sys.modules, "other_polls", ModuleType("other_polls"))
    module(mail_clean={"every": "1h"})
    sync()
    module()
    assert "- remove mail.clean" in sync("--tasks", "other_polls")
    assert sentence("errors.there_is_no_module", module="'no_such'").within(
        sync("--tasks", "other_polls,no_such", code=78)
    )
    result = CliRunner().invoke(main, ["sync", "--tasks", "no_such", "--tasks", "other_polls"])
    assert (result.exit_code, sentence("errors.there_is_no_module", module="'no_such'").within(result.output)) == (
        78,
        True,
    )


def test_a_module_that_is_not_there_is_one_sentence(environ):
    result = CliRunner().invoke(main, ["sync", "--tasks", "no.such.module"])
    assert (
        result.exit_code,
        sentence("errors.there_is_no_module", module="'no.such.module'").within(result.output),
    ) == (78, True)


# ------------------------------------------------------------------------------------------------------------- limits


def limits(db):
    rows = db.execute("SELECT key, concurrency, rate, period_ms, burst FROM ticker.limits ORDER BY key")
    return {key: tuple(rest) for key, *rest in rows}


def synced(db):
    """What each step of a sync does to the limits and tasks of the module, by name."""
    steps = declarations.sync(db, [], registry.limits(), ["declared_polls"])
    return {step.name: step.what for step in steps}


def test_declared_limits_are_added_changed_and_removed_before_tasks(module, db):
    module(
        {"a": {"concurrency": 2, "rate": "300/1m"}, "b*": {"rate": "5/1s", "burst": 1}},
        mail_clean={"every": "1h", "limits": ["a", "c"]},
    )
    added = ["+ add limit a: concurrency 2, rate 300/1m", "+ add limit b*: rate 5/1s, burst 1", "+ add mail.clean: every 1h"]  # fmt: skip
    assert sync("--plan").splitlines()[:-1] == added and limits(db) == {}
    assert sync().splitlines() == added
    assert limits(db) == {"a": (2, 300, 60_000, 5), "b*": (None, 5, 1000, 1)}
    assert db.execute("SELECT key, concurrency FROM ticker.limited_keys ORDER BY key").fetchall() == [("a", 2), ("c", None)]  # fmt: skip
    assert sync() == sentence("cli.sync_nothing", number=3)
    module({"a": {"concurrency": 3}}, mail_clean={"every": "1h", "limits": ["a", "c"]})
    assert sync().splitlines() == ["~ change limit a: concurrency 3", "- remove limit b*"]
    assert limits(db) == {"a": (3, None, None, None)}
    assert db.execute("SELECT by, concurrency FROM ticker.limits JOIN ticker.limited_keys k USING (key, concurrency)").fetchall() == [("ticker sync", 3)]  # fmt: skip


def test_steps_for_limits_say_so_in_json(module, db):
    module({"a": {"concurrency": 2}}, a={"every": "1h"})
    limit, task = json.loads(sync("--json"))
    assert limit == {
        "what": "add",
        "name": "a",
        "function": "",
        "words": "concurrency 2",
        "task_id": None,
        "kind": "limit",
    }
    assert (task["name"], task["kind"]) == ("a", "task")


def test_a_limit_that_was_changed_live_stays_until_its_declaration_changes(module, db):
    module({"a": {"concurrency": 2, "rate": "300/1m"}})
    sync()
    ticker.limit(db, "a", concurrency=9)
    module({"a": {"concurrency": 2, "rate": "300/60s"}})
    assert synced(db) == {"a": "keep"} and limits(db)["a"][:2] == (9, None)
    module({"a": {"concurrency": 2, "rate": "400/1m"}})
    assert synced(db) == {"a": "change"} and limits(db)["a"][:2] == (2, 400)
    ticker.unlimit(db, "a")
    assert synced(db) == {"a": "add"} and limits(db)["a"][:2] == (2, 400)


def test_a_limit_that_was_declared_at_run_time_is_refused(module, db):
    ticker.limit(db, "a", concurrency=9)
    module({"b": {"concurrency": 1}, "a": {"concurrency": 9}}, mail_clean={"every": "1h"})
    for words in ((), ("--plan",)):
        assert sentence("errors.limited_at_run_time").within(sync(*words, code=2))
    assert limits(db).keys() == {"a"} and by_name(db) == {}
    module()
    assert synced(db) == {} and limits(db).keys() == {"a"}


def test_limits_of_modules_that_were_not_searched_stay_and_a_moved_one_keeps_its_values(module, db):
    module({"a": {"concurrency": 1}, "b": {"concurrency": 1}})
    sync()
    ticker.limit(db, "a", concurrency=9)
    db.execute("UPDATE ticker.limits SET declared_in = 'another.module'")
    module()
    assert synced(db) == {"a": "skip", "b": "skip"}
    module({"a": {"concurrency": 1}})
    assert synced(db) == {"a": "move", "b": "skip"} and limits(db)["a"][0] == 9
    module()
    assert synced(db) == {"a": "remove", "b": "skip"} and limits(db).keys() == {"b"}


def test_a_module_with_limits_but_no_functions_is_searched(module, db, monkeypatch):
    db.execute("INSERT INTO ticker.limits (key, concurrency, declared_in) VALUES ('b', 1, 'myapp.hosts')")
    module()
    declare_limit("myapp.hosts", "a", concurrency=1)
    assert "- remove limit b" in sync()


def test_a_key_is_declared_once_or_in_the_same_way(module):
    declare_limit("one", "a", concurrency=1, rate="60/1m")
    declare_limit("two", "a", concurrency=1, rate="60/1m")
    words = refused(lambda: declare_limit("two", "a", concurrency=1), "limit")
    assert sentence("errors.declared_otherwise", module="one").within(words)
    assert registry.limits()["a"][0] == "one"


def test_a_deploy_that_changes_no_limit_takes_no_lock(module, db, database_url):
    module({"a": {"concurrency": 1}})
    sync()
    with connect(database_url) as other, other.transaction():
        ticker.limit(other, "b", concurrency=1)
        db.execute("SET lock_timeout = '5s'")
        assert synced(db) == {"a": "keep"}


def test_of_two_deploys_at_once_the_second_finds_the_work_done(module, db, database_url):
    module({"a": {"concurrency": 1}})
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ticker.limits'::regclass"
    with connect(database_url) as one, connect(database_url) as other, ThreadPoolExecutor(1) as pool:
        with one.transaction():
            assert synced(one) == {"a": "add"}
            later = pool.submit(synced, other)
            until(lambda: db.execute(waiting).fetchone() == (1,), "a lock that is not granted")
        assert later.result(timeout=60) == {"a": "keep"}


# ------------------------------------------------------------------------------------------- how jobs run functions


def stored(db):
    return db.execute(
        "SELECT name, batch, concurrency, repeatable, announced_at IS NULL FROM ticker.functions ORDER BY name"
    ).fetchall()


def test_a_release_stores_how_a_job_runs_functions_which_only_workers_announce(module, db):
    """With --plan, nothing is stored. A function that no worker has announced stays unknown once workers announce others."""
    module(mail_fetch={"concurrency": 100, "repeatable": True}, rows_add={"batch": 20, "every": "1h"})
    sync("--plan")
    assert stored(db) == []
    sync()
    assert stored(db) == [("mail.fetch", 1000, 100, True, True), ("rows.add", 20, 1, False, True)]
    assert overview.functions(db) == []
    module(mail_fetch={"concurrency": 50}, rows_add={"batch": 20, "every": "1h"})
    sync()
    assert stored(db)[0] == ("mail.fetch", 1000, 50, False, True)
    db.execute("INSERT INTO ticker.functions (name, announced_at) VALUES ('other', now())")
    assert ticker.register(db, "mail.fetch", every="1m").unknown_function


def test_a_registration_stores_what_is_missing_of_the_functions_that_its_process_knows(environ, db):
    """In the caller's transaction, and for functions that share jobs. It changes nothing that a worker has announced."""
    REGISTERED.update({"mail.fetch": RegisteredFunction(1000, 100, False), "rows.add": RegisteredFunction(20, 1, True)})
    REGISTERED["plain"] = RegisteredFunction(1, 1, False)
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('rows.add', 10, now())")
    ticker.register(db, "plain", every="1m")
    assert [name for name, *_ in stored(db)] == ["rows.add"]
    with pytest.raises(ZeroDivisionError), db.transaction():
        ticker.register(db, "mail.fetch", every="1m")
        raise ZeroDivisionError
    assert [name for name, *_ in stored(db)] == ["rows.add"]
    ticker.register(db, "mail.fetch", every="1m")
    assert stored(db) == [
        ("mail.fetch", 1000, 100, False, True), ("plain", 1, 1, False, True), ("rows.add", 10, 1, False, False),
    ]  # fmt: skip


def test_no_registration_waits_for_another_one_that_stores_functions(environ, db, database_url):
    REGISTERED["mail.fetch"] = RegisteredFunction(1000, 100, False)
    with connect(database_url) as other, other.transaction():
        ticker.register(other, "mail.fetch", name="first", every="1m")
        with db.transaction():
            db.execute("SET LOCAL lock_timeout = '1s'")
            ticker.register(db, "mail.fetch", name="second", every="1m")
    assert [name for name, *_ in stored(db)] == ["mail.fetch"]
