"""How long to wait behind an attempt that failed, and by when the next one must be over. Pure."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles import too_early
from tests.sentences import sentence
from ticker.engine import timing
from ticker.engine.timing import SHORTEST_INTERVAL, Backoff
from ticker.errors import BadInput
from ticker.schedules.duration import LONGEST, MINUTE, SECOND

DURATIONS = st.integers(1, LONGEST)
ATTEMPTS = st.integers(1, 100)
SEEDS = st.integers(1, 2**63 - 1)


@st.composite
def backoffs(draw):
    return Backoff(*sorted(draw(st.tuples(DURATIONS, DURATIONS))))


@pytest.mark.parametrize(
    ("said", "least", "most", "text"),
    [
        ("10s..5m", 10 * SECOND, 5 * MINUTE, "10s..5m"),
        (" 10s .. 300 ", 10 * SECOND, 5 * MINUTE, "10s..5m"),
        ("10s", 10 * SECOND, 10 * SECOND, "10s"),
        ("10s..10s", 10 * SECOND, 10 * SECOND, "10s"),
        (0.5, 500, 500, "500ms"),
        (90, 90 * SECOND, 90 * SECOND, "1m30s"),
        (timedelta(minutes=1), MINUTE, MINUTE, "1m"),
        ("PT10S..PT5M", 10 * SECOND, 5 * MINUTE, "10s..5m"),
    ],
)
def test_a_backoff_is_one_duration_or_from_one_to_another(said, least, most, text):
    backoff = Backoff.parse("backoff", said)
    assert (backoff, backoff.text) == (Backoff(least, most), text)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("5m..10s", sentence("errors.backoff_ends_before", field="backoff", value="'5m..10s'", example="10s..5m")),
        ("0..5m", sentence("errors.under_the_limit", field="backoff", value="'0'", limit="1ms")),
        (0, sentence("errors.under_the_limit", field="backoff", value=0, limit="1ms")),
        ("10s..", sentence("errors.no_duration", field="backoff", value="''")),
        ("..5m", sentence("errors.no_duration", field="backoff", value="''")),
        ("1s..2s..3s", sentence("durations.is_none")),
        ("1s...5m", sentence("durations.is_none")),
        ("1s..400d", sentence("errors.over_the_limit", field="backoff", value="'400d'", limit="366d")),
        ("-1s", sentence("errors.below_the_limit", field="backoff", value="'-1s'")),
        ("nonsense", sentence("errors.no_duration", field="backoff", value="'nonsense'")),
        (None, sentence("durations.is_none")),
        (True, sentence("durations.is_none")),
    ],
)
def test_what_is_no_backoff_is_refused_in_a_sentence(said, words):
    with pytest.raises(BadInput) as caught:
        Backoff.parse("backoff", said)
    assert words.within(caught.value)


@given(backoffs())
def test_its_text_is_read_back_as_the_same(backoff):
    assert Backoff.parse("backoff", backoff.text) == backoff


@given(backoffs(), ATTEMPTS, SEEDS)
def test_a_wait_is_from_half_of_the_doubled_value_up_to_all_of_it(backoff, attempt, seed):
    full = min(backoff.least * 2 ** (attempt - 1), backoff.most)
    assert full // 2 <= backoff.after(attempt, seed) <= full


@given(backoffs(), ATTEMPTS, SEEDS)
def test_the_same_run_always_waits_as_long(backoff, attempt, seed):
    assert backoff.after(attempt, seed) == backoff.after(attempt, seed)


def test_tasks_that_fail_together_do_not_come_back_together():
    waits = sorted(Backoff(10 * SECOND, 10 * SECOND).after(1, seed) for seed in range(1000))
    gaps = [later - earlier for earlier, later in pairwise(waits)]
    assert 5 * SECOND <= waits[0] < 5100 and 9900 < waits[-1] <= 10 * SECOND
    assert max(gaps) < 100  # spread over the five seconds


@pytest.mark.slow
@given(
    st.integers(SHORTEST_INTERVAL, LONGEST).flatmap(
        lambda every: st.tuples(st.just(every), st.integers(0, every - timing.grace(every)))
    )
)
def test_an_attempt_is_dead_when_the_next_start_may_come(drawn):
    every, tolerance = drawn
    last_run, grace = datetime(2026, 3, 1, tzinfo=UTC), timing.grace(every)
    end = timing.last_end(last_run, every, tolerance, grace)
    assert end >= last_run
    assert not too_early(end + timing.span(grace), last_run, every, tolerance)
    assert too_early(end + timing.span(grace - 1), last_run, every, tolerance)
