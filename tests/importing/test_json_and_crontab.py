"""Import and export of JSON Lines and crontabs, through the commands."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.harness import command
from tests.schedules.expressions import RECORDED, ZONES, expression
from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.importing.sources import crontab
from ticker.tasks.fields import DEFAULTS, FIELDS, SETTINGS

pytestmark = pytest.mark.usefixtures("environ")

STATE = ("name", "owner", "paused_by", "paused_reason", "paused_until", "next_run")
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=40)
HOW = {
    "box": ["20s", "1500ms"], "retries": [2], "backoff": ["10s..5m"], "pause_after": [3], "probe": ["2h"], "dead_man": [4],
    "keep": ["problems"], "submitter": ["anna"], "group": ["news"], "priority": [-7], "subject": ["Ä \"b\""],
    "description": ["100 %\nnot lost"], "metadata": [{"a": [1, None, {"ü": 1.5}]}], "args": [[1, "ü", None, {"a": []}]], "kwargs": [{"id": 5, "text": "'%\\"}],
    "queue": ["slow"], "overlap": ["skip"], "limits": [["imap.example.org", "account:7"]], "catch_up": ["none"],
    "max_runs": [9], "starts": [LATER - timedelta(days=30)], "ends": [LATER], "function": ["myapp.poll"],
}  # fmt: skip
OF_INTERVAL = {
    "tolerance": ["7s"], "stretch": ["20h"], "spread": [True], "during": ["9-17 mon-fri", "22-6"], "zone": ["Europe/Berlin"],
}  # fmt: skip


def schedules(dice):
    """Returns an endless list of schedules of each kind."""
    calendars = [event["expression"] for event in RECORDED]
    while True:
        yield {"every": dice.choice(("1m", "90s", "1500ms", "7h", "5m..2h", "20d"))}
        yield {"cron": expression(dice), "zone": dice.choice(ZONES)}
        yield {"calendar": dice.choice(calendars)}
        yield {"at": LATER + timedelta(microseconds=dice.randint(0, 10**6)), "remove": dice.choice((True, False))}


def given(dice, schedule):
    """Returns arguments of register with some of the fields."""
    more = {name: dice.choice(values) for name, values in HOW.items() if dice.random() < 0.3}
    if "every" in schedule:
        more |= {name: dice.choice(values) for name, values in OF_INTERVAL.items() if dice.random() < 0.3}
        if "during" not in more:
            more.pop("zone", None)
    if "cron" in schedule and dice.random() < 0.2:
        more |= {"spread": True, "within": "5s"}
    return {"function": "poll", **more, **schedule}


def rows(db):
    """Returns the definitions and the states of all tasks, by name and owner."""
    columns = (*DEFAULTS, *STATE)
    tasks = ticker.list_tasks(db, limit=1000)
    return {(task.name, task.owner): {column: getattr(task, column) for column in columns} for task in tasks}


def filled(db, dice, count):
    """Registers tasks whose fields fit together, until there are `count`."""
    made = 0
    for schedule in schedules(dice):
        name, owner = f"task {made}", dice.choice((None, f"channels:{made}"))
        try:
            with db.transaction():
                task = ticker.register(db, name=name, owner=owner, **given(dice, schedule))
        except BadInput:
            continue
        if dice.random() < 0.2:
            ticker.edit(db, task, enabled=False)
        if dice.random() < 0.2:
            ticker.pause(db, task, by="anna", reason="x", until=dice.choice((None, LATER)))
        made += 1
        if made == count:
            return


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_import_of_an_export_gives_equal_rows(db, tmp_path, seed):
    filled(db, random.Random(seed), 100)
    before = rows(db)
    exported, _ = command("export", "json")
    (tmp_path / "tasks.jsonl").write_text(exported)
    db.execute("TRUNCATE ticker.tasks CASCADE")
    plan = ("import", "json", "--plan-file", str(tmp_path / "plan.json"))
    command(*plan, "--from", str(tmp_path / "tasks.jsonl"))
    done, _ = command(*plan, "--take-over")
    assert rows(db) == before
    assert sentence("imports.registered", added=100, changed=0, kept=0).within(done)
    assert sorted(command("export", "json")[0].splitlines()) == sorted(exported.splitlines())
    assert sentence("imports.registered", added=0, changed=0, kept=100).within(command(*plan, "--take-over")[0])


def test_a_subject_that_triggers_set_does_not_stop_an_import(db, tmp_path):
    db.execute("CREATE TABLE public.boxes (id int PRIMARY KEY, host text)")
    db.execute("INSERT INTO public.boxes VALUES (5, 'imap.example.org')")
    for statement in ticker.owners.triggers("boxes", key="id", subject_from="host"):
        db.execute(statement)
    ticker.register(db, "poll", owner="boxes:5", every="1m")
    ticker.register(db, "poll", name="own", subject="mine", every="1m")
    before = rows(db)
    exported, _ = command("export", "json")
    db.execute("TRUNCATE ticker.tasks CASCADE")
    planned(tmp_path, *exported.splitlines())
    command("import", "json", "--plan-file", str(tmp_path / "plan.json"), "--take-over")
    assert (rows(db), before["poll", "boxes:5"]["subject"]) == (before, "imap.example.org")


def test_a_single_time_whose_job_waits_has_not_had_its_last_run(db, tmp_path):
    task = ticker.register(db, "poll", at=LATER)
    db.execute("UPDATE ticker.tasks SET next_run = NULL, waiting = ARRAY[next_run] WHERE id = %s", [task.id])
    exported, _ = command("export", "json")
    assert json.loads(exported)["next_run"] == LATER.isoformat()
    assert verdicts(planned(tmp_path, exported.strip())) == {"poll": "same"}


def test_every_field_of_a_task_is_exported():
    assert HOW.keys() | OF_INTERVAL.keys() | {"every", "cron", "calendar", "at", "remove", "within"} >= SETTINGS.keys()
    assert FIELDS.keys() - SETTINGS.keys() == {"function", "enabled"}


def planned(tmp_path, *lines, source="json", more=(), code=0):
    """Plans the import of a file, and returns the plan."""
    (tmp_path / "entries").write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    )
    files = ("--from", str(tmp_path / "entries"), "--plan-file", str(tmp_path / "plan.json"))
    return answer("import", source, *files, *more, code=code)


def verdicts(plan):
    return {entry["id"]: entry["verdict"] for entry in plan["entries"]}


POLL = {"format": 1, "function": "poll", "every": "5m"}


def test_a_plan_writes_its_file_for_this_user_alone_and_no_row(db, tmp_path):
    plan = planned(tmp_path, POLL, {**POLL, "name": "b", "kwargs": {"password": "hunter2"}})
    assert plan["counts"] == {"same": 2, "changed": 0, "decide": 0, "refused": 0}
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in json.dumps(plan) + (tmp_path / "plan.json").read_text()
    assert ticker.list_tasks(db) == [] and db.execute("SELECT count(*) FROM ticker.events").fetchone() == (0,)


def test_what_does_not_fit_is_to_decide_or_refused(tmp_path):
    entries = [
        {**POLL, "box": "10m"}, {**POLL, "name": "fast", "every": "0.5s"}, {**POLL, "name": "twice"},
        {**POLL, "name": "twice", "every": "10m"}, {**POLL, "name": "rounded", "every": "45s"}, {**POLL, "name": "late", "at": "2020-01-01T00:00:00Z", "every": None},
        {**POLL, "name": "over", "next_run": None}, {**POLL, "name": "odd", "color": "red"},
    ]  # fmt: skip
    plan = planned(tmp_path, *entries, code=1)
    assert verdicts(plan) == {
        "poll": "decide", "fast": "refused", "twice": "decide", "twice (line 4)": "decide", "rounded": "same", "late": "refused",
        "over": "refused", "odd": "refused",
    }  # fmt: skip
    [over] = (entry for entry in plan["entries"] if entry["id"] == "over")
    assert over["reasons"] == [sentence("imports.over")]


def test_a_decision_settles_what_it_names(db, tmp_path):
    lines = {**POLL, "box": "10m"}, {**POLL, "name": "b", "box": "9m"}, {**POLL, "name": "c", "box": "1m"}
    plan = planned(
        tmp_path, *lines, more=("--decide", "*:box=2m", "--decide", "c:retries=2", "--queue", "polling=slow")
    )
    assert verdicts(plan) == {"poll": "same", "b": "same", "c": "same"}
    command("import", "json", "--plan-file", str(tmp_path / "plan.json"), "--take-over")
    assert sorted((task.box_ms, task.retries) for task in ticker.list_tasks(db)) == [
        (60_000, 2),
        (120_000, 0),
        (120_000, 0),
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--decide", "box=2m"), sentence("imports.no_decision", text="'box=2m'")),
        (("--decide", "poll:zone=UTC"), sentence("imports.zone_of_all", text="'poll:zone=UTC'")),
        (("--decide", "pol:box=2m"), sentence("imports.no_entry", text="'pol:box=2m'", source="json", near="'poll'")),
        (("--decide", "poll:colour=red"), sentence("imports.no_field", field="'colour'")),
        (("--queue", "slow"), sentence("imports.no_queues", text="'slow'")),
    ],
)
def test_a_wrong_option_is_one_sentence_and_writes_no_plan(tmp_path, words, reason):
    (tmp_path / "entries").write_text(json.dumps(POLL))
    file = tmp_path / "plan.json"
    said = refused("import", "json", "--from", str(tmp_path / "entries"), "--plan-file", str(file), *words)
    assert reason.within(said)
    assert not file.exists()


def test_only_what_was_planned_is_taken(db, tmp_path):
    plan_file = ("--plan-file", str(tmp_path / "plan.json"))
    assert sentence("imports.no_plan").within(refused("import", "json", *plan_file, "--take-over", code=78))
    planned(tmp_path, POLL, {**POLL, "name": "b", "box": "10m"}, code=1)
    assert sentence("imports.undecided", entries="1 entry").within(refused("import", "json", *plan_file, "--take-over"))
    planned(tmp_path, POLL)
    assert sentence("imports.other_source", source="'crontab'").within(
        refused("import", "crontab", *plan_file, "--take-over")
    )
    (tmp_path / "entries").write_text(json.dumps({**POLL, "every": "6m"}) + "\n" + json.dumps({**POLL, "name": "new"}))
    changed = refused("import", "json", *plan_file, "--take-over", code=1)
    assert sentence("imports.changed", entries="1 entry", example="'poll'").within(changed)
    assert ticker.list_tasks(db) == []
    (tmp_path / "entries").write_text(json.dumps(POLL) + "\n" + json.dumps({**POLL, "name": "new"}))
    out, _ = command("import", "json", *plan_file, "--take-over", code=1)
    assert sentence("imports.new", entry="new").within(out)
    assert [task.name for task in ticker.list_tasks(db)] == ["poll"]


@pytest.mark.parametrize(
    "words",
    [
        ("--take-over", "--shadow", "1h"),
        ("--old-jobs", "wait"),
        ("--take-over", "--zone", "UTC"),
        ("--no-user-column", "--take-over"),
    ],
)
def test_options_of_different_steps_are_refused(words):
    assert words[0].replace("--no-", "--") in (said := refused("import", "json", *words)) or "--zone" in said


ODD = [
    {"owner": ["a", "b", "c"]}, {"owner": 5}, {"name": 7}, {"name": ""}, {"every": []}, {"every": None}, {"kwargs": {"*": [1]}},
    {"kwargs": [1]}, {"args": {}}, {"enabled": "no"}, {"paused": "x"}, {"paused": {"reason": "x"}}, {"next_run": "x"},
    {"next_run": "2026-01-01"}, {"function": None}, {"function": 5}, {"metadata": []}, {"cron": 5, "every": None}, {"box": {}},
    {"at": "x", "every": None}, {"cron": "0 0 30 2 *", "every": None}, {"cron": "0 6 * * *"}, {"max_runs": -1}, {"first": 5},
]  # fmt: skip


def test_odd_values_are_refused_one_by_one(tmp_path):
    lines = [{**POLL, "name": f"n{number}", **odd} for number, odd in enumerate(ODD)]
    plan = planned(tmp_path, *lines, code=1)
    assert [entry["wanted"] for entry in plan["entries"] if entry["verdict"] in ("same", "changed")] == []
    assert len(plan["entries"]) == len(ODD)


def test_a_second_import_leaves_the_state_to_the_operator(db, tmp_path):
    paused = {"by": "ann", "reason": "moves", "until": None}
    planned(tmp_path, {**POLL, "enabled": False, "paused": paused, "next_run": None})
    command("import", "json", "--plan-file", str(tmp_path / "plan.json"), "--take-over")
    [task] = ticker.list_tasks(db)
    assert (task.enabled, task.paused_by, task.paused_reason) == (False, "ann", "moves")
    ticker.edit(db, task, enabled=True)
    ticker.resume(db, task)
    command("import", "json", "--plan-file", str(tmp_path / "plan.json"), "--take-over")
    [task] = ticker.list_tasks(db)
    assert (task.enabled, task.paused_by) == (True, None)


def test_lines_that_are_not_an_export_are_refused(tmp_path):
    for text in ("{", "[1]", '{"function": "poll"}'):
        (tmp_path / "entries").write_text(text)
        said = refused(
            "import", "json", "--from", str(tmp_path / "entries"), "--plan-file", str(tmp_path / "plan.json")
        )
        assert "line 1" in said


CRONTAB = r"""
# m h dom mon dow command
SHELL=/bin/sh
MAILTO="ops@example.org"
CRON_TZ=Europe/Berlin
*/5 * * * *        poll mail
*/5 * * * *        poll mail
0 6 13 * 5         /usr/bin/backup --full
0 22-23,0-2 * * *  at-night
5/15 9-17 * * 1-5  office
0 0 1 jan,jul *    half-a-year
0 7 * * 7          sunday
@daily             rotate 100\%
@hourly            hourly
15 10 * * mon#1    first-monday
0 6 L * *          last-day
0 6 15W * *        working-day
0 22-2 * * *       backwards
0 0 31 2 *         never
@reboot            start
@every_minute      often
0 7 * * *          date +%s
0 7 * * 1
  30 2 * * *  spaces   before   it
