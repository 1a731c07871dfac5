"""`ticker add | edit | list | next` with times: cron, calendar events, single times."""

import json
import re
from datetime import datetime, timedelta

import pytest

from tests.cli.answers import answer, refused
from tests.harness import command as ticker
from tests.sentences import sentence
from ticker.read import formatting

pytestmark = pytest.mark.usefixtures("environ")

KEYS = {"kind", "normalized", "zone", "words", "times", "warnings"}


@pytest.mark.slow
def test_a_task_with_times_is_added_shown_in_words_and_edited():
    ticker("add", "reports.daily", "--cron", "0 6 * * mon-fri", "--zone", "Europe/Berlin", "--max-runs", "3")
    shown = ticker("list", "reports.daily")[0]
    assert "cron 0 6 * * 1-5 Europe/Berlin" in shown
    assert "At 06:00, Monday through Friday" in shown
    assert "0 of 3" in shown
    changed = answer("edit", "reports.daily", "--calendar", "daily", "--max-runs", "0")
    assert (changed["kind"], changed["expression"], changed["max_runs"]) == ("calendar", "*-*-* 00:00:00", None)


def test_a_single_time_and_bounds_are_options():
    once = answer("add", "trial.ends", "--at", "2199-01-01T00:00:00+01:00", "--remove", "--catch-up", "none")
    assert (once["kind"], once["next_run"], once["remove"]) == ("once", "2198-12-31T23:00:00.000000Z", True)
    bounded = answer(
        "add", "poll", "--every", "1m", "--starts", "2199-01-01T00:00:00Z", "--ends", "2199-02-01T00:00:00Z"
    )
    assert bounded["next_run"] == "2199-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("expression", ["1m", "0 9 * * 1-5", "Mon..Fri 09:00", "2199-01-01T00:00:00Z", "5000000000"])
def test_validate_answers_with_stable_keys_and_times_in_utc(expression):
    found = answer("next", expression)
    assert set(found) == KEYS
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", instant) for instant in found["times"])


@pytest.mark.slow
def test_next_takes_an_expression_an_id_and_a_name():
    assert len(answer("next", "*/5 * * * *", "-n", "3")["times"]) == 3
    added = answer("add", "poll", "--every", "1h")
    for task in (str(added["id"]), "poll"):
        times = answer("next", task, "-n", "2")["times"]
        assert times[0] == re.sub(r"\.\d+", "", added["next_run"])
    ticker("add", "poll", "--owner", "channels:5", "--cron", "0 0 1 1 *")
    assert answer("next", "poll", "--owner", "channels:5", "-n", "1")["times"][0].endswith("-01-01T00:00:00Z")


def test_next_of_a_task_that_failures_have_slowed_is_as_far_apart_as_it_runs(db):
    answer("add", "poll", "--every", "1m", "--stretch", "1h", "--first", "1h")
    db.execute("UPDATE ticker.tasks SET stretched_ms = 240000")
    found = answer("next", "1", "-n", "3")
    first, second, third = map(datetime.fromisoformat, found["times"])
    assert (second - first, third - second) == (timedelta(minutes=4), timedelta(minutes=4))
    assert (found["words"], found["warnings"]) == (
        "Every 1m",
        [sentence("schedules.interval_while_it_fails", longer="4m", every="60 s")],
    )


STOPS = [
    ("enabled = false", "disabled", sentence("why.disabled", remedy=re.compile("ticker edit [0-9]+ --enable"))),
    ("owner_active = false", "owner inactive", sentence("why.owner_is_inactive")),
    (
        "paused_by = 'anna'",
        "paused by anna",
        sentence("why.paused", by="anna", remedy=re.compile("ticker resume [0-9]+")),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "state", "said"), STOPS)
def test_a_task_that_will_not_run_has_a_reason_and_no_next_time(change, state, said, db):
    due = formatting.moment(datetime.fromisoformat(answer("add", "poll", "--every", "1h", "--first", "1h")["next_run"]))
    assert due in ticker("list")[0]
    db.execute(f"UPDATE ticker.tasks SET {change}")
    found = answer("next", "1")
    assert (found["times"], found["words"], found["warnings"]) == ([], "Every 1h", [said])
    assert not re.search("^next", ticker("next", "1")[0], re.MULTILINE)
    assert said.within(ticker("why", "1")[0])
    shown = ticker("list", "1")[0]
    assert re.search(rf"^next run +none: {state}$", shown, re.MULTILINE)
    assert due not in shown + ticker("list")[0] + ticker("why", "1")[0]


def test_what_falls_on_a_change_of_clocks_is_warned_of():
    warnings = answer("next", "30 2 * * *", "--zone", "Europe/Berlin")["warnings"]
    assert [bool(re.search(words, text)) for words, text in zip(("pass over", "twice"), sorted(warnings), strict=True)]
    assert answer("next", "30 2 * * *")["warnings"] == []
    finer = answer("next", "*/10 * * * * *")["warnings"]
    assert sentence("schedules.finer_than_a_tick").within(finer[0])
    assert "time box is 5s" in finer[1]


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("next", "nonsense"), sentence("errors.neither_task_nor_schedule", word="'nonsense'", option="--owner type:id"), 1),
        (("next", "every 15 minutes"), sentence("errors.write_the_interval_alone", remedy="15m"), 2),
        (("next", "2027-01-31T00:00:00"), sentence("errors.no_offset", example="2026-05-01T09:00:00+02:00"), 2),
        (("next", "999999"), sentence("errors.unknown_task", task=999999), 1),
        (("next", "1m", "--zone", "Europe/Berlin"), sentence("errors.no_zone_without_hours"), 2),
        (("next", "/5 * * * *"), sentence("errors.write_instead", remedy="*/5"), 2),
        (("add", "poll", "--every", "1m", "--cron", "* * * * *"), sentence("errors.one_schedule"), 2),
        (("add", "poll", "--cron", "* * * * *", "--zone", "../../etc/passwd"), sentence("errors.is_no_zone"), 2),
        (("limit", "k", "--burst", "3"), sentence("errors.limit_is_missing", concurrency=20, rate="300/1m"), 2),
        (("limit", "k", "--concurrency", "2", "--burst", "3"), sentence("errors.burst_without_rate", rate="300/1m"), 2),
        (("add", "poll", "--cron", "TZ=Europe/Berlin 0 9 * * *"), sentence("errors.begins_with_a_zone", zone="Europe/Berlin"), 2),
        (("add", "poll", "--at", "yesterday"), sentence("errors.is_no_time"), 2),
        (("add", "poll", "--every", "1m", "--max-runs", "-5"), sentence("errors.is_no_whole_number"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(words, said, code):
    assert said.within(refused(*words, code=code))
    assert json.loads(ticker("list", "--json")[0]) == []
