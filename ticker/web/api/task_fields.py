"""Describes the fields of a task in a body as plain JSON Schema. `ticker.tasks.checks` reads them, as it does for `register`."""

from collections.abc import Mapping

from ticker.model import COUNT_AT_MOST, INTERVALS_AT_MOST, NAME_AT_MOST, PRIORITY_AT_MOST, RETRIES_AT_MOST, TEXT_AT_MOST
from ticker.web.api.fields import FLAG, INSTANT, NAME, OWNER, TEXT, Schema, body, doc, integer, one_of

LABEL: Schema = {"type": "string", "maxLength": NAME_AT_MOST}
PROSE: Schema = {"type": "string", "maxLength": TEXT_AT_MOST}
OBJECT: Schema = {"type": "object"}
DURATION: Schema = {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": ["30s", "1h30m", "PT5M", 90]}
TIME: Schema = {"anyOf": [{"type": "string"}, {"type": "integer"}], "examples": ["2027-01-01T09:00:00Z"]}

SCHEDULES: Mapping[str, Schema] = {
    "every": doc("How often: a duration from 1 s to 366 days, as a text or in seconds.", DURATION),
    "cron": doc("When: 5 fields, 6 (seconds first) or 7 (year last).", TEXT, examples=["0 9 * * 1-5"]),
    "calendar": doc("When: systemd's calendar events.", TEXT, examples=["Mon..Fri 09:00"]),
    "at": doc("Once, then: ISO 8601 with an offset, or seconds or milliseconds since 1970.", TIME),
    "zone": doc("Where the times of cron and calendar count, UTC by default.", TEXT, examples=["Europe/Berlin"]),
}
"""A task has one of the first four."""

FIELDS: Mapping[str, Schema] = {
    **SCHEDULES,
    "function": doc("The function that it runs, under the name that @task gave it.", NAME),
    "starts": doc("No time before it; an empty text takes the bound away.", TIME),
    "ends": doc("No time behind it; an empty text takes the bound away.", TIME),
    "max_runs": doc("How often it starts in all; 0: without a limit.", integer(1_000_000_000)),
    "catch_up": doc("One late run after an outage, or none.", one_of("one", "none")),
    "remove": doc("With at: whether it is deleted after its success.", FLAG),
    "spread": doc("Whether it has a place of its own in its interval, or within a window.", FLAG),
    "within": doc("With spread, cron and calendar: how long after each time it may run; 0: none.", DURATION),
    "queue": doc("The RQ queue; polling by default.", NAME),
    "kwargs": doc("The function's arguments, up to 64 kB.", OBJECT),
    "tolerance": doc("How much earlier than the interval a run may start.", DURATION),
    "box": doc("How long a run may last.", DURATION),
    "overlap": doc("skip: no job while one waits or runs.", one_of("queue", "skip")),
    "retries": doc("Further attempts after a failure.", integer(RETRIES_AT_MOST)),
    "backoff": doc("Between attempts: 10s, or 10s..5m, which doubles.", DURATION),
    "stretch": doc("After failures the interval doubles, up to this; 0: it stays.", DURATION),
    "pause_after": doc("Pause after so many failures in a row; 0: never.", integer(COUNT_AT_MOST)),
    "probe": doc("How long pause_after pauses, until a single run decides; 0: an hour.", DURATION),
    "dead_man": doc("Tell after so many intervals without a success; 0: never.", integer(INTERVALS_AT_MOST)),
    "keep": doc("Of which runs the record is kept.", one_of("all", "problems", "none")),
    "submitter": doc("Kept and shown.", LABEL),
    "group": doc("Kept and shown.", LABEL),
    "priority": doc(
        "Which of an owner's tasks goes first if its queue is full.", integer(PRIORITY_AT_MOST, -PRIORITY_AT_MOST)
    ),
    "subject": doc("Kept and shown.", PROSE),
    "description": doc("Kept and shown.", PROSE),
    "metadata": doc("An object of up to 64 kB that is kept and shown.", OBJECT),
}

NEW = body({
    "function": FIELDS["function"],
    "name": doc("Unique per owner; the function's name by default.", NAME),
    "owner": doc("Whose it is, as type:id, such as mail_channels:5; nobody's by default.", OWNER),
    "first": doc("When it is due first; an interval is due at once by default.", INSTANT),
    **FIELDS,
}, required=["function"])  # fmt: skip
CHANGES = body({**FIELDS, "enabled": doc("Whether it runs at all.", FLAG)})
