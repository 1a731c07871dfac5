"""Changes of many tasks, which several commands make: their options, the plan that is printed first, and the change."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ticker.cli import render
from ticker.cli.connection import connected, user
from ticker.cli.fit import row
from ticker.cli.options import FILTERS, Option, several
from ticker.read.formatting import bulk_in_words
from ticker.tasks.bulk import Bulk, BulkGroup, bulk

apply = click.option("--apply", is_flag=True, help="With filters: make the change. Without it, print the plan.")


def filters(*names: str) -> Option:
    """Returns the options that choose many tasks, all but --owner or those named."""
    return several([*(option for name, option in FILTERS.items() if not names or name in names), apply])


def chosen(task: str | None, owner: str | None, **given: Any) -> dict[str, Any]:
    """Returns the filters that were given, which cannot be combined with TASK. Only --owner is no filter by itself."""
    found = {name: value for name, value in given.items() if value not in (None, False)}
    if found and task is not None:
        raise click.UsageError("TASK names one task; leave out TASK, or all filters and --apply")
    return found | ({"owner": owner} if found and owner is not None else {})


def carry_out(wanted: Mapping[str, Any], action: str, *, by: str | None = None, **given: Any) -> None:
    """Prints the plan, and then makes the change if `wanted` has `apply`. With --json, prints one of the two."""
    where, applies = {name: value for name, value in wanted.items() if name != "apply"}, "apply" in wanted
    author = user() if by is None else by
    with connected() as db, render.progress("changing tasks") as show:
        if not (applies and render.is_json()):
            print_bulk(bulk(db, where, action, by=author, **given), ends=not applies)
        if applies:
            done = bulk(
                db, where, action, apply=True, by=author, progress=lambda so_far: show(bulk_in_words(so_far)), **given
            )
            render.answer(done, bulk_in_words(done))
            if done.refused and done.refused == done.matched and action != "retry":  # it refuses all that did not fail
                raise click.ClickException("nothing was changed, because every task that matches was refused")


def print_bulk(plan: Bulk, *, ends: bool) -> None:
    if not render.is_json():
        print_groups("change", plan.changes)
        print_groups("refused because", plan.refusals)
    render.answer(plan, bulk_in_words(plan) + ("; nothing was changed: add --apply to make the change" if ends else ""))


def print_groups(title: str, groups: Sequence[BulkGroup]) -> None:
    if groups:
        rows = [row(group.tasks, group.words, ", ".join(group.examples)) for group in groups]
        render.print_table(("tasks", title, "such as"), rows)
