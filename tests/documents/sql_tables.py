"""Writes docs/reference/sql.md from the migrations of the tables: `python -m tests.documents`."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.documents.markdown import cell, code, table

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/reference/sql.md"
SOURCE = ROOT / "ticker/migrations/versions"
HEAD = """\
# Tables

`ticker db upgrade` creates these tables in the schema `ticker` (`TICKER_SCHEMA`). This page is generated from the
files in `ticker/migrations/versions`, which also contain the constraints, the indexes and the functions; `ticker db upgrade --sql`
prints them.

Read these tables with any client, or join them with your own tables using
[`ticker.db.tables`](../concepts/owners.md#joins-with-your-own-tables). To change a task, call `register`, `edit` or a similar
function: these check what constraints cannot check. Durations are whole milliseconds, and times are `timestamptz`. PostgreSQL
enforces the limits in the third column.
"""
PURPOSES = {
    "tasks": "What to run, how often, for which owner, and the state of each task.",
    "templates": "The default tasks of a type of owner, as columns of a task. A trigger creates the tasks of a new owner from them.",
}
"""The purposes of tables, where the migration has no comment or one whose words are less plain."""
PLAINER = {
    "What to run, and for which owner. An empty owner is no owner.": "What to run, and for which owner. Empty strings mean no owner.",
        "Three facts with separate writers.": "Whether the task may run: three facts with separate writers.",
    "Written by the start.": "Written by the start of a run.",
    "Written by the fenced end.": "Written by the end of a run that still has its token.",
    "The schedule's bounds, what becomes of missed times, and whether a single run that succeeded is removed.": "The bounds of the schedule, what happens to missed times, and whether a task for a single time is deleted after its success.",
    "What becomes of an occurrence that meets a job of its task, or fails.": "What happens to an occurrence while another job of its task waits or runs, and after it fails.",
    "What becomes of a task that keeps failing: its longest and its present interval; a pause and its end.": "What happens to a task that keeps failing: its longest and its current interval, when it is paused, and when it is probed.",
    "Alerts: after how many intervals without a success, when to check next, and what was notified last.": "Alerts: the number of intervals without a success, the time of the next check, and what was notified last.",
    "Whether the task has a phase of its own.": "Whether the task has its own phase.",
    "The window after each time of a spread task (for an interval task, the interval), and the task's phase in it: 28 bits of a hash, as a fraction. An interval is at most 2^35 ms, and a bigint has 63 bits.": "The window of a spread task after each of its times, and its phase in that window. An interval task has no `within_ms`: its window is the interval.",
    "The numbers by which the start was judged.": "The values by which the start was decided, what the function returned and printed, and where it ran. `checked_at` is null for a run that started, because it was decided at `started_at`.",
    "Whether the end leads to something more and no tick has handled it yet; whether a retry followed; how many pieces of work the run made.": "Whether the end needs a follow-up that no tick has made yet, whether a retry followed, and how many pieces the run created.",
}  # fmt: skip
"""Plainer words for comments of the migration."""


def text() -> str:
    """Returns the whole page."""
    source = "".join(file.read_text(encoding="utf-8") for file in sorted(SOURCE.glob("*/*.sql")))
    rules = dict(domains(source))
    return HEAD + "".join(f"\n## `{name}`\n\n{says}\n{columns(body, rules)}" for name, says, body in tables(source))


def domains(source: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the type and the limits of each domain. JSON and patterns are too long to show."""
    pattern = r"^CREATE DOMAIN (\w+) AS ([\w\[\]]+) CHECK \((.*?)\);$"
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
    pattern = r"((?:^-- [^-\n][^\n]*\n)*)^CREATE TABLE (\w+) \(\n(.*?)^\)"
    for comment, name, body in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
        yield name, PURPOSES.get(name) or " ".join(line.removeprefix("-- ") for line in comment.splitlines()), body


def columns(body: str, rules: dict[str, tuple[str, str]]) -> str:
    """Returns a Markdown table for each group of columns, after the comment that describes the group."""
    groups: list[tuple[str, list[tuple[str, str, str, str]]]] = []
    for part in re.split(r"\n\s*\n", body):
        comment = " ".join(re.findall(r"^    -- (.*)$", part, flags=re.MULTILINE))
        comment = PLAINER.get(comment, comment)
        rows = [
            column(*found, rules)
            for found in re.findall(r"^    ([a-z]\w*) ([a-z_\[\]]+)(.*)$", part, flags=re.MULTILINE)
        ]
        if comment or not groups:
            groups.append((comment, rows))
        else:
            groups[-1][1].extend(rows)
    head = ("column", "type", "limits", "default")
    return "".join(
        f"\n{cell(comment)}\n\n{table(head, rows)}" if comment else f"\n{table(head, rows)}"
        for comment, rows in groups
        if rows
    )


def column(name: str, kind: str, rest: str, rules: dict[str, tuple[str, str]]) -> tuple[str, str, str, str]:
    base, limits = rules.get(kind, (kind, ""))
    given = re.search(r"DEFAULT (\S+(?: \S+\))?)", rest)
    nullable = "" if "NOT NULL" in rest or "PRIMARY KEY" in rest else " or null"
    return code(name), f"{base}{nullable}", limits, code(given[1].rstrip(",")) if given else ""
