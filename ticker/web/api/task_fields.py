"""What can be said of a task in a body: the arguments of `register`, each described. `ticker.tasks.checks` reads them."""

from collections.abc import Mapping

from ticker.model import COUNT_AT_MOST, INTERVALS_AT_MOST, NAME_AT_MOST, PRIORITY_AT_MOST, RETRIES_AT_MOST, TEXT_AT_MOST
from ticker.web.api.fields import Field, Schema, instant, owner

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": NAME_AT_MOST}
LABEL: Schema = {"type": "string", "maxLength": NAME_AT_MOST}
PROSE: Schema = {"type": "string", "maxLength": TEXT_AT_MOST}
OBJECT: Schema = {"type": "object"}
FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
DURATION: Schema = {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": ["30s", "1h30m", "PT5M", 90]}
TIME: Schema = {"anyOf": [{"type": "string"}, {"type": "integer"}], "examples": ["2027-01-01T09:00:00Z"]}


def count(most: int, least: int = 0) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


SCHEDULES = (
    Field("every", "How often: a duration from 1 s to 366 days, as a text or in seconds.", DURATION),
    Field("cron", "When: 5 fields, 6 (seconds first) or 7 (year last).", {**TEXT, "examples": ["0 9 * * 1-5"]}),
    Field("calendar", "When: systemd's calendar events.", {**TEXT, "examples": ["Mon..Fri 09:00"]}),
    Field("at", "Once, then: ISO 8601 with an offset, or seconds or milliseconds since 1970.", TIME),
    Field(
        "zone", "Where the times of cron and calendar count, UTC by default.", {**TEXT, "examples": ["Europe/Berlin"]}
    ),
)
"""A task has one of the first four."""

FIELDS = (
    *SCHEDULES,
    Field("function", "The function that it runs, under the name that @task gave it.", NAME),
    Field("starts", "No time before it; an empty text takes the bound away.", TIME),
    Field("ends", "No time behind it; an empty text takes the bound away.", TIME),
    Field("max_runs", "How often it starts in all; 0: without a limit.", count(1_000_000_000)),
    Field("catch_up", "One late run after an outage, or none.", one_of("one", "none")),
    Field("remove", "With at: whether it is deleted after its success.", FLAG),
    Field("spread", "Whether it has a place of its own in its interval, or within a window.", FLAG),
    Field("within", "With spread, cron and calendar: how long after each time it may run; 0: none.", DURATION),
    Field("queue", "The RQ queue; polling by default.", NAME),
    Field("kwargs", "The function's arguments, up to 64 kB.", OBJECT),
    Field("tolerance", "How much earlier than the interval a run may start.", DURATION),
    Field("box", "How long a run may last.", DURATION),
    Field("overlap", "skip: no job while one waits or runs.", one_of("queue", "skip")),
    Field("retries", "Further attempts after a failure.", count(RETRIES_AT_MOST)),
    Field("backoff", "Between attempts: 10s, or 10s..5m, which doubles.", DURATION),
    Field("stretch", "After failures the interval doubles, up to this; 0: it stays.", DURATION),
    Field("pause_after", "Pause after so many failures in a row; 0: never.", count(COUNT_AT_MOST)),
    Field("probe", "How long pause_after pauses, until a single run decides; 0: an hour.", DURATION),
    Field("dead_man", "Tell after so many intervals without a success; 0: never.", count(INTERVALS_AT_MOST)),
    Field("keep", "Of which runs the record is kept.", one_of("all", "problems", "none")),
    Field("submitter", "Kept and shown.", LABEL),
    Field("group", "Kept and shown.", LABEL),
    Field(
        "priority",
        "Which of an owner's tasks goes first if its queue is full.",
        count(PRIORITY_AT_MOST, -PRIORITY_AT_MOST),
    ),
    Field("subject", "Kept and shown.", PROSE),
    Field("description", "Kept and shown.", PROSE),
    Field("metadata", "An object of up to 64 kB that is kept and shown.", OBJECT),
)
BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}

NEW = (
    BY_NAME["function"].needed(),
    Field("name", "Unique per owner; the function's name by default.", NAME),
    owner("owner", "Whose it is, as type:id, such as mail_channels:5; nobody's by default."),
    instant("first", "When it is due first; an interval is due at once by default."),
    *(field for field in FIELDS if field.name != "function"),
)
CHANGES = (*FIELDS, Field("enabled", "Whether it runs at all.", FLAG))
