"""Imports a command when it is called, and turns errors into exit codes and messages.

`ticker --help` imports no command's module. An error is one sentence on standard error.

0     done
1     refused or failed: no such task, unhealthy, the tables do not fit, a server went away
2     bad input: an invalid command line or value; nothing was written
78    an invalid setting, or a server that did not answer at the start
130   interrupted
"""

import io
import os
import sys
import traceback
from importlib import import_module
from itertools import groupby
from typing import Any, NoReturn

import click

from ticker.errors import EXIT_CONFIGURATION, BadInput, ConfigurationError, TickerError, escaped

NOT_SO = 1
BAD_INPUT = 2
INTERRUPTED = 130


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


class Commands(click.Group):
    """The outermost group. It lists its commands in named groups, imports only the one that is called, and turns every
    error into a sentence and an exit code.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lazy = [command for command in self.commands.values() if isinstance(command, LazyCommand)]
        widest = max(len(str(command.name)) for command in lazy)
        for title, commands in groupby(lazy, key=lambda command: command.title):
            with formatter.section(title):
                room = formatter.width - 6 - widest
                rows = [(str(one.name).ljust(widest), one.get_short_help_str(room)) for one in commands]
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal in latin-1 shows ł as \u0142
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python reports it again at exit
            code = NOT_SO
        except click.Abort:
            code = INTERRUPTED
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = BAD_INPUT
        except Exception as error:
            code = report(error)
        sys.exit(code)


def report(error: Exception) -> int:
    """Prints the error as one sentence and returns the exit code."""
    if os.environ.get("TICKER_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, ImportError) and "pq wrapper" in str(error):
        error = ConfigurationError(
            'psycopg cannot find libpq on this machine; install it with: pip install "rq-ticker[binary]"'
        )
    click.echo(f"error: {sentence(error)}", err=True)
    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, BadInput):
        return BAD_INPUT
    return EXIT_CONFIGURATION if isinstance(error, ConfigurationError) else NOT_SO


def sentence(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        see = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        text = error.format_message().strip().rstrip(".")
        first = text[:1] if text[1:2].isupper() else text[:1].lower()  # a name such as TASK stays
        return escaped(" ".join((first + text[1:]).split())) + see
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, TickerError):
        return "\n".join(escaped(line) for line in str(error).splitlines())
    first = (str(error).strip() or "no message").splitlines()[0].strip().rstrip(".")
    return f"{type(error).__name__}: {escaped(first)}; set TICKER_DEBUG=1 for the traceback"
