"""The command `ticker`, through its entry point; real processes where a signal, a pipe or an import is the question."""

import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from types import ModuleType

import pytest
from click.testing import CliRunner
from psycopg.pq import ExecStatus

from tests.cli.answers import INSTANT, RUN, answer, dropped, refused
from tests.factories import NINE, SECOND, ticked
from tests.harness import command as ticker
from tests.running import ROOT, until
from tests.sentences import sentence
from ticker import clock, owners
from ticker.cli import GROUPS, main, render
from ticker.db.connections import connect
from ticker.db.drivers import numbered
from ticker.read import tasks as read_tasks
from ticker.settings import psycopg_url
from ticker.tasks.fields import DEFAULTS

pytestmark = pytest.mark.usefixtures("environ")

COMMAND = [sys.executable, "-m", "ticker"]

TASK = {
    *DEFAULTS, "id", "guid", "owner", "owner_type", "owner_id", "name", "grace_ms", "owner_active", "paused_by", "paused_reason", "paused_until", "next_run", "waiting", "push_errors", "push_error",
    "push_after", "wait_reason", "last_run", "last_occurrence", "running_until", "cursor", "last_run_id", "last_outcome",
    "last_ended_at", "last_success_at", "last_worked_at", "failures", "created_at", "updated_at", "warnings", "state", "schedule", "in_words", "last_end",
    "started", "stretched_ms", "resumed_at", "phase_ms", "alone_until", "succeeded", "failed", "dropped", "pace_ms", "again_at", "pause", "is_resuming", "waits_for", "waits_because", "unknown_function",
}  # fmt: skip
PUSHED = {"due", "enqueued", "held", "errors", "missed", "outside_hours", "saved", "enough_jobs"}
SWEPT = {"overdue", "expired", "repushed", "waits_again", "lost", "errors"}
FOLLOWED = {"ended", "retries", "events"}
HEALTH = {
    "healthy", "problems", "max_age_ms", "postgresql", "redis", "tickers", "unattended", "late", "leased", "warnings", "pauses",
}  # fmt: skip
TICKER = {"id", "host", "pid", "started_at", "last_tick_at", "last_report", "age_ms"}
TICKER |= {"failure", "failing_ms", "seen_at", "seen_ms", "patience_ms"}


def rows(db):
    return db.execute(
        "SELECT t, r FROM ticker.tasks t FULL JOIN ticker.runs r ON r.task_id = t.id ORDER BY 1, 2"
    ).fetchall()


# ------------------------------------------------------------------------------------------------------------ tasks


def test_add_registers_a_task_and_prints_it():
    task = answer(
        "add", "mail.fetch", "--every", "1m", "--owner", "mail_channels:5", "--name", "inbox", "--queue", "slow",
        "--kwargs", '{"channel_id": 5}', "--tolerance", "2s", "--box", "PT20S", "--first", "2030-01-01T00:00:00+01:00",
        "--subject", "Post", "--description", "Holt Post.", "--metadata", '{"group": "a"}',
    )  # fmt: skip
    assert set(task) == TASK
    assert (task["owner"], task["name"], task["function"], task["queue"]) == (
        "mail_channels:5",
        "inbox",
        "mail.fetch",
        "slow",
    )
    assert (task["every_ms"], task["tolerance_ms"], task["box_ms"], task["grace_ms"]) == (60_000, 2_000, 20_000, 1_000)
    assert (task["kwargs"], task["metadata"], task["subject"]) == ({"channel_id": 5}, {"group": "a"}, "Post")
    assert task["next_run"] == "2029-12-31T23:00:00.000000Z"
    [warning] = task["warnings"]
    assert warning == sentence(
        "warnings.unknown_owner_type", type="'mail_channels'", near="", external='owners.external("mail_channels")'
    )
    assert answer("list", "inbox", "--owner", "mail_channels:5") == {**task, "warnings": []}


def test_all_times_are_utc_with_a_z():
    task = answer("add", "f", "--every", "1m")
    times = [value for key, value in task.items() if key.endswith(("_at", "_run", "until")) and value]
    assert len(times) == 3 and all(INSTANT.fullmatch(time) for time in times)


