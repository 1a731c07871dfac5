"""Runs `ticker worker --tasks myapp.polls QUEUE...`: RQ's worker command, with our Worker class, under a supervisor.

`ticker worker` starts `python -P -m wrappers`. `python -m wrappers` does the same, but searches the current folder
first.
"""

import os
from pathlib import Path

from wrappers import shadowing

if __name__ == "__main__":
    shadowing.refuse(Path.cwd())  # before the imports below, which the application's modules may hide

from wrappers.pipeline.dead_workers import close_record
from wrappers.sandbox import subreaper, supervisor

if __name__ == "__main__":
    supervisor.fork_worker(close_record)  # before the imports below, so that it uses a quarter of the worker's memory

import logging
import sys
import traceback
from contextlib import suppress

import click
from click.core import ParameterSource
from rq.cli.cli import main as rq
from rq.cli.helpers import read_config_file

from ticker import logs, settings
from ticker.engine.jobs import installation_of
from ticker.errors import EXIT_CONFIGURATION, BadInput, ConfigurationError, RowLocked
from ticker.queue import inspect
from ticker.queue.sentinel import Client
from ticker.schedules.duration import whole
from ticker.small_server import serving_probes
from ticker.tasks.fields import DEFAULTS
from wrappers.layers import load_tracing
from wrappers.layers.sentry import keep_names
from wrappers.pipeline import registry
from wrappers.pipeline.database import announce
from wrappers.rq import between_jobs, options

CONNECT_TIMEOUT = 5  # seconds, for Redis
CONNECTION = f"{Client.__module__}.{Client.__name__}"


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.option("--tasks", multiple=True, metavar="MODULE", help="Modules that register functions with @task.")
@click.option("--functions", multiple=True, metavar="NAME", help="Modules, or functions in them, to run without @task.")
@click.option("--hardened", is_flag=True, help="Runs only jobs that a ticker signed (TICKER_SIGNING_KEY).")
@click.option("--health-port", metavar="PORT", help="Answer /livez and /readyz on this port; 0 picks a free port.")
@click.option("--health-host", metavar="ADDRESS", help="The address on which to answer them. Defaults to 127.0.0.1.")
@click.option("--help", "show_help", is_flag=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    tasks: tuple[str, ...], functions: tuple[str, ...], hardened: bool, health_port: str | None, health_host: str | None,
    show_help: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Runs tasks from the QUEUEs. Takes every option of `rq worker`, too."""
    if show_help:
        click.echo(
            "Usage: ticker worker --tasks MODULE[,MODULE...] [--functions MODULE[.FUNCTION],...] [--hardened] "
            "[--health-port PORT] [options of rq worker] QUEUE...\n"
        )
        rq(["worker", "--help"], prog_name="ticker")
    if tasks:
        os.environ["TICKER_TASKS"] = ",".join(tasks)
    if functions:
        os.environ["TICKER_FUNCTIONS"] = ",".join(functions)
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` and `rq worker` do
    try:
        subreaper.require_linux()
        worker = worker_class(hardened, arguments)
        options.check(as_rq_reads(arguments).params)
        url = prepare(queues(arguments))
        port = None if health_port is None else whole("--health-port", health_port, 0, 65_535)
        config = settings.from_environment()
        logs.to_stdout(config.log)
        send_rq_lines(config.log, has_form=chooses(arguments, "log_format", "date_format"))
        default = () if queues(arguments) else (DEFAULTS["queue"],)
        with serving_probes(health_host, port, between_jobs.live, between_jobs.ready):
            ours = ("--worker-class", worker, "--connection-class", CONNECTION, "--url", url)
            rq(["worker", *ours, *arguments, *default], prog_name="ticker")
    except (ConfigurationError, BadInput) as error:
        if os.environ.get("TICKER_DEBUG"):
            traceback.print_exception(error)
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_CONFIGURATION)


def queues(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the queues that RQ would read from the arguments.

    Without any, RQ would read its own default queue, which our tasks do not use.
    """
    params = as_rq_reads(arguments).params
    names = params.get("queues") or ()
    if not names and params.get("config"):
        names = ("default",)
        with suppress(Exception):  # the module may fail in any way; RQ will report it
            names = read_config_file(params["config"]).get("QUEUES", names)  # type: ignore[no-untyped-call]
    return tuple(names)


def worker_class(hardened: bool, arguments: tuple[str, ...]) -> str:
    """Returns the name of our class. Raises ConfigurationError if an option would weaken `--hardened`."""
    if not hardened:
        return "wrappers.Worker"
    from wrappers.rq.signed_worker import HardenedWorker, signing_keys

    signing_keys()
    for name in ("worker_class", "job_class", "queue_class", "serializer", "with_scheduler"):
        if chooses(arguments, name):
            raise ConfigurationError(f"--hardened cannot be combined with --{name.replace('_', '-')}")
    return f"{HardenedWorker.__module__}.{HardenedWorker.__name__}"


def chooses(arguments: tuple[str, ...], *names: str) -> bool:
    """Returns whether the arguments set one of these options of RQ's command."""
    context = as_rq_reads(arguments)
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def as_rq_reads(arguments: tuple[str, ...]) -> click.Context:
    return rq.commands["worker"].make_context("worker", list(arguments), resilient_parsing=True)


def prepare(queues: tuple[str, ...]) -> str:
    """Imports the functions once, before any fork, and checks both servers. Returns the URL of Redis."""
    config = settings.from_environment()
    registry.load(config.tasks, config.functions)
    if not registry.functions():
        raise ConfigurationError(
            "no function is registered: name the modules with --tasks myapp.polls (or TICKER_TASKS), or plain functions "
            "with --functions"
        )
    refuse_cooperative_threads()
    keep_names()  # the worker logs runs, too
    load_tracing(config)
    inspect.check(config, queues or (DEFAULTS["queue"],))
    announce(queues or (DEFAULTS["queue"],), survives=RowLocked)  # an application's transaction may declare them
    return with_connect_timeout(config.require_redis())


def send_rq_lines(form: str, *, has_form: bool) -> None:
    """Writes RQ's lines as ours, unless the form is text and the user has chosen one (`has_form`), or has set up a
    handler. Leaves out those that repeat ours.
    """
    lines = logging.getLogger("rq")
    if form == "json" or not (has_form or lines.hasHandlers()):
        logs.send(lines, form)
    logging.getLogger("rq.worker").addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """Returns False for lines about the ordinary course of our jobs: our line about the run says the same."""
    if record.levelno != logging.INFO or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
        return True
    args = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(one, str) and installation_of(one) for one in args)


def refuse_cooperative_threads() -> None:
    """Raises ConfigurationError if gevent or eventlet has patched what the worker waits with. It would hang, or end at
    its first job.
    """
    for library, test in (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")):
        is_patched = getattr(sys.modules.get(library), test, lambda name: False)
        if any(map(is_patched, ("select", "socket", "thread", "threading"))):
            raise ConfigurationError(
                f"--tasks (TICKER_TASKS): {library.partition('.')[0]} has patched the standard library in this process, and a "
                "patched worker cannot supervise runs; import no module that patches it"
            )


def with_connect_timeout(url: str) -> str:
    """Adds a connection timeout, unless the URL sets one. RQ limits only its waits for answers (to 10 s more than its
    longest wait for a job).
    """
    if "socket_connect_timeout=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_connect_timeout={CONNECT_TIMEOUT}"


if __name__ == "__main__":
    main()
