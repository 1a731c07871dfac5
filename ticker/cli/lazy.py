"""Imports the module of a command only when the command is called. `ticker --help` imports no command's module."""

from importlib import import_module

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

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
