"""Changes many tasks at once, in steps of a thousand. Each step is a transaction of its own.

An action judges each task by the rules of the single operation, and writes those that it may change with the statements
of that operation.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ticker import settings
from ticker.db import drivers
from ticker.db.sql import Row
from ticker.db.steps import Parts, Steps, commits, reads
from ticker.errors import BadInput, BulkStopped, did_you_mean
from ticker.schedules.duration import words
from ticker.tasks import checks, definition, fields, filters, operations, rows
from ticker.tasks.fields import DEFAULTS, Task
from ticker.tasks.rows import Change, query, task_from
from ticker.tasks.sync import in_words

AT_ONCE = 1000
GROUPS_AT_MOST = 20
EXAMPLES = 3
OTHERS = "other"
SCHEDULE = ("kind", "expression", "zone", "every_ms", "every_most_ms", "during")
SECRET = ("args", "kwargs", "metadata")


@dataclass(frozen=True, slots=True)
class BulkGroup:
    """Tasks with the same change, or the same reason of a refusal: how many there are, and the first of them."""

    words: str
    tasks: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bulk:
    """What `bulk` has done, or would do: how many tasks match, change, need no change, and are refused.

    `changes` and `refusals` group the tasks by their change or their reason, up to 20 of each.
    """

    action: str
    applied: bool
    matched: int
    changed: int
    unchanged: int
    refused: int
    changes: tuple[BulkGroup, ...]
    refusals: tuple[BulkGroup, ...]


class Judged(NamedTuple):
    """A task that matches. It is refused (with a reason), or changes (in words), or needs no change."""

    row: Row
    words: str = ""
    refused: str = ""
    change: Change | None = None


class Action:
    """Judges tasks, and changes those that may change, as a single operation does."""

    takes: Collection[str] = ()

    def __init__(self, by: str | None, given: Mapping[str, Any]) -> None:
        self.by, self.given = by, given

    def begin(self) -> Steps[None]:
        """Checks what was given. Raises BadInput."""
        yield from ()

    def judge(self, row: Row) -> Steps[Judged]:
        yield from ()
        return Judged(row, *self.says(row))

    def says(self, row: Row) -> tuple[str, str]:
        """Returns the change in words, and the reason why it is refused. Both are empty if the task needs no change."""
        raise NotImplementedError

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        """Writes the changes of a step. `before` is the number of changes in earlier steps."""
        raise NotImplementedError


@commits
def bulk(
    filter: Mapping[str, Any],  # noqa: A002 - users pass it by position
    action: str,
    *,
    apply: bool = False,
    by: str | None = None,
    progress: Callable[[Bulk], object] | None = None,
    **given: Any,
) -> Parts[Bulk]:
    """Plans a change of all tasks that match a filter, and makes it with `apply=True`.

    `filter` has the filters of `list_tasks`, such as `{"function": "mail.fetch", "state": "failing"}`. An empty one
    matches all tasks. `action` is `edit`, with the fields of `edit`; `pause`, with `reason` and `until`; `run` or
    `retry`, with `once_within`; or `resume`, `enable`, `disable` or `delete`. `retry` runs tasks that are failing.

    Each task changes as by the single operation, with its events and `by` as their author. A task that the action
    cannot change is refused, with the reason. Runs become due in groups, each a tick after the other, within the budget
    of a resumed pause.

    `db` must be outside a transaction. Steps of a thousand tasks, by id, are committed one by one, and `progress` is
    called after each. Raises BadInput, in which case nothing is written, or BulkStopped if a later step than the first
    one fails: `done` says what the earlier steps did. The call can be repeated.
    """
    done, number = Tally(action, checks.flag("apply", apply)), 1
    chosen, act = yield _begun(filter, action, given, checks.author(by))
    after: int | None = 0
    while after is not None:
        try:
            after, judged = yield step(chosen, act, after, apply, done.changed)
        except Exception as error:
            if not (apply and done.matched):
                raise
            raise BulkStopped(done.stopped(number, drivers.answer_of(error)[1]), done.report()) from error
        number += 1
        done.add(judged)
        if progress is not None:
            progress(done.report())
    return done.report()


@reads
def plan(filter: Mapping[str, Any], action: str, *, by: str | None = None) -> Steps[Bulk]:  # noqa: A002 - as above
    """Plans an action without arguments, as `bulk` does. Judges one task of each kind, so a million tasks cost little.

    When it is applied, each task is judged by itself.
    """
    done, (chosen, act) = Tally(action, False), (yield from _begun(filter, action, {}, checks.author(by)))
    kinds = yield from filters.kinds(chosen)
    found = yield query("tasks_with_ids", ids=[id_ for kind in kinds for id_ in kind["ids"]])
    rows_by_id = {row["id"]: row for row in found}
    for kind in kinds:
        if of_kind := [rows_by_id[id_] for id_ in kind["ids"] if id_ in rows_by_id]:
            judged = yield from act.judge(of_kind[0])
            done.add(judged._replace(row=row) for row in of_kind[1:])
            done.add([judged], kind["tasks"] - len(of_kind) + 1)
    return done.report()


def _begun(wanted: Mapping[str, Any], name: str, given: Mapping[str, Any], by: str | None) -> Steps[tuple[Any, Action]]:
    if name not in [*ACTIONS]:  # it may be unhashable
        raise BadInput("action", name, f"is not one of: {', '.join(ACTIONS)}")
    action = ACTIONS[name](by, given)
    for known, names, problem in (
        (filters.NAMES, wanted, "is no filter"),
        (action.takes, given, f"does not apply to {name}"),
    ):
        for one in names:
            if one not in known:
                raise BadInput(one, None, f"{problem}{did_you_mean(one, known)}; known: {', '.join(known) or 'none'}")
    filters.check_owner(wanted)
    texts = {one: value if one == "owner" else checks.plain(one, value) for one, value in wanted.items()}
    yield from action.begin()
    return (yield from filters.chosen(**texts)), action


def step(
    chosen: filters.Chosen, action: Action, after: int, apply: bool, changed: int
) -> Steps[tuple[int | None, list[Judged]]]:
    """Judges the next tasks after an id, and with `apply` changes them. Returns the id after which others follow."""
    page = yield from filters.page(chosen, after=after, limit=AT_ONCE)
    matching, following = page.rows, page.next
    if apply and matching:  # locked in the order of ids, as everywhere, and then read again
        locked = {row["id"] for row in (yield query("lock_tasks", ids=[row["id"] for row in matching]))}
        first, last = matching[0]["id"], matching[-1]["id"]
        again = yield from filters.matching(chosen, after=first - 1, before=last + 1, limit=AT_ONCE)
        if len(again) == AT_ONCE:  # tasks that match by now may have taken the places of others
            following = again[-1]["id"]
        matching = [row for row in again if row["id"] in locked]
    judged = []
    for row in matching:
        judged.append((yield from action.judge(row)))
    if apply and (to_change := [one for one in judged if one.words]):
        yield from action.write(to_change, changed)
    return following, judged


@dataclass(slots=True)
class Tally:
    """Counts what has been judged so far."""

    action: str
    applied: bool
    matched: int = 0
    changed: int = 0
    refused: int = 0
    changes: dict[str, BulkGroup] = field(default_factory=dict)
    refusals: dict[str, BulkGroup] = field(default_factory=dict)

    def add(self, judged: Iterable[Judged], times: int = 1) -> None:
        for one in judged:
            self.matched += times
            self.changed += times * bool(one.words)
            self.refused += times * bool(one.refused)
            for text, groups in ((one.words, self.changes), (one.refused, self.refusals)):
                if text:
                    self._count(text, groups, one.row, times)

    def _count(self, text: str, groups: dict[str, BulkGroup], row: Row, times: int) -> None:
        text = text if text in groups or len(groups) < GROUPS_AT_MOST - 1 else OTHERS
        known = groups.get(text, BulkGroup(text, 0, ()))
        examples = known.examples
        if len(examples) < EXAMPLES:
            task = task_from(row)
            named = f"{task.id} {task.name}" + (f" of {task.owner}" if task.owner else "")
            examples = (*examples, f"{task.subject} ({named})" if task.subject else named)
        groups[text] = BulkGroup(text, known.tasks + times, examples)

    def report(self) -> Bulk:
        unchanged = self.matched - self.changed - self.refused
        counts = self.matched, self.changed, unchanged, self.refused
        return Bulk(self.action, self.applied, *counts, (*self.changes.values(),), (*self.refusals.values(),))

    def stopped(self, number: int, error: str) -> str:
        return (
            f"step {number} of {self.action} failed: {error}; the steps before it are committed: {self.changed:,} of "
            f"{self.matched:,} tasks changed; repeat the call for the rest"
        )


# ------------------------------------------------------------------------------------------------------------- actions


class Edit(Action):
    takes: Collection[str] = fields.FIELDS
    values: definition.Given

    def begin(self) -> Steps[None]:
        if not self.given:
            raise BadInput("edit", None, "changes nothing; give a field, such as every")
        self.values = fields.check(self.given)
        yield from ()

    def judge(self, row: Row) -> Steps[Judged]:
        return (yield from judge_edit(row, self.values))

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        if keys := self.values.get("limits"):
            yield query("name_keys", keys=keys)
        return (yield from rows.change_all([one.change for one in judged if one.change], by=self.by))


class Enable(Edit):
    takes = ()
    enabled = True

    def begin(self) -> Steps[None]:
        self.given = {"enabled": self.enabled}
        return super().begin()


class Disable(Enable):
    enabled = False


class Run(Action):
    takes = ("once_within",)

    def begin(self) -> Steps[None]:
        self.within = operations.within(self.given.get("once_within"))
        [known] = yield query("tick_ms")
        self.tick = known["tick_ms"] or settings.current().tick_ms
        [row] = yield query("budget_of_all", tick_ms=self.tick)
        self.budget = row["budget"]

    def says(self, row: Row) -> tuple[str, str]:
        refused = operations.switched_off(row)
        return "" if refused else "one run", refused

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        return (yield from operations.planned(_ids(judged), self.within, before // self.budget * self.tick))


class Retry(Run):
    def says(self, row: Row) -> tuple[str, str]:
        return super().says(row) if row["failures"] else ("", "its last run did not fail")


class Pause(Action):
    takes = ("reason", "until")

    def begin(self) -> Steps[None]:
        self.columns = yield from operations.pausing(self.by, self.given.get("reason", ""), self.given.get("until"))

    def says(self, row: Row) -> tuple[str, str]:
        until = self.columns["until"]
        return "paused" if until is None else f"paused until {until.isoformat()}", ""

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        return (yield from rows.pause([one.row for one in judged], **self.columns))


class Resume(Action):
    def says(self, row: Row) -> tuple[str, str]:
        return ("" if row["paused_by"] is None else f"resumed (paused by {row['paused_by']})"), ""

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        resumed = yield from rows.resume([one.row for one in judged], self.by)
        yield from rows.wake_up()
        return resumed


class Delete(Action):
    def says(self, row: Row) -> tuple[str, str]:
        return "deleted", ""

    def write(self, judged: Sequence[Judged], before: int) -> Steps[object]:
        return (yield from rows.written("delete_tasks", by=self.by, ids=_ids(judged)))


ACTIONS: Mapping[str, type[Action]] = {
    "edit": Edit, "run": Run, "retry": Retry, "pause": Pause, "resume": Resume, "enable": Enable, "disable": Disable,
    "delete": Delete,
}  # fmt: skip


def _ids(judged: Sequence[Judged]) -> list[int]:
    return [one.row["id"] for one in judged]


def judge_edit(row: Row, values: definition.Given) -> Steps[Judged]:
    """Judges an edit of these columns."""
    try:
        change = yield from rows.check_change(row, values)
    except BadInput as error:
        return Judged(row, refused=str(error))
    return Judged(row, difference(task_from(row), change.values), change=change)


def changed_columns(task: Task, values: Mapping[str, Any]) -> set[str]:
    return {column for column in DEFAULTS if _plain(column, getattr(task, column)) != _plain(column, values[column])}


def difference(task: Task, values: Mapping[str, Any]) -> str:
    """Returns the changed columns in words, old and new, or an empty text. Hides what may be secret."""
    before = {column: getattr(task, column) for column in DEFAULTS}
    changed = changed_columns(task, values)
    parts = [f"{in_words(before)} -> {in_words(values)}"] if {*SCHEDULE} & changed else []
    for column in (column for column in DEFAULTS if column in changed and column not in SCHEDULE):
        if column in SECRET:
            parts.append(f"{column} changed")
        else:
            old, new = (_shown(column, one[column]) for one in (before, values))
            parts.append(f"{column.removesuffix('_ms')}: {old} -> {new}")
    return ", ".join(parts)


def _plain(column: str, value: Any) -> Any:
    if column in ("starts_at", "ends_at"):
        return definition.moment(value)
    return tuple(value or ()) if column == "limits" else value


def _shown(column: str, value: Any) -> str:
    if not value and value not in (0, False):
        return "none"
    if column.endswith("_ms"):
        return words(value)
    if column == "limits":
        return ", ".join(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
