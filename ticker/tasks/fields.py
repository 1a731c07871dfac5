"""The fields of a task, declared once. Registration, CLI, HTTP API, page, SQL and docs/fields.md are made from them.

A field is a line of `TaskFields`: its static type, and a `Field` with everything else. `register` repeats the types for the sake
of completion, and `Task` has the columns; tests compare both, the tables and docs/fields.md with what stands here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, TypedDict, get_type_hints
from uuid import UUID

from ticker.engine.retries import Backoff
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

WHEN, HOW, FAILURES, PEOPLE = GROUPS = ("When", "How it runs", "After failures", "For people")
"""The groups of the form."""


# fmt: off
class TaskFields(TypedDict, total=False):
    """What `register` takes of a task beside its function, name and owner. None: it was not said."""

    every: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATION"), "Every", "", "How often: a duration from 1s to 366d, such as 1m, or seconds.",
        column="every_ms", default=0)]
    cron: Annotated[str | None, Field(
        sorts.text("FIELDS", "0 9 * * 1-5"), "Cron", "", "When: 5 fields, 6 (seconds first) or 7 (year last).",
        column="expression", default="")]
    calendar: Annotated[str | None, Field(
        sorts.text("EVENT", "Mon..Fri 09:00"), "Calendar", "", "When: systemd's calendar events: Mon..Fri 09:00, daily, *:0/15.",
        column="expression", default="")]
    at: Annotated[datetime | str | int | None, Field(
        Sort(sorts.TIME, "TIME"), "At", "", "Once, then: 2027-01-01T09:00:00+01:00, or seconds or milliseconds since 1970.",
        column="expression", default="")]
    zone: Annotated[str | None, Field(
        sorts.text("ZONE", "Europe/Berlin"), "Zone", "", "Where the times of cron and calendar count; UTC by default.",
        "Europe/Berlin", default="UTC")]
    starts: Annotated[datetime | str | None, Field(
        sorts.BOUND, "Starts", WHEN, "No time before it; an empty text takes the bound away.", "2027-01-01T09:00:00Z",
        column="starts_at")]
    ends: Annotated[datetime | str | None, Field(
        sorts.BOUND, "Ends", WHEN, "No time after it; an empty text takes the bound away.", "2027-12-31T18:00:00+01:00",
        column="ends_at")]
    max_runs: Annotated[int | None, Field(
        sorts.limit(checks.MOST_RUNS), "Runs at most", WHEN, "How often it starts in all; 0: without a limit.")]
    catch_up: Annotated[str | None, Field(
        sorts.choice("one (a single late run)", "none (what was missed is skipped)"), "Catch up", WHEN,
        "One late run after an outage, or none.", default="one")]
    remove: Annotated[bool | None, Field(
        sorts.FLAG, "Remove", WHEN, "With a single time (at): whether the task is deleted after its success.", default=False)]
    spread: Annotated[bool | None, Field(
        sorts.FLAG, "Spread", WHEN, "Whether it has a place of its own in its interval, or within a window, so that many tasks "
        "are not due at once.", default=False)]
    within: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Within", WHEN, "With spread, cron and calendar: how long after each time it may run; 0: none.", "2h",
        column="within_ms")]
    queue: Annotated[str | None, Field(sorts.NAME, "Queue", HOW, "The RQ queue; polling by default.", default="polling")]
    kwargs: Annotated[Mapping[str, Any] | None, Field(
        sorts.OBJECT, "Arguments", "", "The function's arguments: a JSON object of up to 64 kB.", '{"channel_id": 5}', default={})]
    tolerance: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATION", milliseconds), "Tolerance", HOW, "How much earlier than the interval a run may start.",
        column="tolerance_ms", default=0)]
    box: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATION", checks.box), "Time box", HOW,
        "How long a run may last; by default half the interval, or half the shortest gap and at most 5m.",
        column="box_ms", default=0)]
    overlap: Annotated[str | None, Field(
        sorts.choice("queue (each occurrence has its job)", "skip (none while a job of the task waits or runs)"), "Overlap", HOW,
        "skip: no job while one waits or runs.", default="queue")]
    retries: Annotated[int | None, Field(
        sorts.whole(0, RETRIES_AT_MOST), "Retries", FAILURES, "Further attempts after a failure; 0: none.", default=0)]
    backoff: Annotated[Duration | None, Field(
        Sort(sorts.DURATION, "DURATIONS", checks.backoff), "Back-off", FAILURES, "Between attempts: 10s, or 10s..5m, which doubles.",
        default=Backoff().text)]
    stretch: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Stretch", FAILURES, "After failures the interval doubles, up to this; 0: it stays.",
        column="stretch_ms")]
    pause_after: Annotated[int | None, Field(
        sorts.limit(COUNT_AT_MOST), "Pause after", FAILURES, "Pause after so many failures in a row; 0: never.")]
    probe: Annotated[Duration | None, Field(
        sorts.LIMITED_SPAN, "Probe", FAILURES, "How long a pause after failures lasts, until a single run decides; 0: an hour.",
        column="probe_ms")]
    dead_man: Annotated[int | None, Field(
        sorts.limit(INTERVALS_AT_MOST), "Missing success", FAILURES,
        "Notify after so many intervals without a success; 0: never.")]
    keep: Annotated[str | None, Field(
        sorts.choice("all", "problems (successes go)", "none"), "Records", PEOPLE, "Of which runs the record is kept.",
        default="all")]
    submitter: Annotated[str | None, Field(sorts.LABEL, "Submitter", PEOPLE, "Kept and shown.", default="")]
    group: Annotated[str | None, Field(sorts.LABEL, "Group", PEOPLE, "Kept and shown.", column="group_name", default="")]
    priority: Annotated[int | None, Field(
        sorts.whole(-PRIORITY_AT_MOST, PRIORITY_AT_MOST), "Priority", PEOPLE,
        "From -1000 to 1000: which of an owner's tasks goes first in a full queue.", default=0)]
    subject: Annotated[str | None, Field(sorts.PROSE, "Subject", PEOPLE, "Kept and shown.", default="")]
    description: Annotated[str | None, Field(sorts.PROSE, "Description", PEOPLE, "Kept and shown.", default="")]
    metadata: Annotated[Mapping[str, Any] | None, Field(
        sorts.OBJECT, "Metadata", PEOPLE, "A JSON object of up to 64 kB that is kept and shown.", default={})]


class Changes(TaskFields, total=False):
    """What `edit` takes, and `@task(...)`."""

    function: Annotated[str, Field(
        sorts.NAME, "Function", "", "The function that it runs, under the name that @task gave it.", "mail.fetch", default="")]
    enabled: Annotated[bool, Field(
        sorts.FLAG, "Enabled", "", "Whether it runs at all.", default=True, option="--enable/--disable")]
# fmt: on


def _declared(table: type) -> dict[str, Field]:
    declared = {name: hint.__metadata__[0] for name, hint in get_type_hints(table, include_extras=True).items()}
    return {name: replace(field, name=name, column=field.column or name) for name, field in declared.items()}


SETTINGS = _declared(TaskFields)
FIELDS = {"function": _declared(Changes)["function"], **SETTINGS, **_declared(Changes)}
"""All that can be changed, by name."""

SCHEDULES = tuple(field for field in SETTINGS.values() if field.is_schedule)
"""What says when a task runs: a task has one of the first four."""

DEFAULTS: Mapping[str, Any] = {"kind": Kind.INTERVAL, **{field.column: field.default for field in FIELDS.values()}}
"""What the columns of a new task have where nothing is said."""

OF_NEW = (
    Field(sorts.NAME, "Name", "", "Unique per owner; the function's name by default.", name="name"),
    Field(sorts.OWNER, "Owner", "", "Whose it is, as type:id; nobody's by default.", "mail_channels:5", name="owner"),
    Field(sorts.INSTANT, "First time", WHEN, "When it is due first; an interval is due at once by default.", "2027-01-01T09:00:00Z", name="first"),
)  # fmt: skip
"""What else is said of a new task."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as people see it: what to run, its schedule and owner, and its state. Times are UTC."""

    id: int
    guid: UUID
    owner_type: str
    owner_id: str
    name: str
    function: str
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
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def owner(self) -> str:
        """`type:id`, or nothing for a task without an owner."""
        return f"{self.owner_type}:{self.owner_id}" if self.owner_type else ""


