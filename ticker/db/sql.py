"""Reads the statements in the folder `sql` once, and fills in the schema and the rules."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ticker import clock
from ticker.db import drivers
from ticker.db.drivers import Row as Row
from ticker.settings import schema_name

Execute = Callable[..., list[Row]]
"""`execute(name, **parameters) -> rows` runs one named statement on one connection."""

_PART = re.compile(r"^-- (name|rule|constant): (\w+)\n", re.MULTILINE)
_RULE = re.compile(r"\{(\w+)(?: (\w+))?\}")


@cache
def statements(schema: str, lists: tuple[tuple[str, str], ...] = ()) -> Mapping[str, str]:
    """Returns all statements by name, without comments, with the schema's quoted name and the rules filled in.

    `lists` are further rules by name, each a list of columns. Statements that use other lists are left out.
    """
    named, rules = _document(schema)
    rules = {**rules, **dict(lists)}
    return {name: _filled(text, rules) for name, text in named.items() if _rules_in(text, rules) <= rules.keys()}


@cache
def _document(schema: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the statements and the rules of the folder, without comments, for this schema. Constants count as rules."""
    quoted = f'"{schema_name("schema", schema)}"'
    named, rules = dict[str, str](), dict[str, str]()
    parts = {"name": named, "rule": rules, "constant": rules}
    folder = files("ticker.db").joinpath("sql")
    for file in (file for file in folder.iterdir() if file.name.endswith(".sql")):
        _, *texts = _PART.split(file.read_text(encoding="utf-8").replace("{schema}", quoted))
        for kind, name, text in zip(texts[::3], texts[1::3], texts[2::3], strict=True):
            if name in parts[kind]:
                raise ValueError(f"{kind} {name} appears twice in ticker/db/sql")
            parts[kind][name] = re.sub(r"^--.*\n?", "", text, flags=re.MULTILINE).strip()
    return named, rules


def rule(name: str, schema: str, alias: str) -> str:
    """Returns a rule for a table with that alias, for statements that are not in the folder."""
    _, rules = _document(schema)
    return _for_table(_filled(rules[name], rules), alias)


def _filled(text: str, rules: Mapping[str, str]) -> str:
    """Returns a statement, or a rule, with the rules that it uses filled in."""
    return _RULE.sub(lambda named: _for_table(_filled(rules[named[1]], rules), named[2]), text)


def _rules_in(text: str, rules: Mapping[str, str]) -> set[str]:
    """Returns the rules that a statement uses, also within other rules."""
    used = {match[1] for match in _RULE.finditer(text)}
    return used.union(*(_rules_in(rules[name], rules) for name in used & rules.keys()))


def listed(names: Iterable[str], alias: str = "") -> str:
    """Returns the columns as SQL, qualified by the alias if there is one."""
    return ", ".join(f"{alias}.{name}" if alias else name for name in names)


def _for_table(rule: str, alias: str | None) -> str:
    """Adapts a rule, which is written for a table with the alias t, to another alias or to the only table."""
    return re.sub(r"\bt\.", f"{alias}." if alias else "", rule)


def on(db: Any, schema: str) -> Execute:
    """Runs statements by name on a synchronous connection, inside its transaction. `now` is that of the clock, unless it
    is given.
    """
    texts = statements(schema)

    def execute(name: str, /, **parameters: Any) -> list[Row]:
        driver = drivers.of(db)
        with driver.transaction(writes=False):
            return driver.fetch(texts[name], {"now": clock.now(), **parameters})

    return execute
