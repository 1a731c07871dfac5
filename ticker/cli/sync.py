"""`ticker sync`: synchronizes tasks and limits with their declarations in code."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ticker import settings
from ticker.cli import options, render
from ticker.cli.connection import configured, database
from ticker.errors import ConfigurationError
from ticker.tasks import sync as declarations
from ticker.tasks.sync import Declared, Step

SIGNS = {"add": "+", "change": "~", "move": ">", "remove": "-", "skip": "!"}


@click.command()
@click.option(
    "--tasks",
    "texts",
    multiple=True,
    metavar="MODULE,...",
    help="Modules with task functions. Defaults to TICKER_TASKS. Repeatable.",
)
@click.option("--plan", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--prune-modules",
    "prune",
    is_flag=True,
    help="Also remove what is declared in modules that are not imported.",
)
@options.as_json
def sync(texts: tuple[str, ...], plan: bool, prune: bool) -> None:
    """Synchronize tasks and limits with their declarations in code.

    Declarations are @task("reports.daily", cron="0 6 * * *") and limit("imap.gmail.com", concurrency=20). Adds, changes
    and removes declared tasks and limits. Does not touch those that were registered at run time. Names those whose
    module is not among --tasks, such as a module that was renamed or deleted.
    """
    from wrappers import shadowing
    from wrappers.pipeline import registry

    named = settings.modules(",".join(texts)) if texts else configured().tasks
    if not named:
        raise ConfigurationError("--tasks (TICKER_TASKS) names no module; write --tasks myapp.polls")
    if sentence := shadowing.shadowing(Path.cwd()):
        render.warn([sentence])
    sys.path.insert(0, str(Path.cwd()))  # as `ticker worker` does
    registry.load(named)
    functions, limits = registry.functions().values(), registry.limits()
    declared = [Declared(f.name, f.module, f.declared) for f in functions if f.declared]
    scope = [*named, *(function.module for function in functions), *(module for module, _ in limits.values())]
    with database() as db, db.transaction():
        steps = declarations.sync(db, declared, limits, scope, dry=plan, prune=prune)
    show(steps, plan)


def show(steps: Sequence[Step], plan: bool) -> None:
    if render.is_json():
        render.print_json(steps)
        return
    for step in steps:
        if step.what != "keep":
            name = step.name if step.kind == "task" else f"limit {step.name}"
            render.say(f"{SIGNS[step.what]} {step.what} {name}" + (f": {step.words}" if step.words else ""))
    if any(step.what == "skip" for step in steps):
        render.warn(["name these modules in --tasks, too, or remove what they once declared with --prune-modules"])
    kept = sum(step.what == "keep" for step in steps)
    if kept == len(steps):
        render.say(f"nothing to do: {kept} declared, none changed")
    elif plan:
        render.say("nothing was done (--plan)")
