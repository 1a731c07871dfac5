"""Writes docs/reference/cli.md from the commands of click: `python -m tests.documents`."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from tests.documents.markdown import cell, code, table
from ticker.cli import main
from ticker.cli.exits import LazyCommand
from ticker.tasks.fields import FIELDS

FILE = Path(__file__).parents[2] / "docs/reference/cli.md"
HEAD = """\
# Commands

`ticker COMMAND --help` prints the same text as this page, which `python -m tests.documents` writes from the code.

A `TASK` is an id or a name. For an owner's task, add `--owner` to the name. Durations are written as `90`, `90s`, `5m`, `1h30m`, `1d` or
`PT5M`, and times as `2026-07-01T12:00:00Z`. Every command that reports takes `--json`, except `top`, and then prints one JSON
document with stable keys.

| exit code | meaning |
|---|---|
| 0 | done, or all is well |
| 1 | refused or failed: an unknown task, an unhealthy ticker, a server that went away |
| 2 | invalid input |
| 78 | an invalid setting, or a server that is unfit or does not answer at the start |
| 130 | interrupted |
"""
PAGES = {
    "runs": "../guides/why.md#ticker-runs---journal",
    "why": "../guides/why.md",
    "top": "../operations/terminal.md#ticker-top",
    "stop": "../operations/index.md#stopping-a-run",
    "limit": "../guides/limits.md",
    "pause": "../operations/pauses.md",
    "edit": "../operations/change-many-tasks.md",
    "notify": "../guides/notifications.md",
    "web": "../operations/page.md",
    "prune": "../guides/retention.md",
    "spread": "../operations/scale.md#spreading-tasks",
    "owners": "../concepts/owners.md#how-they-are",
    "db adopt": "../operations/installations.md#ticker-db-adopt",
    "db sql": "../internals/life-of-a-row.md",
    "worker": "../concepts/semantics.md#workers",
}
"""The pages that describe a command in more detail."""
WORKER = """
    ticker worker --tasks MODULE[,MODULE...] [--functions MODULE[.FUNCTION],...]
                  [--hardened] [--health-port PORT]
                  [options of rq worker] QUEUE...

`--tasks` names the modules with the functions; it defaults to `TICKER_TASKS`. `--functions` names modules, or functions in them,
[without `@task`](../guides/coming-from.md#your-functions-unedited); it defaults to `TICKER_FUNCTIONS`. `--hardened` runs only jobs
that the ticker signed. `python -m wrappers` is the same command.
"""


def text() -> str:
    """Returns the whole page."""
    return HEAD + "".join(f"\n## `ticker {name}`\n\n{described(name, command)}" for name, command in commands(main))


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yields the commands in the order of the help. Those of a group are consecutive."""
    for name, command in group.commands.items():
        loaded = command.load() if isinstance(command, LazyCommand) else command
        if isinstance(loaded, click.Group):
            yield from commands(loaded, f"{before}{name} ")
        else:
            yield f"{before}{name}", loaded


def described(name: str, command: click.Command) -> str:
    words = "\n\n".join(" ".join(part.split()) for part in (command.help or "").strip().split("\n\n"))
    words = re.sub(r'(?:@task|limit)\(".*?\)', lambda match: code(match[0]), words)
    more = f"\n[More]({PAGES[name]}).\n" if name in PAGES else ""
    if name == "worker":
        return f"{words}\n{WORKER}{more}"
    given = " ".join(argument(one) for one in command.params if isinstance(one, click.Argument))
    usage = " ".join(filter(None, ["ticker", name, "[OPTIONS]" * bool(options(command)), given]))
    fields = [one for one in options(command) if one.name in FIELDS and name in ("add", "edit")]
    rows = [
        (option(one), values(one), default(one), cell(one.help or ""))
        for one in options(command)
        if one not in fields and one.help != "Print one JSON document."
    ]
    further = "\nFurther options: the [fields of a task](fields.md).\n" if fields else ""
    listed = "\n" + table(("option", "values", "default", "meaning"), rows) if rows else ""
    return f"{words}\n\n    {usage}\n{listed}{further}{more}"


def argument(one: click.Argument) -> str:
    name = one.metavar or (one.name or "").upper()
    return name if one.required else f"[{name}]"


def options(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def option(one: click.Option) -> str:
    return " / ".join(code(name) for name in (*one.opts, *one.secondary_opts))


def values(one: click.Option) -> str:
    if one.is_flag:
        return ""
    if isinstance(one.type, click.Choice):
        return ", ".join(code(str(choice)) for choice in one.type.choices)
    if isinstance(one.type, click.IntRange) and one.type.min is not None and one.type.max is not None:
        return f"{one.type.min:,} to {one.type.max:,}"
    return cell(one.metavar or one.type.name.upper())


def default(one: click.Option) -> str:
    return code(str(one.default)) if one.show_default and not one.is_flag else ""
