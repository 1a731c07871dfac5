"""`ticker sync`: what modules declare beside their functions becomes tasks, and nothing else is touched."""

import json
import sys
from types import ModuleType

import pytest
from click.testing import CliRunner

import ticker
from tests.sentences import sentence
from ticker.cli import main


@pytest.fixture
def module(environ, function, monkeypatch):
    """A module `declared_polls`; `declare(...)` says anew what is in it."""
    name = "declared_polls"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))

    def declare(**tasks):
        from wrappers.pipeline import registry

        registry._functions.clear()
        for function_name, said in tasks.items():
            call = type(lambda: None)((lambda: None).__code__, {"__name__": name})
            call.__module__, call.__qualname__ = name, function_name
            function(function_name.replace("_", "."), **said)(call)

    return declare


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
