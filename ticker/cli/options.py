"""Defines the options that several commands share, and parses their values."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from ticker.errors import BadInput
from ticker.model import LARGEST_ID, TASK_STATES
from ticker.schedules.duration import is_plain
from ticker.tasks.checks import plain

MOST_ROWS = 10_000
JSON = "ticker.json"  # the key in a context's `meta`

Command = Callable[..., Any]
Option = Callable[[Command], Command]


def _owner(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and ":" not in text:
        raise BadInput("owner", text, "is not an owner; write type:id, such as mail_channels:5")
    return text


def printable(_context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    return None if text is None else plain(str(option.name), text)


def text(name: str, metavar: str, words: str) -> Option:
    """Returns an option whose value is one line of printable characters."""
    return click.option(name, metavar=metavar, callback=printable, help=words)


class Integer(click.IntRange):
    """A whole number in plain digits, within optional limits."""

    def _describe_range(self) -> str:
        """Returns the limits for the help, or "" if there are none."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not is_plain(value):
            self.fail(f"{value!r} is not a whole number in plain digits, such as 5.", param, ctx)
        return super().convert(value, param, ctx)


task_or_owner = click.argument("task", required=False)
owner = click.option("--owner", metavar="TYPE:ID", callback=_owner, help="The owner, such as mail_channels:5.")
owner_type = text("--owner-type", "TYPE", "Only owners of this type.")
function = text("--function", "NAME", "Only tasks that run this function.")
FILTERS: Mapping[str, Option] = {
    "owner_type": owner_type,
    "name": text("--name", "NAME", "Only tasks with this name."),
    "function": function,
    "queue": text("--queue", "NAME", "Only tasks in this queue."),
    "group": text("--group", "NAME", "Only tasks in this group."),
    "submitter": text("--submitter", "NAME", "Only tasks with this submitter."),
    "state": click.option(
        "--state", type=click.Choice(TASK_STATES), help="Only tasks in this state; a task may be in several."
    ),
    "search": text(
        "--search", "TEXT", "Only tasks with this text in their name, function, owner or subject; case is ignored."
    ),
    "cause": text("--cause", "TEXT", "Only tasks that fail with this cause, as ticker top names it."),
    "error": text("--error", "TEXT", "Only failing tasks whose last error contains this text, such as a host."),
}
"""The options that choose tasks, apart from --owner, by the names of the filters."""
since = click.option(
    "--since", metavar="TIME", help="Begin at this time: 09:00 (UTC), 2h (ago), or 2026-07-01T12:00:00Z."
)
until = click.option("--until", metavar="TIME", help="End before this time, written as for --since.")


def json_flag(words: str) -> Option:
    """Returns the option --json, which `render.is_json` reads. It is no argument of the command."""
    return click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help=words)


def _set_json(context: click.Context, _option: click.Parameter, is_given: bool) -> None:
    context.meta[JSON] = is_given


as_json = json_flag("Print one JSON document.")


def limit(default: int) -> Option:
    return click.option(
        "--limit", type=Integer(1, MOST_ROWS), default=default, show_default=True, help="Maximum number of rows."
    )


def several(options: Iterable[Option]) -> Option:
    """Adds several options, which the help shows in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(list(options)):  # click shows the options from the outermost decorator to the innermost
            command = option(command)
        return command

    return decorate


def ref(task: str | None, owner: str | None) -> int | str | None:
    """Returns the id or the name of the task. A string of digits is an id, which needs no owner."""
    if task is None:
        return None
    if not (task.isascii() and task.isdigit()):
        return plain("task", task)
    if owner is not None:
        raise BadInput(
            "owner", owner, f"cannot be combined with the id {task[:20]}, which needs no owner; leave out one of them"
        )
    if len(task) > 19 or not 1 <= int(task) <= LARGEST_ID:
        raise BadInput("task", task, f"is not an id: ids are whole numbers from 1 to {LARGEST_ID}")
    return int(task)
