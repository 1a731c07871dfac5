"""Registers many tasks with a few statements for each thousand of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ticker.db.steps import Steps, writes
from ticker.errors import BadInput
from ticker.tasks import checks, fields, identity, owner_types, rows
from ticker.tasks.definition import Wanted
from ticker.tasks.operations import aware, registered, tell
from ticker.tasks.rows import Fitted, New, query

AT_ONCE = 1000
FIELDS = ("function", "name", "owner", "first", *fields.SETTINGS)


@dataclass(frozen=True, slots=True)
class Registered:
    """What `register_many` has done: the tasks' ids in the order of the list, how many are new, and how many have changed.

    Each warning stands here once, however many tasks it concerns.
    """

    ids: Sequence[int]
    added: int
    changed: int
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Known:
    """The definitions that have been checked: those of most tasks differ in a few columns only."""

    fitted: dict[str, Fitted] = field(default_factory=dict)

    def checked(self, item: object) -> Steps[New]:
        """Checks an item and returns its task. Raises BadInput."""
        if not isinstance(item, Mapping):
            raise BadInput("tasks", item, "is not a task; write a mapping of the arguments of register")
        fields.check_names("tasks", item, FIELDS)
        if "function" not in item:
            raise BadInput("function", None, "is missing")
        said = {name: value for name, value in item.items() if value is not None}
        who, first = identity.identify(said.pop("owner", None)), aware("first", said.pop("first", None))
        name, own = said.pop("name", None), fields.check({name: said.pop(name) for name in rows.OWN if name in said})
        checks.call(own.get("args", ()), own.get("kwargs", {}))
        wanted = repr(sorted(said.items()))
        if (fitted := self.fitted.get(wanted)) is None:
            fitted = self.fitted[wanted] = yield from rows.fit(Wanted(**said).given())
        name = Wanted(function=said["function"], name=name).task_name()
        return New((who.type, who.id, name), fitted, own, first)


@writes
def register_many(tasks: Iterable[Mapping[str, Any]], *, by: str | None = None) -> Steps[Registered]:
    """Registers tasks of any owners, each as `register` does, with a few statements for each thousand of them.

    Each item is a mapping of the arguments of `register`: `{"function": "mail.fetch", "every": "1m", "owner": channel}`. All
    items are checked before anything is written. A task that exists and whose arguments have not changed is only read.

    The caller's transaction locks the rows of the new tasks' owners against deletion until it ends: to keep it short, pass some
    thousands of tasks at a time. Raises BadInput, which also names the item, or UnknownOwner. In both cases nothing is written.
    """
    known, news = Known(), list[New]()
    for number, item in enumerate(tasks):
        with _named(number, item):
            news.append((yield from known.checked(item)))
    places = {new.key: number for number, new in enumerate(news)}
    if len(places) < len(news):
        number = next(number for number, new in enumerate(news) if places[new.key] != number)
        raise BadInput(
            "tasks",
            str(news[number].key[2]),
            f"is the name of the same owner's tasks {number} and {places[news[number].key]}",
        )
    if keys := {key for new in news for key in new.own.get("limits") or ()}:
        yield query("name_keys", keys=sorted(keys))
    done = Done()
    ordered = sorted(news, key=lambda new: new.key)  # the same order in every process, against deadlocks
    for start in range(0, len(ordered), AT_ONCE):
        yield from done.register(ordered[start : start + AT_ONCE], by)
    return Registered([done.ids[new.key] for new in news], done.added, done.changed, tuple(done.warnings))


@dataclass(slots=True)
class Done:
    """What has been registered so far."""

    ids: dict[tuple[str, ...], int] = field(default_factory=dict)
    added: int = 0
    changed: int = 0
    warnings: dict[str, None] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)  # of owners, and
    definitions: set[int] = field(default_factory=set)  # whose warnings are known

    def register(self, part: Sequence[New], by: str | None) -> Steps[None]:
        found = {row["number"]: row for row in (yield query("look_up_tasks", **rows.columns_of_keys(part)))}
        missing = [new for number, new in enumerate(part, 1) if number not in found]
        yield from self._insert(missing)
        for number, new in enumerate(part, 1):
            if new.key in self.ids:
                continue
            given = {**new.fitted.given, **new.own}
            row = found.get(number)
            if row is None or rows.news(given, row):  # or another process has inserted it, or its owner is gone
                owner_type, owner_id, name = new.key
                task = yield from registered(identity.Owner(owner_type, owner_id), name, given, new.first, by)
                self.warnings |= dict.fromkeys(task.warnings)
                self.changed += row is not None
                self.ids[new.key] = task.id
            else:
                self.ids[new.key] = row["id"]

    def _insert(self, missing: Sequence[New]) -> Steps[None]:
        if not missing:
            return
        by_key = {new.key: new for new in missing}
        subjects = {
            new.key[0]: given["subject"] for new in missing if "subject" in (given := {**new.fitted.given, **new.own})
        }
        for type_, subject in subjects.items():
            yield from rows.check_subject(type_, subject)
        for type_ in sorted({new.key[0] for new in missing} - self.types):
            self.types.add(type_)
            of_owner = yield from owner_types.warnings(type_)
            tell(missing[0].fitted.values["function"], of_owner)
            self.warnings |= dict.fromkeys(of_owner)
        inserted = yield rows.insertion("insert_tasks", missing)
        found = [(by_key[row["owner_type"], row["owner_id"], row["name"]], row) for row in inserted]
        self.ids |= {new.key: row["id"] for new, row in found}
        self.added += len(found)
        timed = [row["id"] for new, row in found if new.first is None and not new.fitted.is_plain]
        if timed:
            yield from rows.placed((yield query("tasks_with_ids", ids=timed)))
        yield from rows.announce([new.fitted for new, _ in found])
        fresh = {id(new.fitted): row["id"] for new, row in found if id(new.fitted) not in self.definitions}
        self.definitions |= fresh.keys()
        for row in (yield query("tasks_with_ids", ids=list(fresh.values()))) if fresh else []:
            task = yield from rows.unknown(row)
            tell(task.function, task.warnings)
            self.warnings |= dict.fromkeys(task.warnings)


@contextmanager
def _named(number: int, item: object) -> Iterator[None]:
    """Names the item in an error about one of its fields."""
    try:
        yield
    except BadInput as error:
        function = f" ({item['function']})" if isinstance(item, Mapping) and "function" in item else ""
        of = "" if error.field == "tasks" else f" {error.field}"
        raise BadInput(f"tasks[{number}]{function}{of}", error.value, error.problem) from None
