"""Texts for durations, and back. Hypothesis looks for the input that escapes with another error than BadInput."""

from datetime import timedelta
from decimal import Decimal
from enum import IntEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sentences import sentence
from ticker.errors import QUOTED_AT_MOST, BadInput
from ticker.schedules import duration
from ticker.schedules.duration import DAY, HOUR, LONGEST, MINUTE, SECOND, milliseconds, words

HOW = sentence("durations.no_duration", examples="90 or 90s, 30s, 5m, 1h30m, 1d, or PT5M")


class Five(IntEnum):
    FIVE = 5


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Talkative:
    def __repr__(self) -> str:
        return "several\nlines\x00"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (90, 90 * SECOND), (1.5, 1500), (0.001, 1), (0.1 + 0.2, 300), (0, 0), (-0.0, 0), (Five.FIVE, 5000),
        ("90", 90 * SECOND), ("1.5", 1500), ("0", 0), ("007", 7000), ("  30s ", 30 * SECOND),
        ("30s", 30 * SECOND), ("5m", 5 * MINUTE), ("2h", 2 * HOUR), ("1d", DAY), ("1ms", 1), ("1500ms", 1500),
        ("1h30m", 90 * MINUTE), ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4005), ("90m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE), ("0.5s", 500), ("1.50000s", 1500), ("0.0001h", 360), ("366d", LONGEST),
        ("PT5M", 5 * MINUTE), ("PT1H30M", 90 * MINUTE), ("P1D", DAY), ("P1DT12H", 36 * HOUR), ("PT0.5S", 500),
        (timedelta(minutes=5), 5 * MINUTE), (timedelta(days=366), LONGEST), (timedelta(milliseconds=1), 1),
    ],
)  # fmt: skip
def test_every_form_is_read_to_the_millisecond(value, expected):
    assert milliseconds("every", value) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        *((value, HOW) for value in (
            "", " ", "-", "--5", "- 5", "+5", "s", "PT", "P", "P1DT", "P5M", "PT5", "P1W", "pt5m", "5 m", "1m 30s", "1m30",
            "30s1m", "1m1m", "1H", "1S", "90x", "one minute", "1e3", "0x10", "1_000", "1,5", "1.", ".5", "inf", "nan",
            "5m\n", "\t5m", "\u0660s", "5\u00a0m", "5m\x00", "\ud800", "1" * 16, "0" * 41, None, True, False, [], {},
            b"5m", 5j, Decimal(5), float("nan"), float("inf"), float("-inf"), object, ("5m",),
        )),
        *((value, sentence("durations.under_the_limit", limit="1s")) for value in (
            "-5", "-1d", "-PT5M", "-1ms", "0", "999ms", 0, 0.0, 0.999, -1, -1.5, -1e308, -(10**400), timedelta(-1),
            timedelta.min, timedelta(0),
        )),
        *((value, sentence("durations.over_the_limit", limit="366d")) for value in (
            "367d", "366d1ms", "31622400.001", "999999999999999d", "9" * 15 + "." + "0" * 15, 31_622_401, 31_622_400.001,
            2**63, 10**400, 1e308, timedelta(366, milliseconds=1), timedelta.max,
        )),
        *((value, sentence("durations.too_fine")) for value in (
            "1.0005", "1.5ms", "1.0000001h2m", "0.0001s", "1.123456789012345s", 1.0005, 86_400.0001, 31_622_399.9995, timedelta(microseconds=1),
        )),
        ("5M", sentence("durations.minutes_or_months", minutes="5m or PT5M")),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_with_one_sentence(value, problem):
    with pytest.raises(BadInput) as refused:
        milliseconds("every", value, least=SECOND)
    assert (refused.value.field, refused.value.problem) == ("every", problem)
    assert str(refused.value).startswith("every: ") and problem.ends(refused.value)
    assert "\n" not in str(refused.value)


