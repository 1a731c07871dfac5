"""Any text for times: which kind it is of, what is stored, in words; and what is refused, with which sentence."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import available_timezones

import pytest

from tests.schedules.expressions import REFUSED
from ticker.errors import BadInput
from ticker.model import Kind
from ticker.schedules import calendar, cron, kinds, once, zones
from ticker.tasks import checks, fields

NOW = datetime(2026, 11, 21, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "kind", "normal", "first"),
    [
        ("90", "interval", "1m30s", "2026-11-21T15:01:30+00:00"),
        ("1h30m", "interval", "1h30m", "2026-11-21T16:30:00+00:00"),
        ("PT5M", "interval", "5m", "2026-11-21T15:05:00+00:00"),
        ("*/5  *  * * *", "cron", "*/5 * * * *", "2026-11-21T15:05:00+00:00"),
        ("0 09 * * mon-Fri", "cron", "0 9 * * 1-5", "2026-11-23T09:00:00+00:00"),
        ("@daily", "cron", "0 0 * * *", "2026-11-22T00:00:00+00:00"),
        ("30 0 6 * * 1-5", "cron", "30 0 6 * * 1-5", "2026-11-23T06:00:30+00:00"),
        ("0 0 0 1 1 * 2028", "cron", "0 0 0 1 1 * 2028", "2028-01-01T00:00:00+00:00"),
        ("0 0 0 29 2 * */4", "cron", "0 0 0 29 2 * */4", None),
        ("0 0 * * 7", "cron", "0 0 * * 7", "2026-11-22T00:00:00+00:00"),
        ("5/15 3-3/2 * * 1/2", "cron", "5-59/15 3 * * 1-6/2", "2026-11-23T03:05:00+00:00"),
        ("daily", "calendar", "*-*-* 00:00:00", "2026-11-22T00:00:00+00:00"),
        ("Mon..Fri 9:00 Europe/Berlin", "calendar", "Mon..Fri *-*-* 09:00:00", "2026-11-23T08:00:00+00:00"),
        ("2027-01-01T00:00+01:00", "once", "2026-12-31T23:00:00Z", "2026-12-31T23:00:00+00:00"),
        ("1830000000", "once", "2027-12-28T13:20:00Z", "2027-12-28T13:20:00+00:00"),
        ("1830000000000", "once", "2027-12-28T13:20:00Z", "2027-12-28T13:20:00+00:00"),
    ],
)  # fmt: skip
def test_a_text_is_of_one_kind_and_has_one_normal_form(text, kind, normal, first):
    schedule = kinds.detect(text)
    found = schedule.next_after(NOW)
    assert (schedule.kind, schedule.text) == (kind, normal)
    assert (found and found.isoformat()) == first
    if kind != "interval":
        assert kinds.parse(schedule.kind, schedule.text, schedule.zone.key) == schedule


EXAMPLES = {
    Kind.INTERVAL: "1m", Kind.CRON: "0 9 * * 1-5", Kind.CALENDAR: "Mon..Fri 09:00", Kind.ONCE: "2027-01-01T09:00:00Z",
}  # fmt: skip


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_is_an_argument_of_register_and_is_read_back(kind):
    values = fields.check({checks.NAMES[kind]: EXAMPLES[kind]})
    assert values["kind"] == kind
    if kind is not Kind.INTERVAL:
        assert kinds.parse(kind, values["expression"]).text == values["expression"]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_is_refused_comes_with_one_sentence_that_says_what_to_write(text, words):
    with pytest.raises(BadInput) as caught:
        kinds.never_fires(kinds.detect(text), NOW, "expression", text)
    said = str(caught.value)
    assert words.within(said)
    assert len(said) < 300
    assert "\n" not in said


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "Europe/Nowhere", "europe/berlin", "", "posix/Europe/Berlin", "localtime", "UTC\x00", 7, None,
     "/usr/share/zoneinfo/UTC", "Factory", "A" * 10_000, "right/UTC", "tzdata.zi", "Europe"],
    ids=repr,
)  # fmt: skip
def test_a_zone_is_a_name_that_the_database_lists(name):
    with pytest.raises(BadInput, match="not a zone"):
        zones.zone("zone", name)


def test_a_misspelt_zone_names_the_nearest_one():
    with pytest.raises(BadInput, match="did you mean 'Europe/Zurich'"):
        zones.zone("zone", "Europe/Zurch")


def test_every_zone_that_the_database_lists_is_taken():
    names = available_timezones() - {"Factory", "localtime"}  # no places
    assert {zones.zone("zone", name).key for name in names} == names


def test_a_name_in_the_wrong_case_is_put_right():
    with pytest.raises(BadInput, match="write Europe/Berlin"):
        zones.zone("zone", "europe/berlin")


@pytest.mark.parametrize(
    "value",
    [
        "2026-05-01 09:00",
        "tomorrow",
        True,
        -1.5,
        float("inf"),
        None,
        float("nan"),
        "9" * 39,
        10**30,
        -1,
        "2026-05-01",
        [],
    ],
)
def test_a_single_time_has_a_zone_and_lies_between_1970_and_2199(value):
    with pytest.raises(BadInput):
        once.parse(value, zones.zone("zone", "UTC"))


def test_a_single_time_may_be_a_fraction_of_seconds():
    read = once.parse(1772355600.25, zones.zone("zone", "UTC"))
    assert read.text == "2026-03-01T09:00:00.250000Z"


@pytest.mark.parametrize("text", ["1772355600.25", " 1772355600250.0 "])
def test_a_text_may_name_a_fraction_of_seconds(text):
    assert once.parse(text, zones.zone("zone", "UTC")).text == "2026-03-01T09:00:00.250000Z"


@pytest.mark.parametrize(
    ("text", "normal"),
    [(name, "*-01,07-01 00:00:00") for name in ("semi-annually", "Semi-Annually", "biannually", "bi-annually")]
    + [("anually", "*-01-01 00:00:00"), ("*-*-* 09:00 Utc", "*-*-* 09:00:00"), ("daily utc", "*-*-* 00:00:00")],
)
def test_a_calendar_event_has_all_spellings_of_systemd(text, normal):
    read = calendar.parse(text, None)
    assert (read.text, read.zone.key) == (normal, "UTC")


def test_words_say_what_a_schedule_means():
    words = {text: kinds.detect(text).words() for text in ("*/5 * * * *", "0 9 * * 1-5", "1m", "Mon..Fri 09:00")}
    assert words == {
        "*/5 * * * *": "Every 5 minutes", "0 9 * * 1-5": "At 09:00, Monday through Friday",
        "1m": "Every 1m", "Mon..Fri 09:00": "Mon to Fri, at 09:00:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "listed"),
    [("*/25 * * * *", "At 0, 25, and 50 minutes past the hour"), ("0 */9 * * *", "At 00:00, 09:00 and 18:00")],
)
def test_a_step_that_does_not_divide_its_field_is_said_as_a_list(text, listed):
    assert kinds.detect(text).words() == listed


def test_a_rare_day_is_found_and_a_schedule_ends_with_its_last_year():
    utc = zones.zone("zone", "UTC")
    assert cron.parse("0 0 29 2 */7", utc).next_after(NOW) == datetime(2032, 2, 29, tzinfo=UTC)
    last = cron.parse("0 0 0 1 1 * 2027,2029/100", utc)
    found = kinds.times(last, NOW, 5)
    assert [x.year for x in found] == [2027, 2029, 2129]


def test_the_next_time_of_a_never_ending_search_is_given_up_quickly():
    began = time.perf_counter()
    with pytest.raises(BadInput):
        kinds.never_fires(kinds.detect("Mon 02-30"), NOW, "calendar", "Mon 02-30")
    assert time.perf_counter() - began < 5  # seconds: the bench holds it to 50 ms


def test_an_instant_may_have_fractions_and_any_zone():
    schedule = cron.parse("0 * * * *", zones.zone("zone", "Asia/Kolkata"))
    start = datetime(2026, 1, 1, 5, 29, 59, 999_999, tzinfo=UTC)
    assert schedule.next_after(start) == start + timedelta(microseconds=1)


@pytest.mark.parametrize("text", ["0 */2,3 * * *", "0 0 31,*/7 * *", "0 0 */7,31 2 *", "*/10,3 * * * *"])
def test_any_mixture_of_stars_and_numbers_is_read_and_has_words(text):
    schedule = kinds.detect(text)
    assert schedule.next_after(NOW) is not None
    assert schedule.words()
