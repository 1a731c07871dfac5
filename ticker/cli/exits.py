"""Turns errors into exit codes and messages. An error is one sentence on standard error.

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
from typing import Any, NoReturn

import click

from ticker.cli.lazy import LazyGroup
from ticker.errors import EXIT_CONFIGURATION, BadInput, ConfigurationError, TickerError, escaped

NOT_SO = 1
BAD_INPUT = 2
INTERRUPTED = 130


class Commands(LazyGroup):
    """The outermost group. It turns every error into a sentence and an exit code."""

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
        return escaped(" ".join((text[:1].lower() + text[1:]).split())) + see
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, TickerError):
        return "\n".join(escaped(line) for line in str(error).splitlines())
    first = (str(error).strip() or "no message").splitlines()[0].strip().rstrip(".")
    return f"{type(error).__name__}: {escaped(first)}; set TICKER_DEBUG=1 for the traceback"