# ----------------------------------------------------------------------------------------------- what is made of it


def check(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns each field, checked by its own rule, under its column's name. BadInput names field, value and limit."""
    values: dict[str, Any] = {}
    for name, value in said.items():
        if (rule := FIELDS[name].sort.check) is not None:
            values[FIELDS[name].column] = rule(name, value)
    return values | checks.schedule({field.name: said[field.name] for field in SCHEDULES if field.name in said})


def check_names(where: str, names: Iterable[object], known: Collection[str] = FIELDS) -> None:
    """Raises BadInput for the first name that is no field."""
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise BadInput(where, name, f"is no field of a task{near}; those are the arguments of register")


def body_of_register() -> Schema:
    """JSON Schema of a new task, as `register` takes it."""
    return _object((FIELDS["function"], *OF_NEW, *SETTINGS.values()), required=["function"])


def body_of_edit() -> Schema:
    """JSON Schema of changes, as `edit` takes them."""
    return _object(FIELDS.values(), required=[])


def columns_as_returned(schema_of: Callable[[Any], Schema]) -> dict[str, Schema]:
    """Returns the properties of a task in an answer: each column by its type, of which `schema_of` knows the schema."""
    says = {field.column: field.says for field in FIELDS.values() if not field.is_schedule}
    return {
        column: {**schema_of(hint), **({"description": says[column]} if column in says else {})}
        for column, hint in get_type_hints(Task).items()
    }


def properties(of: Iterable[Field]) -> dict[str, Schema]:
    """Returns the JSON Schema of each field, with its words."""
    return {field.name: {**field.schema, "description": field.says} for field in of}


def _object(of: Iterable[Field], required: list[str]) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties(of)}