def test_adding_again_changes_only_what_is_new():
    first = answer("add", "f", "--every", "1m", "--queue", "slow")
    assert answer("add", "f", "--every", "1m") == first
    assert answer("add", "f", "--every", "2m")["queue"] == "slow"
    assert [task["every_ms"] for task in answer("list")] == [120_000]


def test_warnings_are_told_on_standard_error():
    out, err = ticker("add", "f", "--every", "45s", "--json")
    assert sentence("cli.warning_no_multiple", every="45 s").begins(err) and json.loads(out)["warnings"] == [err[9:-1]]


def test_a_first_time_may_be_a_duration_from_now(db):
    answer("add", "f", "--every", "1m", "--first", "2h")
    [[ahead]] = db.execute("SELECT extract(epoch FROM next_run - clock_timestamp()) FROM ticker.tasks")
    assert 7190 < ahead <= 7200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], sentence("errors.about", field="every")),
        (["--every", "1m", "--kwargs", "[1]"], sentence("errors.no_json_object", field="kwargs", type="list")),
        (["--every", "1m", "--kwargs", '{"a":'], sentence("errors.text_is_not_json", field="kwargs")),
        (["--every", "1m", "--evry", "2m"], sentence("cli.no_such_option")),
        (["--every", "1m", "f2"], sentence("cli.extra_argument")),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_nothing_is_written(words, said, db):
    assert said.within(refused("add", "f", *words))
    assert rows(db) == []


def test_edit_changes_a_task_and_adding_it_again_does_not_undo_that():
    answer("add", "f", "--every", "1m")
    edited = answer("edit", "f", "--every", "10m", "--disable", "--kwargs", '{"a": 1}')
    assert (edited["every_ms"], edited["enabled"], edited["kwargs"]) == (600_000, False, {"a": 1})
    assert answer("add", "f", "--every", "1m")["every_ms"] == 600_000
    assert answer("edit", str(edited["id"]), "--enable")["enabled"] is True


def test_a_bad_edit_changes_nothing(db):
    ticker("add", "f", "--every", "1m")
    before = rows(db)
    assert "nothing to change" in refused("edit", "f")
    assert sentence("errors.over_any_limit", field="box", value="'2m'").within(refused("edit", "f", "--box", "2m"))
    assert "needs no owner" in refused("edit", "1", "--owner", "a:1", "--disable")
    assert rows(db) == before


@pytest.mark.slow
def test_list_finds_by_owner_its_type_and_function():
    for words in (["f", "--owner", "a:1"], ["g", "--owner", "a:2"], ["f", "--owner", "b:1"], ["f"]):
        ticker("add", *words, "--every", "1m")

    def listed(*words):
        tasks = answer("list", *words)
        assert all(set(task) == TASK for task in tasks)
        return [f"{task['function']} {task['owner']}".strip() for task in tasks]

    assert listed() == ["f a:1", "g a:2", "f b:1", "f"]
    assert listed("--owner", "a:2") == ["g a:2"]
    assert listed("--owner-type", "a") == ["f a:1", "g a:2"]
    assert listed("--function", "f") == ["f a:1", "f b:1", "f"]
    assert listed("--limit", "2") == ["f a:1", "g a:2"]
    assert sentence("cli.there_are_more", number=2, things="tasks").within(ticker("list", "--limit", "2")[1])
    assert "more than" not in ticker("list", "--limit", "10000")[1]
    assert "cannot be combined" in refused("list", "--owner", "a:1", "--owner-type", "a")
    assert "--limit" in refused("list", "--limit", "-5")


def test_a_row_in_a_pipe_is_one_line_uncut_and_without_colour():
    name, owner = "n" * 200, "o" * 100 + ":" + "7" * 90
    ticker("add", "f", "--name", name, "--owner", owner, "--every", "1m")
    out, _ = ticker("list")
    [head, row] = out.splitlines()
    assert head.split()[:3] == ["id", "name", "owner"]
    assert row.split()[:6] == ["1", name, owner, "f", "every", "1m"] and "\x1b" not in out


