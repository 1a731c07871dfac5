"""`ticker worker`: becomes the launcher of workers, `python -m wrappers`."""

import os
import sys
from typing import NoReturn

import click

# -P keeps the current folder off the front of sys.path, where its modules could shadow our packages
LAUNCHER = ("-P", "-m", "wrappers")


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker(arguments: tuple[str, ...]) -> NoReturn:
    """Run a worker. Accepts every option of `rq worker`."""
    # The worker's supervisor has to stay small, so this process becomes the launcher instead of importing it.
    os.execv(sys.executable, [sys.executable, *LAUNCHER, *arguments])
