"""Builds the options of `ticker add` and `ticker edit` from the fields of a task."""

from collections.abc import Callable, Iterable
from typing import Any

import click

from ticker.cli import options
from ticker.tasks.sorts import Field


def definition(fields: Iterable[Field]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for each field. Without its option, a field stays unchanged, or takes its default in a new task."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for field in reversed(list(fields)):  # click shows the options from the outermost decorator to the innermost
            command = option(field)(command)
        return command

    return decorate


def option(field: Field) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name, kinds = (
        field.name.replace("_", "-"),
        {"number": options.Integer(), "choice": click.Choice(field.schema.get("enum", ()))},
    )
    declared = field.option or (f"--{name}/--no-{name}" if field.kind == "flag" else f"--{name}")
    return click.option(
        declared, field.name, type=kinds.get(field.kind), metavar=field.sort.metavar or None, default=None, help=field.says
    )  # fmt: skip