@pytest.mark.slow
def test_colour_is_for_terminals_and_not_with_no_color(db, monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    def shown():
        monkeypatch.setattr(sys, "stdout", Terminal())
        render.print_tasks(read_tasks.list_tasks(db))
        return sys.stdout.getvalue()

    ticker("add", "f", "--every", "1m")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown() and "every 1m" in shown()


def test_what_a_hand_has_written_cannot_drive_the_terminal(db):
    ticker("add", "f", "--every", "1m")
    db.execute("UPDATE ticker.tasks SET subject = %s", ["\x1b]0;owned\x07\n[red]"])
    assert "subject    \\x1b]0;owned\\x07\\n[red]" in ticker("list", "f")[0]


@pytest.mark.slow
def test_an_unknown_task_is_an_exit_of_1_that_hints_at_owners():
    ticker("add", "f", "--owner", "a:1", "--every", "1m")
    assert refused("list", "77", code=1) == sentence("errors.unknown_task", task=77)
    assert refused("list", "f", code=1) == sentence(
        "errors.unknown_task_without_owner", task="'f'", remedy="--owner type:id"
    )
    assert refused("edit", "f", "--owner", "a:2", "--disable", code=1) == sentence(
        "errors.unknown_task_of_owner", task="'f'", owner="a:2"
    )
    for command in ("pause", "resume", "run-now", "remove"):
        assert refused(command, "--owner", "a:2", code=1) == sentence("errors.no_task_of_owner", owner="a:2")
        assert sentence("errors.unknown_task", task="'g'").within(refused(command, "g", code=1))
    assert sentence("errors.unknown_task", task=77).within(refused("runs", "77", code=1))


def test_what_names_no_task_is_bad_input():
    for command in ("pause", "resume", "run-now", "remove"):
        assert "is missing; pass a task" in refused(command)
    assert "not an id" in refused("list", "99999999999999999999")
    assert "not an id" in refused("list", "0")
    assert "missing argument 'TASK'" in refused("why")
    assert answer("runs", "--owner", "a:1") == []


@pytest.mark.slow
def test_pause_and_resume(db):
    ticker("add", "f", "--owner", "a:1", "--every", "1m")
    [paused] = answer("pause", "f", "--owner", "a:1", "--reason", "moving house", "--until", "2h", "--by", "ann")
    assert (paused["paused_by"], paused["paused_reason"], paused["state"]) == ("ann", "moving house", "paused")
    [[ahead]] = db.execute("SELECT extract(epoch FROM paused_until - clock_timestamp()) FROM ticker.tasks")
    assert 7190 < ahead <= 7200
    assert sentence("cli.paused_until", by="ann", until=20).within(ticker("list")[0])
    assert ticker("resume", "--owner", "a:1")[0] == sentence("cli.resumed", task="1 f of a:1")
    assert ticker("resume", "--owner", "a:1")[0] == "nothing was resumed\n"
    assert answer("list", "1")["paused_by"] is None


def test_pause_says_who_it_was_and_takes_a_time(monkeypatch):
    monkeypatch.setenv("LOGNAME", "bob")
    ticker("add", "f", "--every", "1m")
    [paused] = answer("pause", "f", "--until", "2030-01-01T00:00:00Z")
    assert (paused["paused_by"], paused["paused_until"]) == ("bob", "2030-01-01T00:00:00.000000Z")
    assert sentence("errors.no_duration", field="until", value="'soon'").within(
        refused("pause", "f", "--until", "soon")
    )
    assert sentence("errors.or_write_a_time", example="2026-07-01T12:00:00Z").ends(
        refused("pause", "f", "--until", "yesterday")
    )
    assert "has already passed" in refused("pause", "f", "--until", "0")
    assert "by: '' has 0 characters" in refused("pause", "f", "--by", "")


@pytest.mark.slow
def test_remove_takes_a_task_or_all_of_an_owner():
    for name in "fgh":
        ticker("add", name, "--owner", "a:1", "--every", "1m")
    assert ticker("remove", "g", "--owner", "a:1")[0] == sentence("cli.removed", task="2 g of a:1")
    assert [task["name"] for task in answer("remove", "--owner", "a:1")] == ["f", "h"]
    assert ticker("list")[0] == "no tasks\n" and answer("list") == []


# ------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.slow
def test_run_now_plans_a_run_which_the_next_tick_pushes():
    ticker("add", "f", "--every", "1m", "--first", "2h")
    said, warning = ticker("run-now", "1")
    assert said == sentence("cli.planned_run", run=1)
    assert warning == sentence("cli.warning_no_ticker", run="ticker run", tick="ticker tick")
    ticker("tick")
    [run] = answer("runs", "f")
    assert set(run) == RUN
    assert (run["id"], run["kind"], run["state"], run["outcome"]) == (1, "manual", "pushed", None)


@pytest.mark.slow
def test_run_now_says_whether_it_joins_a_run_or_waits_for_one(db):
    ticker("add", "f", "--every", "1m", "--first", "2h")
    db.execute(
        "UPDATE ticker.tasks SET running_until = clock_timestamp() + interval '1 h', run_token = gen_random_uuid()"
    )
    assert ticker("run-now", "f")[0] == sentence("cli.planned_run_after_another", run=1)
    assert ticker("run-now", "f")[0] == sentence("cli.joined_run", run=1)
    assert answer("run-now", "f") == {"run_ids": [1], "joined": [1]}


@pytest.mark.slow
def test_what_is_disabled_cannot_run_now_and_is_passed_over_beside_others(db):
    for name in "fg":
        ticker("add", name, "--owner", "a:1", "--every", "1m")
    ticker("edit", "1", "--disable")
    ticked(db)
    assert refused("run-now", "1") == sentence("errors.disabled", task="'f'", remedy="ticker edit 1 --enable")
    assert ticker("run-now", "--owner", "a:1") == (
        sentence("cli.planned_run", run=1), sentence("cli.warning_disabled", number=1, owner="a:1"),
    )  # fmt: skip
    db.execute("UPDATE ticker.tasks SET owner_active = false")
    assert refused("run-now", "2") == sentence("errors.inactive_owner", task="'g'")


def test_runs_show_the_arithmetic_of_a_drop(db):
    judged = {"checked_last_run": "2026-03-01T12:01:35Z", "checked_at": "2026-03-01T12:02:03.25Z", "every_ms": 60_000,
              "tolerance_ms": 5_000}  # fmt: skip
    dropped(db, 1, "too_early", **judged)
    dropped(db, 1, "clock", **judged | {"checked_last_run": "2026-03-02T00:00:00Z"})
    dropped(db, 1, "duplicate", **judged)
    last, clock, early = ticker("runs")[0].splitlines()[1:]
    assert early.endswith("too_early: 12:02:03.250 < 12:01:35 + 1m - 5s: 26s750ms early")
    assert clock.endswith("clock: 12:02:03.250 < last run 2026-03-02 00:00:00")
    assert last.endswith("dropped  duplicate")
    assert [run["early_ms"] for run in answer("runs")] == [None, None, 26_750]


def test_runs_of_a_task_that_is_gone_are_found_by_its_id_newest_first(db):
    dropped(db, 5, "gone", ended_at="2026-03-01T12:00:00Z")
    dropped(db, 5, "paused")
    dropped(db, 6, "gone")
    db.execute("INSERT INTO ticker.runs (task_id, kind, state, outcome, started_at, ended_at)"
               " VALUES (5, 'manual', 'ended', 'failed', '2026-03-01T12:00:00Z', '2026-03-01T12:00:01.5Z')")  # fmt: skip
    assert [(run["id"], run["reason"], run["took_ms"]) for run in answer("runs", "5")] == [(4, "", 1500), (2, "paused", None), (1, "gone", None)]  # fmt: skip
    assert [run["id"] for run in answer("runs", "--outcome", "dropped", "--limit", "2")] == [3, 2]
    assert answer("runs", "5", "--outcome", "failed")[0]["id"] == 4
    db.execute("UPDATE ticker.runs SET outcome = 'lost' WHERE id = 4")
    assert answer("runs", "5", "--limit", "1")[0]["took_ms"] is None
    assert sentence("cli.not_one_of").within(refused("runs", "--outcome", "great"))


def test_runs_of_a_known_task_without_any_are_none():
    ticker("add", "f", "--every", "1m")
    assert ticker("runs", "f")[0] == "no runs\n" and answer("runs", "1") == []


# -------------------------------------------------------------------------------------------------- tick and health


@pytest.mark.slow
def test_tick_makes_one_pass_and_reports_it(redis):
    with clock.use(lambda: NINE):
        ticker("add", "f", "--every", "1m")
        ticker("add", "g", "--every", "1m", "--first", "500ms")  # no look-ahead: not due yet
        ticker("run-now", "g")
        report = answer("tick")
    assert set(report) == {
        "now",
        "due",
        "planned",
        "swept",
        "followed",
        "left",
        "look_at",
        "enqueued",
        "errors",
        "took_ms",
    }
    assert (set(report["due"]), set(report["planned"]), set(report["swept"])) == (PUSHED, PUSHED, SWEPT)
    assert set(report["followed"]) == FOLLOWED
    assert (report["due"]["due"], report["planned"]["due"], report["enqueued"], report["errors"]) == (1, 1, 2, 0)
    assert INSTANT.fullmatch(report["now"])
    assert redis.llen("rq:queue:polling") == 2
    assert re.fullmatch(r"tick \S+ \S+Z due=\d enqueued=\d errors=0 expired=1 took=[\d.]+\n", ticker("tick")[0])


@pytest.mark.slow
def test_a_dry_run_lists_what_is_due_and_changes_nothing(db, redis):
    ticker("add", "f", "--every", "1m")
    ticker("add", "later", "--every", "1m", "--first", "1h")
    before = rows(db)
    assert [(set(task), task["name"]) for task in answer("tick", "--dry-run")] == [(TASK, "f")]
    assert "every 1m" in ticker("tick", "--dry-run")[0]
    assert rows(db) == before and redis.keys() == []
    running = "wait_reason = 'still_running', run_token = gen_random_uuid(), running_until = clock_timestamp() + interval '1 h'"
    db.execute(f"UPDATE ticker.tasks SET {running} WHERE name = 'f'")
    assert ticker("tick", "--dry-run")[0] == "nothing is due\n"
    db.execute("UPDATE ticker.tasks SET wait_reason = NULL, run_token = NULL, running_until = NULL")
    ticker("tick")
    assert ticker("tick", "--dry-run")[0] == "nothing is due\n"


@pytest.mark.slow
def test_a_tick_that_cannot_push_all_says_so(redis):
    redis.set("rq:queue:broken", "no list")
    ticker("add", "f", "--every", "1m", "--queue", "broken")
    out, err = ticker("tick", "--json", code=1)
    assert json.loads(out)["errors"] == 1
    assert err == sentence("cli.not_all_pushed", number=1, remedy="ticker list")
    assert "not pushed: WRONGTYPE" in ticker("list")[0]


def test_health_is_told_by_the_age_of_the_last_tick(db):
    assert sentence("health.no_ticker").within(ticker("health", code=1)[1])
    ticked(db, 100 * SECOND)
    out, err = ticker("health", code=1)
    ago = re.compile("1[01][0-9] s")
    assert err == sentence(
        "cli.error_no_tick_within", span="1m30s", pid=7, host="here", ago=ago, remedy="ticker run"
    )  # fmt: skip
    assert out.splitlines()[:2] == ["PostgreSQL answers", "Redis answers"] and out.endswith("s ago (silent)\n")
    ticker("health", "--max-age", "5m")
    ticked(db, 3 * SECOND)
    healthy = answer("health")
    assert (set(healthy), healthy["healthy"], healthy["max_age_ms"]) == (HEALTH, True, None)
    assert healthy["redis"] == {"answers": True, "error": None}
    assert [set(one) for one in healthy["tickers"]] == [TICKER, TICKER]
    assert 3_000 <= healthy["tickers"][0]["age_ms"] < 60_000
    assert sentence("errors.no_duration", field="--max-age", value="'x'").within(refused("health", "--max-age", "x"))


def test_health_names_the_last_tick_even_if_its_ticker_was_stopped(db):
    ticked(db, 5 * 60 * SECOND)  # killed
    ticked(db, 3 * SECOND, ended=True)
    told = answer("health", code=1)
    stopped = sentence("health.last_ticker_stopped", at=re.compile(r"([0-9-]{10} )?[0-9:]{8}"), remedy="ticker run")
    assert told["problems"] == [stopped] and len(told["tickers"]) == 1
    ticked(db, 2 * SECOND)
    assert answer("health")["problems"] == []


def test_a_tick_far_in_the_future_is_not_healthy(db):
    ticked(db, -90_000 * SECOND)
    assert sentence("health.ahead", span="1 d").within(ticker("health", code=1)[1])


def test_health_says_which_server_does_not_answer(db, monkeypatch):
    ticked(db, 3 * SECOND)
    monkeypatch.setenv("REDIS_URL", "unix:///nowhere")
    out, err = ticker("health", code=1)
    assert sentence("errors.redis_refuses", setting="REDIS_URL").times(out + err) == 1 and "Redis answers" not in out
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres@/nowhere?host=/nowhere")
    told = answer("health", code=1)
    assert (told["healthy"], told["postgresql"]["answers"], told["redis"]["answers"]) == (False, False, False)
    assert sentence("errors.database_unavailable", setting="DATABASE_URL").within(told["postgresql"]["error"])


@pytest.mark.slow
def test_a_queue_with_jobs_that_nobody_listens_to_is_not_healthy(db):
    ticked(db, 3 * SECOND)
    ticker("add", "mail.fetch", "--every", "1m", "--queue", "lonely")
    ticker("tick")
    told = answer("health", code=1)
    assert told["unattended"] == {"lonely": 1}
    assert told["problems"] == [
        sentence("health.unattended", jobs="1 job waits", queue="lonely", remedy="ticker worker --tasks ... lonely")
    ]


# --------------------------------------------------------------------------------------------------------------- db


@pytest.mark.slow
def test_db_check_lists_problems_before_the_upgrade_and_none_after(monkeypatch):
    monkeypatch.setenv("TICKER_SCHEMA", "other")
    told = answer("db", "upgrade", "--check", code=1)
    assert told["fits"] is False and sentence("errors.run_the_upgrade", remedy="ticker db upgrade").within(
        told["problems"][0]
    )
    assert sentence("errors.run_the_upgrade", remedy="ticker db upgrade").ends(refused("list", code=78))
    assert sentence("cli.schema_is_at", schema="other", revision=0).within(ticker("db", "upgrade")[0])
    ticker("db", "upgrade")
    assert answer("db", "upgrade", "--check") == {"fits": True, "problems": []}
    assert answer("list") == []


@pytest.mark.slow
def test_db_check_sees_what_a_hand_has_changed(db):
    db.execute("ALTER TABLE ticker.tasks DROP COLUMN subject CASCADE")
    out, err = ticker("db", "upgrade", "--check", code=1)
    assert "subject" in out and sentence("cli.error_schema_does_not_fit", schema="ticker").begins(err)


@pytest.mark.slow
def test_db_check_names_the_tables_of_owners_whose_tasks_would_outlive_them(db):
    db.execute(
        'CREATE TABLE feeds (id int PRIMARY KEY); CREATE SCHEMA crm; CREATE TABLE crm."Big feeds" (id int PRIMARY KEY)'
    )
    db.execute('INSERT INTO feeds VALUES (1); INSERT INTO crm."Big feeds" VALUES (1)')
    assert answer("db", "upgrade", "--check")["fits"] is True
    for owner in ("feeds:1", "crm.Big feeds:1", "no_table:1", "Feeds:1", "crm.feeds:1"):
        ticker("add", "poll", "--every", "1m", "--owner", owner)
    ticker("add", "poll", "--every", "1m")
    told = answer("db", "upgrade", "--check", code=1)["problems"]
    big, small = told
    assert sentence("errors.no_trigger_of_ours", table="crm.Big feeds").begins(big)
    assert sentence("errors.no_trigger_of_ours", table="feeds").begins(small)
    assert 'owners.install(op, "feeds")' in small
    db.execute("\n".join([*owners.triggers("feeds"), *owners.triggers("crm.Big feeds")]))
    assert answer("db", "upgrade", "--check") == {"fits": True, "problems": []}
    db.execute("DROP TABLE feeds CASCADE; CREATE TABLE feeds (id int PRIMARY KEY)")
    assert sentence("errors.no_trigger", table="feeds").within(ticker("db", "upgrade", "--check", code=1)[0])


def test_db_sql_prints_the_statements_and_asks_no_server(monkeypatch):
    monkeypatch.delenv("DATABASE_URL")
    out, _ = ticker("db", "upgrade", "--sql")
    assert out.startswith('CREATE SCHEMA IF NOT EXISTS "ticker";') and "CREATE TABLE" in out


def test_db_sql_prints_a_statement_as_it_is_sent(db):
    names = ticker("db", "sql")[0].split()
    assert names == sorted(names) and {"start", "finish", "resume_tasks"} <= {*names}
    text, _ = ticker("db", "sql", "--statement", "start")
    sent, _ = numbered(text)
    assert db.pgconn.prepare(b"it", sent.encode()).status == ExecStatus.COMMAND_OK
    assert '"ticker".tasks' in text and len(text) > 5000
    assert "(did you mean 'start'?)" in refused("db", "sql", "--statement", "strat")


# ----------------------------------------------------------------------------------------------- how a command ends


@pytest.mark.parametrize(
    ("name", "value", "words", "said"),
    [
        (
            "DATABASE_URL",
            "postgresql://me:ge%zzheim@host/name",
            ["list"],
            sentence("errors.about", field="DATABASE_URL"),
        ),
        ("REDIS_URL", "", ["tick"], sentence("errors.is_not_set", setting="REDIS_URL")),
        ("REDIS_URL", "redis://me:geheim/0", ["run"], sentence("errors.about", field="REDIS_URL")),
        ("REDIS_URL", "unix:///nowhere", ["run"], sentence("errors.redis_refuses", setting="REDIS_URL")),
        ("TICKER_SCHEMA", 'a"b', ["list"], sentence("errors.about", field="TICKER_SCHEMA")),
        ("TICKER_SCHEMA", "nowhere", ["run"], sentence("errors.run_the_upgrade", remedy="ticker db upgrade")),
    ],
)
def test_a_wrong_setting_or_an_absent_server_is_78_and_one_sentence(monkeypatch, name, value, words, said):
    monkeypatch.setenv(name, value)
    told = refused(*words, code=78)
    assert said.within(told) and "heim" not in told


def test_a_wrong_option_of_run_is_bad_input_even_beside_a_right_setting():
    assert sentence("errors.under_the_limit", field="--tick", value="'0'", limit="100ms").within(
        refused("run", "--tick", "0")
    )
    assert sentence("errors.no_whole_number", field="--batch", value="'-1'").within(refused("run", "--batch", "-1"))


def test_a_server_that_goes_away_in_the_middle_is_1(monkeypatch):
    monkeypatch.setattr(
        read_tasks, "list_tasks", lambda db, **_: db.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    )
    assert sentence("errors.database_answers", setting="DATABASE_URL").within(refused("list", code=1))


def test_an_error_of_our_own_is_a_sentence_too_and_a_traceback_on_request(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no\nluck")

    monkeypatch.setattr(read_tasks, "list_tasks", broken)
    assert refused("list", code=1) == sentence(
        "cli.error_of_its_own", error="RuntimeError: no", remedy="TICKER_DEBUG=1"
    )
    monkeypatch.setenv("TICKER_DEBUG", "1")
    assert "Traceback (most recent call last)" in ticker("list", code=1)[1]


def test_an_interrupt_is_quiet(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(read_tasks, "list_tasks", interrupted)
    out, err = ticker("list", code=130)
    assert (out, err.strip()) == ("", "")


def test_an_unknown_command_is_bad_input_and_none_at_all_shows_the_help():
    assert refused("bo\ngus") == sentence("cli.no_such_command_see", command="'bo\\ngus'", remedy="ticker --help")
    assert "Processes:" in ticker(code=2)[1]


def test_the_demo_gives_the_exit_code(monkeypatch):
    stage = ModuleType("ticker.demo.main")
    stage.demo = lambda web: 8 if web else 7
    monkeypatch.setitem(sys.modules, "ticker.demo.main", stage)
    ticker("demo", code=7)
    ticker("demo", "--web", code=8)


# -------------------------------------------------------------------------------------------------- real processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completing"),
    [(["--help"], {}), ([], {"_TICKER_COMPLETE": "bash_complete", "COMP_WORDS": "ticker ", "COMP_CWORD": "1"})],
    ids=["help", "completion"],
)
def test_help_and_completion_import_neither_servers_nor_schedulers(words, completing):
    asked = f"""import sys; from ticker.cli import main
try: main({words}, prog_name='ticker')
finally: print(*sys.modules, file=sys.stderr)"""
    environment = {**os.environ, **completing}
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "runs" in done.stdout
    heavy = {"sqlalchemy", "alembic", "rq", "redis", "apscheduler", "psycopg", "rich", "wrappers"}
    loaded = set(done.stderr.split())
    assert done.returncode == 0 and not heavy & loaded
    assert {name for name in loaded if name.startswith("ticker.")} == {
        "ticker.cli", "ticker.cli.exits", "ticker.errors",
    }  # fmt: skip


@pytest.mark.parametrize("command", main.commands.values(), ids=lambda command: command.name)
def test_the_help_of_all_commands_says_of_each_what_its_own_help_begins_with(command):
    loaded = command.load()
    assert (loaded.name, loaded.help.split("\n\n")[0]) == (command.name, command.help)


def test_a_ticker_says_that_the_application_has_a_module_of_its_name(database_url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ticker.daemon.loop.run", lambda *_: None)
    assert ticker("run")[1] == ""
    (tmp_path / "ticker.py").touch()
    assert ticker("run")[1] == sentence("cli.warning_shadowed", file=tmp_path / "ticker.py", package="ticker")


def test_a_ticker_runs_in_a_folder_that_was_removed(database_url, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr("ticker.daemon.loop.run", lambda *_: None)
    assert ticker("run")[1] == ""


def test_no_summary_is_cut_at_80_columns():
    for group, title in (("", "Processes:"), ("db", "Commands:")):
        shown = CliRunner().invoke(main, [*group.split(), "--help"], terminal_width=80).output
        assert "..." not in shown.partition(title)[2] != ""


def test_the_help_lists_each_command_once_under_a_title():
    shown = CliRunner().invoke(main, ["--help"]).output.partition("Processes:")[2]
    assert re.findall(r"^  ([a-z-]+) ", shown, flags=re.MULTILINE) == [*main.commands]
    assert re.findall(r"^(\S.*):$", shown, flags=re.MULTILINE) == [*GROUPS][1:]


@pytest.mark.parametrize("words", [("--watch",), ("--queue", "polling"), ("--state", "late")])
def test_a_task_is_shown_without_filters(words):
    assert sentence("cli.one_task_without_filters").within(refused("list", "1", *words))


@pytest.mark.parametrize("words", [("--check", "--sql"), ("--json",), ("--sql", "--json")])
def test_tables_are_upgraded_checked_or_printed(words):
    assert "give --check" in refused("db", "upgrade", *words)


@pytest.mark.slow
def test_a_closed_pipe_is_quiet_and_an_old_encoding_shows_everything(database_url):
    ticker("add", "f", "--name", "łódź", "--every", "1m")
    environ = os.environ | {"PYTHONIOENCODING": "latin-1"}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        process = subprocess.Popen([*COMMAND, "list"], cwd=ROOT, stdout=closed, stderr=subprocess.PIPE)
    old = subprocess.run([*COMMAND, "list"], cwd=ROOT, env=environ, capture_output=True, timeout=60)
    assert old.returncode == 0 and "\\u0142ód\\u017a" in old.stdout.decode("latin-1")
    assert process.communicate(timeout=60)[1] == b""


@pytest.mark.slow
def test_sigint_ends_a_command_that_waits_with_130(db, database_url):
    """It waits for two seconds at most, in which a machine that is busy may not come to the signal: then once more."""
    ticker("add", "f", "--every", "1m")
    with connect(psycopg_url(database_url)) as other, other.transaction():
        other.execute("LOCK TABLE ticker.tasks")
        for _ in range(5):
            process = subprocess.Popen([*COMMAND, "list"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            until(lambda waits=waits: db.execute(waits).fetchone(), "the command waits for the lock")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            if b"longer than 2 s" not in err:
                break
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
