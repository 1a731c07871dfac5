"""Each outcome is a success, a failure, or neither: in Python, in SQL, in the terminal and on the page."""

import re

import pytest

from ticker.cli import render
from ticker.db import sql
from ticker.model import GOOD, Outcome
from ticker.read import formatting
from ticker.web.pages import phrases

NEITHER = {Outcome.DROPPED, Outcome.INTERRUPTED, Outcome.SLOWED_DOWN}


def named_by(rule: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", sql.rule(rule, "ticker", "")))


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_is_good_bad_or_neither_and_shown_so(outcome):
    good, bad, neither = outcome in GOOD, outcome in named_by("bad_outcomes"), outcome in NEITHER
    assert [good, bad, neither].count(True) == 1
    assert good == (outcome in named_by("good_outcomes"))
    assert outcome in phrases.MARKS
    assert formatting.tone(outcome) == ("good" if good else "bad" if bad else "warn")
    assert render.colour(outcome) == ("red" if bad else "yellow" if neither else "")


def test_what_counts_as_work_is_a_success_and_every_name_is_an_outcome():
    assert named_by("work_outcomes") < named_by("good_outcomes")
    assert named_by("good_outcomes") | named_by("bad_outcomes") == {*Outcome} - NEITHER
