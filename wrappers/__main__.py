"""`python -m wrappers --tasks myapp.polls QUEUE...`: RQ's own worker command, with our Worker class."""

import os
import sys
from pathlib import Path

import click
from rq.cli.cli import main as rq

from ticker import logs, settings, startup
from ticker.definition import DEFAULTS
from ticker.errors import BadInput, ConfigurationError
from wrappers import registry


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.option("--tasks", multiple=True, metavar="MODULE", help="Modules that register functions with @task.")
@click.option("--help", "show_help", is_flag=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(tasks: tuple[str, ...], show_help: bool, arguments: tuple[str, ...]) -> None:
    """Runs tasks from the QUEUEs; every option of `rq worker` is understood, too."""
    if show_help:
        click.echo("Usage: python -m wrappers --tasks MODULE[,MODULE...] [options of rq worker] QUEUE...\n")
        rq(["worker", "--help"], prog_name="python -m wrappers")
    if tasks:
        os.environ["TICKER_TASKS"] = ",".join(tasks)
    try:
        url = prepare()
    except (ConfigurationError, BadInput) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(settings.EXIT_CONFIGURATION)
    logs.to_stdout()
    queues = () if names_a_queue(arguments) else (DEFAULTS["queue"],)
    rq(
        ["worker", "--worker-class", "wrappers.Worker", "--url", url, *arguments, *queues],
        prog_name="python -m wrappers",
    )


def names_a_queue(arguments: tuple[str, ...]) -> bool:
    """Whether RQ would find a queue among them; its own default is not where our tasks go."""
    command = rq.commands["worker"]
    parsed = command.make_context("worker", list(arguments), resilient_parsing=True)
    return bool(parsed.params.get("queues") or parsed.params.get("config"))


def prepare() -> str:
    """Imports the functions, once and before any fork, and checks both servers; the URL of Redis."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` and `rq worker` do
    found = settings.from_environment()
    registry.load(found.tasks)
    if not registry.functions():
        raise ConfigurationError(
            "no function is registered: name the modules with --tasks myapp.polls (or TICKER_TASKS)"
        )
    startup.check(found)
    return found.require_redis()


if __name__ == "__main__":
    main()
