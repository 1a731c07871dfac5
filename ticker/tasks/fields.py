"""Declares the fields of a task once, for registration, the CLI, the HTTP API, the page, SQL and
docs/reference/fields.md.

Each field is a line of `TaskFields`: its static type, and a `Field` with everything else. `Task` lists the columns.
Tests compare it, the tables and docs/reference/fields.md with this module.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints
from uuid import UUID

from ticker.engine import timing
from ticker.engine.timing import Backoff
from ticker.errors import BadInput, did_you_mean
from ticker.model import (
    COUNT_AT_MOST,
    INTERVALS_AT_MOST,
    PRIORITY_AT_MOST,
    RETRIES_AT_MOST,
    Kind,
    Outcome,
)
from ticker.schedules.duration import Duration, milliseconds
from ticker.tasks import checks, sorts
from ticker.tasks.sorts import Field, Schema, Sort

F = TypeVar("F", bound=Callable[..., Any])

WHEN, HOW, FAILURES, PEOPLE = GROUPS = ("Schedule options", "Execution", "After failures", "Records and labels")
"""The groups of fields on the form."""


# fmt: off
class TaskFields(TypedDict, total=False):
    """The fields that `register` takes in addition to function, name and owner. None means that the field was not
    passed.
    """

    every: Annotated[Duration | None, Field(
        Sort(sorts.INTERVAL, "DURATION"), "Every", "",
        "The interval: a duration such as 1m, or seconds; from 1s to 366d. With 1m..30m, it doubles while runs find nothing to do.",
        column="every_ms", default=0)]
    cron: Annotated[str | None, Field(
        sorts.text("FIELDS", "0 9 * * 1-5"), "Cron", "", "A cron expression of 5 fields, 6 (seconds first) or 7 (year last).",
        column="expression", default="")]
    calendar: Annotated[str | None, Field(
        sorts.text("EVENT", "Mon..Fri 09:00"), "Calendar", "",
        "A systemd calendar event, such as Mon..Fri 09:00, daily or *:0/15.",
        column="expression", default="")]
    at: Annotated[datetime | str | float | None, Field(
        Sort(sorts.TIME, "TIME"), "At", "", "A single time: 2027-01-01T09:00:00+01:00, or seconds (also fractions) or milliseconds since 1970.",
        column="expression", default="")]
    zone: Annotated[str | None, Field(
        sorts.text("ZONE", "Europe/Berlin"), "Zone", "", "The time zone of cron, calendar and during; defaults to UTC.",
        "Europe/Berlin", default="UTC")]
    starts: Annotated[datetime | str | None, Field(
        sorts.BOUND, "Starts", WHEN,
        "The task is not due before this time; an empty string removes the limit.", "2027-01-01T09:00:00Z",
        column="starts_at")]
    ends: Annotated[datetime | str | None, Field(
        sorts.BOUND, "Ends", WHEN,
        "The task is not due after this time; an empty string removes the limit.", "2027-12-31T18:00:00+01:00",
        column="ends_at")]
    during: Annotated[str | None, Field(
        sorts.HOURS, "During", WHEN,
        "With every: the hours in the zone, or the days, in which the task is due; an empty string means always.", "9-17 mon-fri",
        default="")]
    max_runs: Annotated[int | None, Field(
        sorts.limit(checks.MOST_RUNS), "Maximum runs", WHEN, "The maximum number of scheduled starts; 0 means no limit.")]
    catch_up: Annotated[str | None, Field(
        sorts.choice("one (a single late run)", "none (missed occurrences are skipped)"), "Catch up", WHEN,
        "The number of late runs after an outage: one or none.", default="one")]
    remove: Annotated[bool | None, Field(
        sorts.FLAG, "Remove", WHEN, "With a single time (at): whether to delete the task after its success.", default=False)]
    spread: Annotated[bool | None, Field(
        sorts.FLAG, "Spread", WHEN, "Whether the task is due at its own phase in the interval or window, "
        "so that many tasks are not due at once.", default=False)]
    within: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Within", WHEN,
        "With spread and cron or calendar: the length of the window after each time; 0 removes it.", "2h",
        column="within_ms")]
    queue: Annotated[str | None, Field(sorts.NAME, "Queue", HOW, "The RQ queue; defaults to polling.", default="polling")]
    args: Annotated[Sequence[Any] | None, Field(
        sorts.POSITIONAL, "Positional arguments", "",
        "The function's positional arguments: a JSON array. Together with kwargs, up to 64 kB.", '["imap.example.org", 5]', default=[])]
    kwargs: Annotated[Mapping[str, Any] | None, Field(
        sorts.ARGUMENTS, "Arguments", "",
        "The function's arguments by name: a JSON object of up to 64 kB.", '{"channel_id": 5}', default={})]
    tolerance: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATION", milliseconds), "Tolerance", HOW, "How much earlier than its interval a run may start.",
        column="tolerance_ms", default=0)]
    box: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATION", partial(milliseconds, least=timing.SHORTEST_BOX)), "Time box", HOW,
        "The time limit of a run; defaults to half the interval, or half the shortest gap and at most 5m.",
        column="box_ms", default=0)]
    overlap: Annotated[str | None, Field(
        sorts.choice("queue (each occurrence gets a job)", "skip (no job while one of the task waits or runs)"), "Overlap", HOW,
        "With skip, an occurrence gets no job while another job of the task waits or runs.", default="queue")]
    limits: Annotated[Sequence[str] | None, Field(
        sorts.KEYS, "Limits", HOW,
        "One or two keys, such as a host or an account, whose limits the task shares with others; an empty list removes them.",
        "imap.gmail.com, account:7")]
    retries: Annotated[int | None, Field(
        sorts.integer(0, RETRIES_AT_MOST), "Retries", FAILURES,
        "The number of further attempts after a failure; 0 means none.", default=0)]
    backoff: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATIONS", checks.backoff), "Back-off", FAILURES,
        "The wait between attempts: 10s, or 10s..5m to double it up to 5m.",
        default=Backoff().text)]
    stretch: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Stretch", FAILURES,
        "After failures, the interval doubles up to this duration; 0 leaves it unchanged.",
        column="stretch_ms")]
    pause_after: Annotated[int | None, Field(
        sorts.limit(COUNT_AT_MOST), "Pause after", FAILURES,
        "Pause the task after this many failures in a row; 0 means never.")]
    probe: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Probe", FAILURES,
        "How long a pause after failures lasts before a single run decides whether it ends; 0 means an hour.",
        column="probe_ms")]
    dead_man: Annotated[int | None, Field(
        sorts.limit(INTERVALS_AT_MOST), "Missing success", FAILURES,
        "Notify after this many intervals without a success; 0 means never.")]
    keep: Annotated[str | None, Field(
        sorts.choice("all", "problems (successes are deleted)", "none"), "Records", PEOPLE, "The runs whose records are kept.",
        default="all")]
    submitter: Annotated[str | None, Field(
        sorts.LABEL, "Submitter", PEOPLE,
        "The name of the submitter; stored and shown.", default="")]
    group: Annotated[str | None, Field(
        sorts.LABEL, "Group", PEOPLE,
        "The name of a group of tasks; stored and shown.", column="group_name", default="")]
    priority: Annotated[int | None, Field(
        sorts.integer(-PRIORITY_AT_MOST, PRIORITY_AT_MOST), "Priority", PEOPLE,
        "From -1000 to 1000; in a full queue, the owner's tasks with the highest priority go first.", default=0)]
    subject: Annotated[str | None, Field(
        sorts.PROSE, "Subject", PEOPLE,
        "A short text about the task; stored and shown.", default="")]
    description: Annotated[str | None, Field(
        sorts.PROSE, "Description", PEOPLE,
        "A longer text about the task; stored and shown.", default="")]
    metadata: Annotated[Mapping[str, Any] | None, Field(
        sorts.OBJECT, "Metadata", PEOPLE, "A JSON object of up to 64 kB; stored and shown.", default={})]


class Changes(TaskFields, total=False):
    """The fields that `edit` and `@task(...)` take."""

    function: Annotated[str, Field(
        sorts.NAME, "Function", "", "The function to run, under the name that @task gave it.", "mail.fetch", default="")]
    enabled: Annotated[bool, Field(
        sorts.FLAG, "Enabled", "", "Whether the task runs at all.", default=True, option="--enable/--disable")]
# fmt: on


def _declared(table: type) -> dict[str, Field]:
    declared = {name: hint.__metadata__[0] for name, hint in get_type_hints(table, include_extras=True).items()}
    return {name: replace(field, name=name, column=field.column or name) for name, field in declared.items()}


SETTINGS = _declared(TaskFields)
FIELDS = {"function": _declared(Changes)["function"], **SETTINGS, **_declared(Changes)}
"""All fields that can be changed, by name."""

SCHEDULES = tuple(field for field in SETTINGS.values() if field.is_schedule)
"""The fields of a schedule. A task has one of the first four."""

DEFAULTS: Mapping[str, Any] = {
    "kind": Kind.INTERVAL,
    "every_most_ms": None,
    **{field.column: field.default for field in FIELDS.values()},
}
"""The values of a new task for which no field was passed."""

COLUMNS: Mapping[str, Any] = {column: value for column, value in DEFAULTS.items() if column != "args"}
"""The same by the columns of the table: `args` is stored in `kwargs`, under `*`."""

OF_NEW = (
    Field(sorts.NAME, "Name", "", "The name, unique per owner; defaults to the function's name.", name="name"),
    Field(sorts.OWNER, "Owner", "", "The owner, as type:id; by default, the task has no owner.", "mail_channels:5", name="owner"),
    Field(
        sorts.INSTANT, "First time", WHEN,
        "The first time at which the task is due; by default, an interval task is due immediately.", "2027-01-01T09:00:00Z", name="first"),
)  # fmt: skip
"""The fields that only a new task takes."""


class Owned:
    """A row that names its owner."""

    __slots__ = ()
    owner_type: str
    owner_id: str

    @property
    def owner(self) -> str:
        """`type:id`, or an empty text without an owner."""
        return f"{self.owner_type}:{self.owner_id}" if self.owner_type else ""


@dataclass(frozen=True, slots=True)
class Task(Owned):
    """A task as users see it: what to run, its schedule and owner, and its state. Times are UTC.

    `wait_reason` says why the next run, whose job ended before it could start, waits again. `pause` describes the pause
    of many tasks that is in force for it. If that pause is over and the task still waits for its turn, `is_resuming` is
    True. `waits_for` is the state of a due task that the last tick has left, such as `no_room`, or `outside_hours`;
    otherwise, it is empty. Readers also say why (`waits_because`). `unknown_function`: workers have announced
    functions, but not that of the task, which has not started since its last edit.
    """

    id: int
    guid: UUID
    owner_type: str
    owner_id: str
    name: str
    function: str
    args: list[Any]
    kwargs: Mapping[str, Any]
    kind: Kind
    expression: str
    zone: str
    every_ms: int
    tolerance_ms: int
    box_ms: int
    grace_ms: int
    queue: str
    subject: str
    description: str
    metadata: Mapping[str, Any]
    enabled: bool
    owner_active: bool
    paused_by: str | None
    paused_reason: str
    paused_until: datetime | None
    next_run: datetime | None
    waiting: tuple[datetime, ...]
    push_errors: int
    push_error: str
    push_after: datetime | None
    wait_reason: str | None
    last_run: datetime | None
    last_occurrence: datetime | None
    running_until: datetime | None
    cursor: Any
    last_run_id: int | None
    last_outcome: Outcome | None
    last_ended_at: datetime | None
    last_success_at: datetime | None
    last_worked_at: datetime | None
    failures: int
    created_at: datetime
    updated_at: datetime
    starts_at: datetime | None
    ends_at: datetime | None
    max_runs: int | None
    started: int
    catch_up: str
    remove: bool
    overlap: str
    retries: int
    backoff: str
    stretch_ms: int | None
    stretched_ms: int | None
    pause_after: int | None
    probe_ms: int | None
    dead_man: int | None
    resumed_at: datetime | None
    submitter: str
    group_name: str
    priority: int
    keep: str
    succeeded: int
    failed: int
    dropped: int
    spread: bool
    within_ms: int | None
    phase_ms: int | None
    alone_until: datetime | None
    limits: tuple[str, ...]
    every_most_ms: int | None
    pace_ms: int | None
    again_at: datetime | None
    during: str
    pause: str | None
    is_resuming: bool
    waits_for: str
    unknown_function: bool
    warnings: tuple[str, ...] = field(default=(), compare=False)
    waits_because: str = field(default="", compare=False)

    @property
    def interval_ms(self) -> int:
        """The interval in force: longer than `every_ms` while the task fails, or while its runs find nothing to do."""
        return self.stretched_ms or self.pace_ms or self.every_ms

    @property
    def runs_next(self) -> datetime | None:
        """`next_run`, or None if the task is not pushed then: it is disabled or paused, or its owner is inactive."""
        return self.next_run if self.is_runnable else None

    @property
    def is_runnable(self) -> bool:
        return self.enabled and self.owner_active and self.paused_by is None and self.pause is None


# -------------------------------------------------------------------------------------- checks and schemas


def check(passed: Mapping[str, Any]) -> dict[str, Any]:
    """Checks each field by its own rule, and returns the columns' values. BadInput names the field, the value and the
    limit.
    """
    values: dict[str, Any] = {}
    for name, value in passed.items():
        if (rule := FIELDS[name].sort.check) is not None:
            values[FIELDS[name].column] = rule(name, value)
    return values | checks.schedule({field.name: passed[field.name] for field in SCHEDULES if field.name in passed})


def check_names(where: str, names: Iterable[object], known: Collection[str] = FIELDS) -> None:
    """Raises BadInput for the first name that is not a field."""
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise BadInput(where, name, f"cannot be given here{near}; docs/reference/fields.md lists the fields")


def body_of_register() -> Schema:
    """Returns the JSON Schema of a new task, as `register` takes it."""
    return _object((FIELDS["function"], *OF_NEW, *SETTINGS.values()), required=["function"])


def body_of_edit() -> Schema:
    """Returns the JSON Schema of changes, as `edit` takes them."""
    return _object(FIELDS.values(), required=[])


def columns_as_returned(schema_of: Callable[[Any], Schema]) -> dict[str, Schema]:
    """Returns the properties of a task in an answer: each column with the schema that `schema_of` returns for its type."""
    says = {field.column: field.says for field in FIELDS.values() if not field.is_schedule}
    return {
        column: {**schema_of(hint), **({"description": says[column]} if column in says else {})}
        for column, hint in get_type_hints(Task).items()
    }


def properties(of: Iterable[Field]) -> dict[str, Schema]:
    """Returns the JSON Schema of each field, with its description."""
    return {field.name: {**field.schema, "description": field.says} for field in of}


def _object(of: Iterable[Field], required: list[str]) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties(of)}


def spelled_out(function: F) -> F:
    """Gives a function that takes `**settings: Unpack[TaskFields]` a signature with each field, which `help` shows."""
    hints, signature = get_type_hints(TaskFields), inspect.signature(function)
    shown = [parameter for parameter in signature.parameters.values() if parameter.name != "settings"]
    shown += [inspect.Parameter(name, shown[-1].kind, default=None, annotation=hints[name]) for name in hints]
    del function.__annotations__["settings"]
    vars(function).update(__signature__=signature.replace(parameters=shown))
    function.__annotations__ |= hints
    return function
