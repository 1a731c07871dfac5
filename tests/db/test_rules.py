"""The rules in ticker/db/sql: each is a whole expression or a whole CTE, and few stand in each other."""

import re
from functools import cache
from pathlib import Path

import pytest

import ticker
from ticker.db import sql

DEEPEST = 2  # a statement uses a rule, which uses a rule
FOLDER = Path(ticker.__file__).parent / "db" / "sql"
CONSTANTS = {
    name for file in FOLDER.iterdir() for name in re.findall(r"^-- constant: (\w+)$", file.read_text(), re.MULTILINE)
}
NAMED, RULES = sql._document("ticker")

DEEPER = {
    "claim_ahead": 6, "claim_chosen": 6, "claim_chosen_planned": 6, "claim_due": 6, "claim_in_turn": 6,
    "claim_pieces": 4, "claim_planned": 6, "claim_pushed": 6, "claim_unknown": 6, "claim_waiting": 6,
    "counts": 7, "demand": 3, "finish": 3, "finish_limited": 3, "grant_budget": 4, "is_crowded": 7, "late": 7, "late_tasks": 6, "let_go": 4,
    "limited_due": 4, "limited_planned": 5, "limits_held_too_long": 5, "list_owners": 6, "list_tasks": 7,
    "missing_functions": 3, "open_pauses": 3, "pauses_at": 3, "probe": 3, "unreported_functions": 3,
    "use_of_limits": 5, "wait_for_turn": 4, "wait_for_gate": 4,
}  # fmt: skip
"""Statements that are deeper, and how deep. Each is to be flattened: no name is added, and no number grows."""

OPEN = {"with_rooms"}
"""Rules that are neither whole expressions nor whole CTEs."""


@cache
def depth(text: str) -> int:
    """Returns how many rules stand in each other below this text. Constants, which are the same for all rows, do not count."""
    return max((1 + depth(RULES[name]) for name in sql._rules_in(text, {}) & RULES.keys() - CONSTANTS), default=0)


def is_balanced(text: str) -> bool:
    """Returns whether every parenthesis closes one that this text has opened, and all are closed."""
    level = 0
    for sign in re.findall(r"[()]", re.sub(r"'[^']*'", "''", text)):
        level += 1 if sign == "(" else -1
        if level < 0:
            return False
    return level == 0


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_a_whole_expression_or_a_whole_cte(name: str) -> None:
    assert is_balanced(RULES[name]) is (name not in OPEN)


def test_no_statement_uses_rules_that_are_more_than_two_deep() -> None:
    assert {name: depth(text) for name, text in NAMED.items() if depth(text) > DEEPEST} == DEEPER


def test_a_constant_uses_only_constants() -> None:
    assert {name: sql._rules_in(RULES[name], {}) - CONSTANTS for name in CONSTANTS} == {
        name: set() for name in CONSTANTS
    }
    assert not [name for name in CONSTANTS if re.search(r"\bt\.", RULES[name])]