def test_a_limit_of_the_caller_is_named_as_a_user_would_write_it():
    for value, limits, problem in [
        ("1m", {"most": 59_999}, sentence("durations.over_the_limit", limit="59s999ms")),
        ("-1", {}, sentence("durations.under_the_limit", limit="0s")),
        (5, {"least": 90 * MINUTE}, sentence("durations.under_the_limit", limit="1h30m")),
        (10**30, {"most": 10 * SECOND}, sentence("durations.over_the_limit", limit="10s")),
    ]:
        with pytest.raises(BadInput, check=problem.ends):
            milliseconds("box", value, **limits)


@pytest.mark.parametrize(("limit", "text"), [(LONGEST, "366d"), (1, "1ms")])
def test_a_value_at_the_limit_is_taken(limit, text):
    assert milliseconds("every", text, least=limit, most=limit) == limit


milliseconds_within_limits = st.integers(0, LONGEST)


@given(milliseconds_within_limits)
def test_words_are_read_back_to_the_same_number(number):
    assert milliseconds("every", words(number)) == number


@given(milliseconds_within_limits)
@example(16_888_698_484)
def test_a_number_of_seconds_a_decimal_text_and_a_timedelta_mean_the_same(number):
    seconds = number / SECOND
    assert milliseconds("every", seconds) == number
    assert milliseconds("every", f"{number // SECOND}.{number % SECOND:03}") == number
    assert milliseconds("every", timedelta(milliseconds=number)) == number


@given(st.tuples(*[st.integers(0, 360), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)]).filter(any))
def test_iso_and_short_texts_of_the_same_parts_mean_the_same(parts):
    days, hours, minutes, seconds = parts
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) // timedelta(milliseconds=1)
    assert milliseconds("every", f"P{days}DT{hours}H{minutes}M{seconds}S") == expected
    assert milliseconds("every", f"{days}d{hours}h{minutes}m{seconds}s") == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0s"), (1, "1ms"), (1000, "1s"), (90_000, "1m30s"), (5_400_000, "1h30m"), (DAY, "1d"), (LONGEST, "366d")],
)
def test_words_are_what_a_user_would_write(number, text):
    assert words(number) == text


duration_like = st.text("0123456789.-+PTDHMSdhms \t\n\u0663e", max_size=60)
anything = st.one_of(
    st.text(), duration_like, st.integers(), st.floats(), st.timedeltas(), st.booleans(), st.none(), st.binary(),
    st.decimals(), st.fractions(), st.complex_numbers(), st.lists(st.integers()), st.dictionaries(st.text(), st.text()),
    st.builds(object), st.builds(Unspeakable), st.builds(Talkative), st.just(milliseconds),
)  # fmt: skip


@given(anything)
@example(10**400)
@example(-(10**5000))
@example([10**5000])
@example(5e-324)
@example("\ud800")
def test_whatever_is_given_it_is_a_number_within_the_limits_or_bad_input(value):
    try:
        number = milliseconds("every", value, least=100, most=DAY)
    except BadInput as refused:
        assert len(str(refused)) < QUOTED_AT_MOST + 150
        assert str(refused).isprintable()
    else:
        assert type(number) is int
        assert 100 <= number <= DAY


@pytest.mark.parametrize(
    "text",
    ["1" * 100_000, "1d" * 50_000, " " * 100_000, "1." * 50_000, "P" + "1D" * 50_000, "M" * 100_000, "\ud800" * 9999],
)
def test_a_huge_text_is_refused_by_its_length_alone(text):
    with pytest.raises(BadInput, match="duration; write"):
        milliseconds("every", text)


def test_no_pattern_meets_a_text_of_more_than_forty_characters(monkeypatch):
    """So their time is bounded whatever the text; the longest that is read is itself within the limit."""
    seen = []

    class Watched:
        def __init__(self, pattern):
            self.pattern = pattern

        def fullmatch(self, text):
            seen.append(len(text))
            return self.pattern.fullmatch(text)

    for name in ("_PLAIN", "_SHORT", "_ISO"):
        monkeypatch.setattr(duration, name, Watched(getattr(duration, name)))
    for length in (39, 40, 41, 100_000):
        with pytest.raises(BadInput):
            milliseconds("every", "x" * length)
    assert max(seen) == 40 and len(seen) == 2 * 3
