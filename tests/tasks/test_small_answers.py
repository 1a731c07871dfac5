"""What is refused, or read otherwise than before, with a sentence: times, names and numbers."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

import ticker
from tests.sentences import sentence
from ticker.cli import main
from ticker.engine.tick import TickOptions, tick
from ticker.errors import BadInput, ConfigurationError
from ticker.schedules import calendar, cron
from ticker.settings import from_environment

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("*-*-18..18/5", "*-*-18 00:00:00"),
        ("*-*-18..20/5", "*-*-18 00:00:00"),
        ("*-*-18..23/5", "*-*-18..23/5 00:00:00"),
        ("*-*~5..5/2", "*-*~05 00:00:00"),
        ("*-*~1..5/9", "*-*~01 00:00:00"),
        ("1..1/3:0", "*-*-* 01:00:00"),
        ("20..2020/3-1-1", "2020-01-01 00:00:00"),
    ],
)
def test_a_range_that_its_step_leaves_is_its_first_value_alone_as_with_systemd(text, normal):
    assert calendar.parse(text, None).text == normal


def test_the_18th_alone_comes_once_a_month():
    times, at = [], BEGIN
    for _ in range(3):
        at = calendar.parse("*-*-18..18/5", None).next_after(at)
        times.append((at.month, at.day))
    assert times == [(1, 18), (2, 18), (3, 18)]


@pytest.mark.parametrize(("text", "instead"), [("*-*~5/5", "5"), ("*-*~1/1", "1"), ("*-*~3,05/7", "05")])
def test_a_day_from_the_end_of_the_month_whose_step_leads_past_it_is_refused_as_with_systemd(text, instead):
    with pytest.raises(BadInput, check=sentence("errors.never_repeats", remedy=instead).within):
        calendar.parse(text, None)


def test_a_day_from_the_end_of_the_month_may_have_a_step():
    assert calendar.parse("*-*~6/5", None).text == "*-*~06/5 00:00:00"


@pytest.mark.slow
@pytest.mark.parametrize("said", [{"name": " "}, {"queue": "   "}, {"function": "  "}])
def test_a_blank_name_is_refused(said, environ, db):
    with pytest.raises(
        BadInput, check=sentence("errors.blank_name", field=next(iter(said)), value=re.compile(r".*")).within
    ):
        ticker.register(db, **({"function": "poll", "every": "1m"} | said))


@pytest.mark.parametrize("text", ["\u0661", "1_0", "+1", " 1", "1.0", "0x1"])
@pytest.mark.parametrize("option", ["--priority", "--retries", "--max-runs", "--dead-man", "--pause-after"])
def test_the_command_line_takes_plain_digits_alone(text, option):
    answer = CliRunner().invoke(main, ["add", "poll", "--every", "1m", option, text])
    assert answer.exit_code == 2 and sentence("errors.plain_digits").within(answer.output)


@pytest.mark.parametrize(
    "arguments", [["list", "--limit", "1_0"], ["next", "1m", "-n", "\u0661"], ["web", "--port", "8_0"]]
)
def test_so_do_its_other_numbers(arguments):
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 2 and sentence("errors.plain_digits").within(answer.output)


@pytest.mark.parametrize("text", ["1_0", "\u0661", "+5", " 5"])
def test_so_does_the_environment(text):
    with pytest.raises(
        ConfigurationError,
        check=sentence(
            "errors.setting_whole_number", setting="TICKER_BATCH", value=re.compile(r".*"), least=1, most="10,000"
        ).within,
    ):
        from_environment({"TICKER_BATCH": text})


@pytest.mark.parametrize("text", ["CRON_TZ=Europe/Berlin 0 9 * * *", "TZ=Europe/Berlin 0 9 * * 1-5 2027"])
def test_a_zone_in_front_of_cron_is_answered_with_what_to_write(text):
    with pytest.raises(BadInput, check=sentence("errors.begins_with_a_zone", zone="Europe/Berlin").within):
        cron.parse(text, ZoneInfo("UTC"))


@pytest.mark.slow
def test_where_room_is_short_the_priority_decides_within_an_owner_and_not_between_owners(environ, db, store, queue):
    low, high, usual = (
        ticker.register(
            db, "poll", owner="mail:5", name=f"{priority}", every="1m", priority=priority, first=store.now()
        )
        for priority in (-1, 7, 0)
    )
    other = ticker.register(db, "poll", owner="mail:6", every="1m", priority=-1000, first=store.now())
    waiting = []
    for depth in (2, 3, 4):
        tick(store, queue, store.now(), TickOptions(depths={"polling": depth}))
        waiting.append({task.id for task in ticker.list_tasks(db) if task.waiting} - set().union(*waiting))
    assert waiting == [{high.id, other.id}, {usual.id}, {low.id}]
