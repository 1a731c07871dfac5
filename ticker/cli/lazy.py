"""Imports the module of a command only when the command is called. `ticker --help` imports no command's module."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """A placeholder for a command that has not been called yet, with its name and its summary."""

    def __init__(self, name: str, home: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._home = home

    def load(self) -> click.Command:
        module, _, attribute = self._home.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class LazyGroup(click.Group):
    """Lists its commands in the order in which they were added, and imports only the command that is called."""

    def __init__(self, *args: Any, former_names: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        """`former_names` maps old names to commands. Old names work until 1.0 and are not shown in the help."""
        super().__init__(*args, **kwargs)
        self.former_names = former_names or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.former_names.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
