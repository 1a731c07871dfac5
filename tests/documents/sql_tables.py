"""Writes docs/reference/sql.md from the modules that define the tables: `python -m tests.documents`."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.documents.markdown import cell, code, table

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/reference/sql.md"
DOMAINS = ROOT / "ticker/migrations/versions/0001_tables/1_domains.sql"
SOURCES = (ROOT / "ticker/db/tables.py", ROOT / "ticker/db/side_tables.py")
HEAD = """\
# Tables

`ticker db upgrade` creates these tables in the schema `ticker` (`TICKER_SCHEMA`). This page is generated from `ticker/db/tables.py`
and `side_tables.py`, which also define the constraints and the indexes; `ticker db upgrade --sql` prints all of the SQL.

Read these tables with any client, or join them with your own tables using
[`ticker.db.tables`](../concepts/owners.md#joins-with-your-own-tables). To change a task, call `register`, `edit` or a similar
function: these check what constraints cannot check. Durations are whole milliseconds, and times are `timestamptz`. PostgreSQL
enforces the limits.
"""
TYPES = {"integers": ("integer[]", ""), "moments": ("timestamptz[]", "")}


def text() -> str:
    """Returns the whole page."""
    source = "".join(file.read_text(encoding="utf-8") for file in SOURCES)
    rules = {**TYPES, **dict(domains(DOMAINS.read_text(encoding="utf-8")))}
    return HEAD + "".join(f"\n## `{name}`\n\n{says}\n{columns(body, rules)}" for name, says, body in tables(source))


def domains(source: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the type and the limits of each domain. JSON and patterns are too long to show."""
    pattern = r"^CREATE DOMAIN ticker_(\w+) AS ([\w\[\]]+) CHECK \((.*?)\);$"
    for name, base, check in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
        limits = " ".join(check.replace("VALUE", "").split())
        if between := re.fullmatch(r"BETWEEN (-?\d+) AND (\d+)", limits):
            limits = f"{int(between[1]):,} to {int(between[2]):,}"
        elif limits.startswith("IN ("):
            limits = ", ".join(code(word) or "''" for word in re.findall(r"'(\w*)'", limits))
        elif length := re.search(r"length\(\) <= (\d+)", limits):
            limits = f"up to {int(length[1]):,} characters"
        else:
            limits = ""
        yield name, (base, limits)


def tables(source: str) -> Iterator[tuple[str, str, str]]:
    """Yields the name, the purpose and the body of each table."""
    pattern = r"((?:^# [^\n]*\n)*)^(\w+) = (?:Table|_counts)\((.*?)\)$"
    counts = source.partition("def _counts")[2].partition("\n\n\n")[0]
    shared = {"minutes": counts, "hours": re.sub(r"^ +# .*\n", "", counts, flags=re.MULTILINE)}
    for comment, name, body in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
        yield name, " ".join(line.removeprefix("# ") for line in comment.splitlines()), shared.get(name, "") + body


def columns(body: str, rules: dict[str, tuple[str, str]]) -> str:
    """Returns a Markdown table for each group of columns, after the comment that describes the group."""
    groups: list[tuple[str, list[tuple[str, str, str, str]]]] = [("", [])]
    pattern = r"^ +(?:# (.*)|(identity\(\))|column\(\"(\w+)\", \"(\w+)\"(.*)\)),?$"
    was_comment = False
    for comment, is_id, name, kind, rest in re.findall(pattern, body, flags=re.MULTILINE):
        if comment and was_comment:
            groups[-1] = (f"{groups[-1][0]} {comment}", [])
        elif comment:
            groups.append((comment, []))
        else:
            groups[-1][1].append(column(*(("id", "bigint", ", primary_key") if is_id else (name, kind, rest)), rules))
        was_comment = bool(comment)
    head = ("column", "type", "limits", "default")
    return "".join(
        f"\n{cell(comment)}\n\n{table(head, rows)}" if comment else f"\n{table(head, rows)}"
        for comment, rows in groups
        if rows
    )


def column(name: str, kind: str, rest: str, rules: dict[str, tuple[str, str]]) -> tuple[str, str, str, str]:
    base, limits = rules.get(kind, (kind, ""))
    given = re.match(r""", (?:(\d+)|"(.*?)"|(NOW)|text\(["'](.*)["']\))""", rest)
    number, word, now, expression = given.groups() if given else (None, None, None, None)
    default = number or (now and "clock_timestamp()") or expression or (word if kind == "boolean" else f"'{word}'")
    nullable = "" if given or "nullable=False" in rest or "primary_key" in rest else " or null"
    return code(name), f"{base}{nullable}", limits, code(default) if given else ""
