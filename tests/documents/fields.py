"""Writes docs/reference/fields.md from `ticker.tasks.fields`: `python -m tests.documents.fields`."""

from pathlib import Path

from tests.documents.markdown import cell, code, table
from ticker.tasks.fields import FIELDS, GROUPS, OF_NEW
from ticker.tasks.sorts import DURATION, INSTANT, TIME, Field

FILE = Path(__file__).parents[2] / "docs/reference/fields.md"
HEAD = """\
# The fields of a task

`ticker.register`, `ticker.edit`, `Wanted`, `@task(...)`, `ticker add` and `ticker edit`, the [HTTP API](http.md) and the
[page](../operations/page.md) accept the same fields, with the same limits. The tables are generated from `ticker/tasks/fields.py`. A
field that is not passed has its default in a new task. The defaults of tolerance and box depend on the schedule. A duration is a
string (`30s`, `1h30m`, `PT5M`), a number of seconds, or, in Python, a `timedelta`.
"""
HEADINGS = ("field", "values", "default", "meaning", "CLI", "column")


def text() -> str:
    """Returns the whole document."""
    whose = (FIELDS["function"], *OF_NEW)
    alone = [field for field in FIELDS.values() if not field.group and field not in whose]
    groups = {"Function, name and owner": whose, "Schedule and arguments": alone}
    groups |= {group: [field for field in FIELDS.values() if field.group == group] for group in GROUPS}
    return HEAD + "".join(f"\n## {title}\n\n{table(HEADINGS, map(row, fields))}" for title, fields in groups.items())


def row(field: Field) -> tuple[str, ...]:
    return code(field.name), values(field), default(field), cell(field.says), option(field), code(column(field))


def column(field: Field) -> str:
    return "kwargs -> '*'" if field.name == "args" else field.column


def values(field: Field) -> str:
    schema = field.schema
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "minimum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    if "maxLength" in schema:
        return f"text, {schema.get('minLength', 0)} to {schema['maxLength']:,} characters"
    if field.kind == "text":
        return "duration" if schema is DURATION else "time" if schema in (TIME, INSTANT.schema) else "text"
    return {"json": f"JSON {schema.get('type')}", "flag": "true, false"}[field.kind]


def default(field: Field) -> str:
    if field.default in (None, "", {}, []) or field.column.endswith("_ms"):
        return ""
    return f"`{str(field.default).lower() if field.kind == 'flag' else field.default}`"


def option(field: Field) -> str:
    if field.name == "function":
        return "`FUNCTION`"
    name = field.name.replace("_", "-")
    return code(field.option or (f"--{name}/--no-{name}" if field.kind == "flag" else f"--{name}"))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
