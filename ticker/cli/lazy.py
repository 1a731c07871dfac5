"""Imports the module of a command only when the command is called. `ticker --help` imports no command's module."""

from importlib import import_module
from itertools import groupby

import click


class LazyCommand(click.Command):
    """A placeholder for a command that has not been called yet, with its summary and the title of its group in the
    help.
    """

    def __init__(self, name: str, home: str, summary: str, title: str) -> None:
        super().__init__(name, help=summary)
        self._home, self.title = home, title

    def load(self) -> click.Command:
        module, _, attribute = self._home.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class LazyGroup(click.Group):
    """Lists its commands in named groups, in the order in which they were added. Imports only the command that is
    called.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lazy = [command for command in self.commands.values() if isinstance(command, LazyCommand)]
        widest = max(len(str(command.name)) for command in lazy)
        for title, commands in groupby(lazy, key=lambda command: command.title):
            with formatter.section(title):
                room = formatter.width - 6 - widest
                rows = [(str(one.name).ljust(widest), one.get_short_help_str(room)) for one in commands]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest
