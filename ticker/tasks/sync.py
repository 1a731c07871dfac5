"""Implements `ticker sync`, which makes the tasks and limits that modules declare match the declarations."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ticker.db.sql import Row
from ticker.db.steps import Steps, writes
from ticker.errors import BadInput
from ticker.model import Kind
from ticker.tasks import checks, definition, fields, rows
from ticker.tasks.rows import query

BY = "ticker sync"
Limits = Mapping[str, tuple[str, Mapping[str, Any]]]  # by key: the module, and the arguments of `limit`


@dataclass(frozen=True, slots=True)
class Declared:
    """A task that a module declares next to its function. `said` holds fields of `register`."""

    function: str
    module: str
    said: Mapping[str, Any]

    @property
    def name(self) -> str:
        return checks.plain("name", self.said.get("name", self.function))

    def checked(self) -> dict[str, Any]:
        """Returns the checked fields. Raises BadInput, which names the function and the field."""
        fields.check_names(f"@task({self.function!r})", self.said, ("name", *fields.FIELDS))
        try:
            return fields.check({"function": self.function, **{f: v for f, v in self.said.items() if f != "name"}})
        except BadInput as error:
            raise BadInput(f"@task({self.function!r}) {error.field}", error.value, error.problem) from None


@dataclass(frozen=True, slots=True)
class Step:
    """What `sync` does with one task or limit: add, change, move (only its module changes), remove, keep or skip it.

    It skips what is declared in a module that it did not look at. The `name` of a limit is its key.
    """

    what: str
    name: str
    function: str
    words: str
    task_id: int | None = None
    kind: Literal["task", "limit"] = "task"


def in_words(values: Mapping[str, Any]) -> str:
    """Returns the kind of the schedule, its text, its hours and, unless it is UTC, its zone."""
    during = f" during {values['during']}" if values["during"] else ""
    zone = f" {values['zone']}" if values["zone"] != "UTC" else ""
    return f"{checks.NAMES[Kind(values['kind'])]} {definition.schedule_of(values).text}{during}{zone}"


@writes
def sync(
    declared: Sequence[Declared], limits: Limits, scope: Collection[str], *, dry: bool = False, prune: bool = False
) -> Steps[list[Step]]:
    """Adds, changes and deletes limits and tasks until they match the declarations, and returns the steps.

    `scope` names the modules that were searched for declarations. A task or limit is deleted if it was declared in one
    of them, or in a module inside it, and no longer is; with `prune`, also if it was declared in any other module.
    Tasks with owners do not change, nor do tasks and limits that were registered at run time: if one of these has the
    name or key of a declaration, BadInput is raised. As with `register`, an operator's change stays until the
    declaration changes. A changed declaration of a limit replaces the whole limit. With `dry`, nothing is written.
    """
    wanted = {item.name: item for item in declared}
    if len(wanted) < len(declared):
        raise BadInput("declared", sorted(item.name for item in declared), "has two tasks with the same name")
    given = {item.name: item.checked() for item in declared}
    limit_steps = yield from _sync_limits(
        limits, scope, dry, prune
    )  # before tasks, whose new keys then have their limits
    known = {row["name"]: row for row in (yield query("declared_tasks", names=sorted(wanted)))}
    for name in wanted.keys() & known.keys():
        if not known[name]["declared_in"]:
            raise BadInput(
                "declared", name, "is the name of a task that was registered at run time; rename one of them"
            )
    steps = []
    for name in sorted(wanted):
        steps.append((yield from _step(wanted[name], given[name], known.get(name))))
    for name in sorted(known.keys() - wanted.keys()):
        what, words = _of_undeclared(known[name]["declared_in"], scope, prune)
        steps.append(Step(what, name, known[name]["function"], words, known[name]["id"]))
    if not dry:
        yield from rows.declare_functions(replaces=True)
        yield query("name_keys", keys=[key for item in given.values() for key in item.get("limits") or ()])
        for step in steps:
            yield from _carry_out(step, wanted.get(step.name), given.get(step.name, {}), known.get(step.name))
    return limit_steps + steps


def _sync_limits(limits: Limits, scope: Collection[str], dry: bool, prune: bool) -> Steps[list[Step]]:
    """Adds, changes and deletes limits, and returns the steps. Takes no lock if there is nothing to change, as in most
    deploys.
    """
    known = yield query("declared_limits", keys=list(limits))
    steps = _limit_steps(limits, known, scope, prune)
    if dry or all(step.what in ("keep", "skip") for step in steps):
        return steps
    yield query("lock_limits")
    known = yield query("declared_limits", keys=list(limits))
    steps = _limit_steps(limits, known, scope, prune)
    registered = {row["key"]: row["registered"] for row in known}
    for step in steps:
        if step.what == "remove":
            yield query("remove_limit", key=step.name)
        elif step.what in ("add", "change", "move"):
            module, said = limits[step.name]
            columns = checks.limit_of_key(step.name, **said)
            if registered.get(step.name) != columns:  # otherwise, only the module differs
                yield query("declare_limit", by=BY, **columns)
            yield query("note_declaration", key=step.name, declared_in=module, registered=json.dumps(columns))
    yield from rows.wake_up()
    return steps


def _limit_steps(limits: Limits, known: Sequence[Row], scope: Collection[str], prune: bool) -> list[Step]:
    rows_by_key = {row["key"]: row for row in known}
    steps = []
    for key, (module, said) in sorted(limits.items()):
        row = rows_by_key.get(key)
        if row and not row["declared_in"]:
            raise BadInput("declared", key, "is the key of a limit that was declared at run time; remove one of them")
        words = ", ".join(f"{field} {value}" for field, value in said.items() if value is not None)
        what = "add"
        if row:
            changed = words if row["registered"] != checks.limit_of_key(key, **said) else ""
            what, words = _of_declared(changed, words, row["declared_in"], module)
        steps.append(Step(what, key, "", words, kind="limit"))
    for row in known:
        if row["key"] not in limits:
            what, words = _of_undeclared(row["declared_in"], scope, prune)
            steps.append(Step(what, row["key"], "", words, kind="limit"))
    return steps


def _of_declared(changed: str, words: str, before: str, module: str) -> tuple[str, str]:
    """Returns what to do with something that exists, and the words: what changes, the move, or else what it is."""
    if changed:
        return "change", changed
    return ("keep", words) if before == module else ("move", f"from {before} to {module}")


def _of_undeclared(module: str, scope: Collection[str], prune: bool) -> tuple[str, str]:
    """Returns what to do with something that was declared in this module and is not declared now, and the words."""
    if any(module == name or module.startswith(f"{name}.") for name in scope):
        return "remove", ""
    return "remove" if prune else "skip", f"declared in {module}, which was not imported"


def _step(item: Declared, given: definition.Given, row: Row | None) -> Steps[Step]:
    fresh = yield from rows.applied(given, None)
    if (
        row is None
        and fresh["kind"] == Kind.ONCE
        and definition.schedule_of(fresh).next_after((yield from rows.instant())) is None
    ):
        return Step("keep", item.name, fresh["function"], in_words(fresh))  # its time has passed
    if row is None:
        yield from rows.first_time(fresh)  # raises BadInput if it never fires
        return Step("add", item.name, fresh["function"], in_words(fresh))
    changed = yield from _redeclared(given, row)
    if changed:
        yield from rows.check_change(row, changed)
    news = ", ".join(f"{column} {value}" for column, value in sorted(changed.items()))
    what, words = _of_declared(news, in_words(fresh), row["declared_in"], item.module)
    return Step(what, item.name, fresh["function"], words, row["id"])


def _redeclared(given: definition.Given, row: Row) -> Steps[dict[str, Any]]:
    """Returns the columns in which the old and the new declaration differ, defaults included. Ignores an operator's
    changes.
    """
    if row["registered"] == given:
        return {}
    old, new = (yield from rows.applied(row["registered"], None)), (yield from rows.applied(given, None))
    return rows.of_use({column: value for column, value in new.items() if old[column] != value}, row)


def _carry_out(step: Step, item: Declared | None, given: definition.Given, row: Row | None) -> Steps[None]:
    if step.what == "remove":
        yield from rows.written("delete_tasks", by=BY, ids=[step.task_id])
    elif step.what == "add" and item is not None:
        yield from rows.insert({"owner_type": "", "owner_id": "", "name": item.name}, given, None, item.module)
    elif step.what in ("change", "move") and item is not None and row is not None:
        yield from rows.change(row, (yield from _redeclared(given, row)), given, item.module, BY)