CRON_TZ=UTC
0 0 29 2 *         leap-day
"""
SAME = {
    "poll-mail", "poll-mail-2", "usr-bin-backup-full", "at-night", "office", "half-a-year", "sunday", "rotate-100", "hourly",
    "spaces-before-it", "leap-day",
}  # fmt: skip
REFUSED = {
    "first-monday": sentence("schedules.calendar_event_has", remedy="Mon *-*-01..07"),
    "last-day": sentence("schedules.calendar_event_has", remedy="*-*~01"),
    "working-day": sentence("schedules.has_letter", letter="W", field="day of month"),
    "backwards": sentence("schedules.runs_backwards_write", remedy="22-23,0-2"),
    "never": sentence("errors.never_fires"),
    "start": sentence("schedules.no_shorthand"),
    "often": sentence("schedules.no_shorthand"),
    "date-s": sentence("imports.percent"),
    "line-23": sentence("imports.no_command"),
}


def test_the_commands_of_a_crontab_become_arguments_of_one_function(db, tmp_path):
    more = ("--command-task", "shell.run", "--decide", "*:box=1m")
    plan = planned(tmp_path, CRONTAB, source="crontab", more=more, code=1)
    assert plan["counts"] == {"same": len(SAME), "changed": 0, "decide": 0, "refused": len(REFUSED)}
    reasons = {entry["id"]: entry["reasons"] for entry in plan["entries"] if entry["verdict"] == "refused"}
    assert reasons.keys() == REFUSED.keys()
    assert all(said.within(reasons[id_][0]) for id_, said in REFUSED.items())
    done, _ = command("import", "crontab", "--plan-file", str(tmp_path / "plan.json"), "--take-over", code=1)
    assert sentence("imports.cron_runs_on", lines="6, 7, 8, 9, 10, 11, 12, 13, 14, 24, 26").within(done)
    tasks = {
        task.name: (task.function, task.expression, task.zone, task.kwargs["command"]) for task in ticker.list_tasks(db)
    }
    assert tasks.keys() == SAME
    assert tasks["usr-bin-backup-full"] == ("shell.run", "0 6 13 * 5", "Europe/Berlin", "/usr/bin/backup --full")
    assert tasks["rotate-100"] == ("shell.run", "0 0 * * *", "Europe/Berlin", "rotate 100%")
    assert tasks["spaces-before-it"] == ("shell.run", "30 2 * * *", "Europe/Berlin", "spaces   before   it")
    assert tasks["leap-day"][2] == "UTC"


def test_a_file_of_the_system_names_users():
    lines = [*crontab.entries(["0 6 * * * root /sbin/check -a"], has_users=True)]
    assert [(line.schedule, line.user, line.command) for line in lines] == [("0 6 * * *", "root", "/sbin/check -a")]


@pytest.mark.parametrize(
    ("command", "may"),
    [
        ("root cd / && run-parts", True), ("feed.reader_2 /opt/poll", True), ("poll-feeds", False),
        ("cd /app && ./run", False), ("sh -c run", False), ("/sbin/check -a", False), ("", False),
    ],
)  # fmt: skip
def test_any_name_of_no_program_may_be_a_user(command, may):
    assert crontab.may_begin_with_a_user(command) is may


def test_a_crontab_whose_commands_all_begin_with_a_user_asks_whether_it_is_one(db, tmp_path):
    lines = "0 6 * * * root /sbin/check -a", "@daily www-data\t/usr/bin/php cron.php"
    more = ("--command-task", "shell.run", "--zone", "UTC", "--decide", "*:box=1m")
    plan = planned(tmp_path, *lines, source="crontab", more=more, code=1)
    assert {*verdicts(plan).values()} == {"decide"}
    assert all(sentence("imports.user_column").within(entry["reasons"][0]) for entry in plan["entries"])
    plan = planned(tmp_path, *lines, source="crontab", more=(*more, "--no-user-column"))
    assert verdicts(plan) == {"root-sbin-check-a": "same", "www-data-usr-bin-php-cron.php": "same"}
    plan = planned(tmp_path, *lines, source="crontab", more=(*more, "--user-column"))
    command("import", "crontab", "--plan-file", str(tmp_path / "plan.json"), "--take-over")
    assert {task.kwargs["command"] for task in ticker.list_tasks(db)} == {"/sbin/check -a", "/usr/bin/php cron.php"}
    plan = planned(tmp_path, *lines, "0 7 * * * /bin/other", source="crontab", more=more)
    assert plan["counts"]["same"] == 3


def test_a_crontab_leaves_zone_box_and_function_to_the_operator(tmp_path):
    assert verdicts(planned(tmp_path, "0 6 * * * poll", source="crontab", code=1)) == {"poll": "refused"}
    task = ("--command-task", "shell.run")
    assert verdicts(planned(tmp_path, "0 6 * * * poll", source="crontab", more=task, code=1)) == {"poll": "decide"}
    decided = (*task, "--zone", "UTC", "--decide", "poll:box=1m")
    assert verdicts(planned(tmp_path, "0 6 * * * poll", source="crontab", more=decided)) == {"poll": "same"}


def test_an_export_to_crontab_says_what_is_lost(db):
    ticker.register(db, "poll", every="15m", box="1m")
    ticker.register(db, "odd", every="7m")
    ticker.register(db, "report", cron="0 6 * * 1-5", retries=2, kwargs={"id": "50%"})
    ticker.register(db, "monthly", calendar="*-*~01 06:00")
    lines = command("export", "crontab", "--command", "run {name} {kwargs} {x}")[0].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "*/15 * * * * run poll '{}' {x}", """0 6 * * 1-5 run report '{"id": "50\\%"}' {x}""",
    ]  # fmt: skip
    comments = [line for line in lines if line.startswith("#")]
    assert sentence("imports.crontab_spacing", name="poll").within(comments[0])
    assert sentence("imports.crontab_interval", name="odd", interval="7m").within(comments[1])
    assert sentence("imports.crontab_lacks", name="report", fields="retries").within(comments[2])
    assert sentence("imports.crontab_schedule", name="monthly").within(comments[3])
    command("export", "crontab", "--strict", code=1)
    command("export", "crontab", "--strict", "--only", "none")
