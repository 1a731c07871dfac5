"""The project does not grow unless a commit moves its budget."""

import pytest

from tests.budget import measure

pytestmark = pytest.mark.slow

HOW = "make it smaller, or write the new budget with `python -m tests.budget --write` and say why in the commit"


def test_each_room_keeps_to_its_budget():
    allowed = measure.budget()["rooms"]
    over = [
        f"{room}: {size:,} {kind}, over its budget of {allowed.get(room, {}).get(kind, 0):,}"
        for room, sizes in measure.rooms().items() for kind, size in sizes.items()
        if size > allowed.get(room, {}).get(kind, 0)
    ]  # fmt: skip
    assert not over, f"{HOW}: {over}"


def test_the_whole_keeps_to_its_budget():
    allowed = measure.budget()["totals"]
    assert not {
        name: (size, allowed[name]) for name, size in measure.totals(measure.rooms()).items() if size > allowed[name]
    }, HOW


def test_comments_docstrings_and_layout_cost_nothing():
    short = "def f(x):\n    return x\n"
    long = '"""Says it."""\n\n\ndef f(\n    x,  # a number\n):\n    """Returns it."""\n\n    return x\n'
    assert measure.tokens(long) == measure.tokens(short) + 1  # the comma
