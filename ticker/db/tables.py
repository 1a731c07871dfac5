"""The tables: columns, rules and indexes, each beside the query that it serves.

The database holds the rules too, so that a row edited by hand cannot break them. A rule of a single value is a domain,
which is asked when the value changes; a rule between columns is a CHECK, which every statement reads anew and asks of each
row that it writes: with CHECKs alone, a start and its end took PostgreSQL 1.7 times as long. Durations are whole
milliseconds, times are UTC and finite. `migrations/` is what creates them; a test compares the two.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOMAIN, JSONB, OID
from sqlalchemy.types import TypeEngine

from ticker.db.json_text import NESTED_AT_MOST
from ticker.model import (
    BATCH_AT_MOST,
    COUNT_AT_MOST,
    INTERVALS_AT_MOST,
    JSON_AT_MOST,
    NAME_AT_MOST,
    OUTPUT_AT_MOST,
    PRIORITY_AT_MOST,
    RETRIES_AT_MOST,
    TEXT_AT_MOST,
    Outcome,
    What,
)
from ticker.schedules.duration import LONGEST

WHEN = DateTime(timezone=True)
_TEXT = Text()

# 28 bits of a hash, as a fraction of the interval or the window. An interval is at most 2^35 ms, and a bigint has 63 bits.
PHASE = (
    "CASE WHEN spread THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))"
    "::bit(28)::bigint * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END"
)

_PLAIN = f"length(VALUE) <= {NAME_AT_MOST} AND VALUE !~ '[[:cntrl:]]'"


def _one_of(*values: str) -> str:
    return f"VALUE IN ({', '.join(repr(str(value)) for value in values)})"


def _object(most: int) -> str:
    return f"jsonb_typeof(VALUE) = 'object' AND {_readable(most)}"


def _readable(most: int | None = None) -> str:
    """That Python's reader takes it: a row that cannot be read stops everybody who reads the rows beside it, too.

    Too deep, or a number that is no double (such as 1e5000). A short text can be neither, and is asked first.
    `registered` holds the arguments one level deeper.
    """
    bound = "" if most is None else f"octet_length(VALUE::text) <= {most} AND "
    numbers = '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'
    return (
        f"(octet_length(VALUE::text) <= {2 * NESTED_AT_MOST}"
        f" OR ({bound}NOT jsonb_path_exists(VALUE, '$.**{{{NESTED_AT_MOST + 2}}}')"
        f" AND NOT jsonb_path_exists(VALUE, '{numbers}')))"
    )


RULES: Mapping[str, tuple[TypeEngine[Any], str]] = {
    # texts
    "plain": (Text(), _PLAIN),
    "named": (Text(), f"VALUE <> '' AND {_PLAIN}"),
    "short": (Text(), f"length(VALUE) <= {NAME_AT_MOST}"),
    "prose": (Text(), f"length(VALUE) <= {TEXT_AT_MOST}"),
    "output": (Text(), f"length(VALUE) <= {OUTPUT_AT_MOST}"),
    # times
    "moment": (WHEN, "VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z'"),
    "duration": (BigInteger(), f"VALUE BETWEEN 0 AND {LONGEST}"),
    "span": (BigInteger(), f"VALUE BETWEEN 1000 AND {LONGEST}"),
    "box": (BigInteger(), f"VALUE BETWEEN 100 AND {LONGEST}"),
    "grace": (BigInteger(), "VALUE BETWEEN 1 AND 1000"),
    # microseconds of less than a hundred years, so that no difference overflows
    "uptime": (BigInteger(), f"VALUE BETWEEN 0 AND {100 * 365 * 86_400 * 1_000_000}"),
    # numbers
    "count": (Integer(), f"VALUE BETWEEN 0 AND {COUNT_AT_MOST}"),
    "limit": (Integer(), f"VALUE BETWEEN 1 AND {COUNT_AT_MOST}"),
    "intervals": (Integer(), f"VALUE BETWEEN 1 AND {INTERVALS_AT_MOST}"),
    "max_runs": (Integer(), "VALUE BETWEEN 1 AND 1000000000"),
    "started": (Integer(), "VALUE >= 0"),
    "total": (BigInteger(), "VALUE BETWEEN 0 AND 1000000000000000"),
    "retries": (Integer(), f"VALUE BETWEEN 0 AND {RETRIES_AT_MOST}"),
    "priority": (Integer(), f"VALUE BETWEEN {-PRIORITY_AT_MOST} AND {PRIORITY_AT_MOST}"),
    "batch": (Integer(), f"VALUE BETWEEN 1 AND {BATCH_AT_MOST}"),
    # words
    "kind": (Text(), _one_of("interval", "cron", "calendar", "once")),
    "catch_up": (Text(), _one_of("one", "none")),
    "overlap": (Text(), _one_of("queue", "skip")),
    "keep": (Text(), _one_of("all", "problems", "none")),
    "told": (Text(), _one_of("", "failed")),
    "run_kind": (Text(), _one_of("scheduled", "manual", "retry", "piece")),
    "state": (Text(), _one_of("planned", "pushed", "running", "processing", "ended")),
    "outcome": (Text(), _one_of(*Outcome)),
    "what": (Text(), _one_of(*What)),
    # JSON
    "object": (JSONB(), _object(JSON_AT_MOST)),
    "registered": (JSONB(), _object(4 * JSON_AT_MOST)),
    "template": (JSONB(), f"jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= {8 * JSON_AT_MOST}"),
    "cursor": (JSONB(), _readable(JSON_AT_MOST)),
    "batch_jobs": (JSONB(), "jsonb_typeof(VALUE) = 'object'"),
    "readable": (JSONB(), _readable()),
}
"""The domains, each with its base type and its rule. In the database their names begin with `ticker_`."""

Types = Mapping[str, DOMAIN]


def define(schema: str | None = "ticker") -> MetaData:
    """The tables in a schema; None leaves the names bare, for the search_path to decide."""
    metadata = MetaData(schema=schema)
    types = {
        name: DOMAIN(f"ticker_{name}", base, check=rule, schema=schema, metadata=metadata)
        for name, (base, rule) in RULES.items()
    }
    _tasks(metadata, types)
    _runs(metadata, types)
    _tickers(metadata, types)
    _events(metadata, types)
    _notices(metadata, types)
    _templates(metadata, types)
    _functions(metadata, types)
    _installation(metadata, types)
    return metadata


def _tasks(metadata: MetaData, types: Types) -> Table:
    return Table(
        "tasks",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("guid", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
        # what to run, and for whom; an empty owner is no owner
        _text("owner_type", types["plain"]),
        _text("owner_id", types["plain"]),
        _text("name", types["named"], default=None),
        _text("function", types["named"], default=None),
        Column("kwargs", types["object"], nullable=False, server_default=text("'{}'")),
        Column("registered", types["registered"], nullable=False, server_default=text("'{}'")),
        _text("declared_in", types["prose"]),
        # when
        _text("kind", types["kind"], default=None),
        _text("expression", types["prose"]),
        _text("zone", types["prose"], default="UTC"),
        Column("every_ms", types["duration"], nullable=False, server_default=text("0")),
        Column("tolerance_ms", types["duration"], nullable=False, server_default=text("0")),
        Column("box_ms", types["box"], nullable=False),
        Column("grace_ms", types["grace"], nullable=False),
        # where, and for people
        _text("queue", types["named"], default=None),
        _text("subject", types["prose"]),
        _text("description", types["prose"]),
        Column("metadata", types["object"], nullable=False, server_default=text("'{}'")),
        # three facts with separate writers
        Column("enabled", Boolean, nullable=False, server_default=text("true")),
        Column("owner_active", Boolean, nullable=False, server_default=text("true")),
        Column("paused_by", types["prose"]),
        _text("paused_reason", types["prose"]),
        Column("paused_until", types["moment"]),
        # written by the ticker
        Column("next_run", types["moment"]),
        Column("waiting", ARRAY(WHEN), nullable=False, server_default=text("'{}'")),
        Column("push_after", types["moment"]),
        Column("push_errors", types["count"], nullable=False, server_default=text("0")),
        _text("push_error", types["prose"]),
        # written by the start; the uptime of its host tells how long ago that was when the clock has been set
        Column("last_run", types["moment"]),
        Column("last_boot", types["short"]),
        Column("last_uptime_us", types["uptime"]),
        Column("last_occurrence", types["moment"]),
        Column("run_token", Uuid),
        Column("running_until", types["moment"]),
        # written by the fenced end
        Column("cursor", types["cursor"]),
        Column("last_run_id", BigInteger),
        Column("last_outcome", types["outcome"]),
        Column("last_ended_at", types["moment"]),
        Column("last_success_at", types["moment"]),
        Column("last_worked_at", types["moment"]),
        Column("failures", types["count"], nullable=False, server_default=text("0")),
        Column("created_at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        Column("updated_at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        # from when to when, and how often in all; what becomes of what was missed, and of a single run that succeeded
        Column("starts_at", types["moment"]),
        Column("ends_at", types["moment"]),
        Column("max_runs", types["max_runs"]),
        Column("started", types["started"], nullable=False, server_default=text("0")),
        _text("catch_up", types["catch_up"], default="one"),
        Column("remove", Boolean, nullable=False, server_default=text("false")),
        # what becomes of an occurrence that meets a job of its task, or fails
        _text("overlap", types["overlap"], default="queue"),
        Column("retries", types["retries"], nullable=False, server_default=text("0")),
        _text("backoff", types["short"], default="10s..5m"),
        # what becomes of a task that goes on failing: the longest interval, and the one of now; a pause, and its end
        Column("stretch_ms", types["span"]),
        Column("stretched_ms", types["span"]),
        Column("pause_after", types["limit"]),
        Column("probe_ms", types["span"]),
        # who is told: after so many intervals without a success; when to look; what was said last
        Column("dead_man", types["intervals"]),
        Column("alarm_at", types["moment"]),
        _text("told", types["told"]),
        Column("resumed_at", types["moment"]),
        # for whom, and how long its record is kept
        _text("submitter", types["plain"]),
        _text("group_name", types["plain"]),
        Column("priority", types["priority"], nullable=False, server_default=text("0")),
        _text("keep", types["keep"], default="all"),
        # of all its runs, whether their rows are kept or not
        Column("succeeded", types["total"], nullable=False, server_default=text("0")),
        Column("failed", types["total"], nullable=False, server_default=text("0")),
        Column("dropped", types["total"], nullable=False, server_default=text("0")),
        # whether the task has a place of its own
        Column("spread", Boolean, nullable=False, server_default=text("false")),
        # the ids of jobs that carry waiting occurrences together with those of other tasks, by occurrence in microseconds
        # since 1970
        Column("batch_jobs", types["batch_jobs"]),
        # the window after each time of a spread task (for an interval task, the interval), and the task's place in it
        Column("within_ms", types["span"]),
        Column("phase_ms", BigInteger, Computed(PHASE, persisted=True)),
        UniqueConstraint("owner_type", "owner_id", "name", name="tasks_owner_name"),
        _check("tasks_owner", "(owner_type = '') = (owner_id = '')"),
        _check("tasks_schedule", "CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END"),
        # two runs of a task never overlap: the one is dead before the next may start
        _check("tasks_fit", "kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms"),
        _check("tasks_bounds", "starts_at <= ends_at"),
        _check("tasks_hold", "(run_token IS NULL) = (running_until IS NULL)"),
        _check("tasks_uptime", "(last_boot IS NULL) = (last_uptime_us IS NULL)"),
        _check("tasks_paused", "paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')"),
        _check("tasks_waiting", "array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000"
               " AND coalesce(array_lower(waiting, 1), 1) = 1"
               " AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting)"),
        # The due query: a range on next_run, oldest first. 1,000 due of 200,000 rows: 0.06 ms to the first row with
        # it, a scan of the table without; tests/db/test_indexes.py argues with EXPLAIN.
        Index(
            "tasks_due",
            "next_run",
            postgresql_where=text("enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL"),
        ),
        # The sweep: what was pushed and has not started. Empty while workers keep up.
        Index("tasks_waiting_oldest", "id", postgresql_where=text("waiting <> '{}'")),
        # Single times that have passed, and that nobody wants to keep. Nearly always empty.
        Index("tasks_done_once", "id", postgresql_where=text("kind = 'once' AND remove AND next_run IS NULL")),
        # When to look whether a task had its success.
        Index("tasks_alarm_at", "alarm_at", postgresql_where=text("alarm_at IS NOT NULL")),
        # What people look for among a million: tasks that fail, most often first, and those that rest. Small where all is
        # well, and no run touches them: `failures` changes with a failure, or with the success behind it.
        Index("tasks_failing", text("failures DESC"), "id", postgresql_where=text("failures > 0")),
        Index("tasks_paused", "id", postgresql_where=text("paused_by IS NOT NULL")),
        Index("tasks_inactive", "id", postgresql_where=text("NOT enabled OR NOT owner_active")),
        # Pauses that end by themselves. Nearly always empty.
        Index("tasks_paused_until", "paused_until", postgresql_where=text("paused_until IS NOT NULL")),
        # The end of a run touches no index: where its page has room, PostgreSQL writes the row beside its old self (HOT),
        # and a third less of log in all (python -m tests.bench table). What autovacuum does by itself is enough.
        postgresql_with={"fillfactor": 85},
    )  # fmt: skip


def _runs(metadata: MetaData, types: Types) -> Table:
    """Runs of every kind, and drops. No foreign key: the record outlives its task."""
    return Table(
        "runs",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("task_id", BigInteger, nullable=False),
        _text("task_name"),
        _text("function"),
        _text("owner_type"),
        _text("owner_id"),
        _text("kind", types["run_kind"], default=None),
        Column("parent_id", BigInteger),
        Column("item", types["readable"]),
        Column("occurrence", types["moment"]),
        Column("attempt", Integer, nullable=False, server_default=text("1")),
        _text("state", types["state"], default=None),
        Column("outcome", types["outcome"]),
        _text("reason"),
        Column("token", Uuid),
        Column("due_at", types["moment"]),
        Column("pushed_at", types["moment"]),
        Column("started_at", types["moment"]),
        Column("until", types["moment"]),
        Column("boot", types["short"]),
        Column("uptime_us", types["uptime"]),
        Column("ended_at", types["moment"]),
        Column("created_at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        # the arithmetic of the verdict, as it was judged
        Column("checked_last_run", types["moment"]),
        Column("checked_at", types["moment"]),
        Column("every_ms", types["duration"]),
        Column("tolerance_ms", types["duration"]),
        Column("result", types["readable"]),
        _text("output", types["output"]),
        _text("error_output", types["output"]),
        _text("traceback"),
        _text("worker"),
        _text("host"),
        Column("pid", Integer),
        _text("job_id"),
        # an end that leads to something more, until a tick has seen to it; a failure that was followed by a retry; how
        # many pieces of work it made
        Column("follow_up", Boolean, nullable=False, server_default=text("false")),
        Column("retried", Boolean, nullable=False, server_default=text("false")),
        Column("pieces", Integer),
        _check("runs_ended", "(state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)"),
        _check("runs_dropped", "outcome <> 'dropped' OR reason <> ''"),
        _check("runs_planned", "state <> 'planned' OR due_at IS NOT NULL"),
        _check("runs_running", "state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)"),
        _check("runs_uptime", "(boot IS NULL) = (uptime_us IS NULL)"),
        _check("runs_piece", "kind <> 'piece' OR parent_id IS NOT NULL"),
        _check("runs_occurrence", "kind <> 'scheduled' OR occurrence IS NOT NULL"),
        # one record for each occurrence, whatever became of it: a job that is delivered again finds it
        Index("runs_one_record", "task_id", "occurrence", unique=True, postgresql_where=text("kind = 'scheduled'")),
        # for people: the last runs of a task; separate from its retries and pieces, of which one run may have a million.
        # Each row is in one of the two
        Index("runs_of_task", "task_id", "id", postgresql_where=text("kind IN ('scheduled', 'manual')")),
        Index("runs_further", "task_id", "id", postgresql_where=text("kind IN ('retry', 'piece')")),
        # the ticker's planned runs, those it pushed, and the sweep's overdue ones; a dead horse's record by its token
        Index("runs_planned", "due_at", postgresql_where=text("state = 'planned' AND (kind <> 'piece' OR attempt > 1)")),
        Index("runs_planned_pieces", "parent_id", "id", postgresql_where=text("state = 'planned' AND kind = 'piece' AND attempt = 1")),
        Index("runs_pushed", "id", postgresql_where=text("state = 'pushed'")),
        # unstarted runs of a deleted task
        Index("runs_unstarted", "task_id", postgresql_where=text("state IN ('planned', 'pushed')")),
        Index("runs_running_until", "until", postgresql_where=text("state = 'running'")),
        Index("runs_running_token", "token", postgresql_where=text("state = 'running'")),
        # ends that a tick has to see to; a run's pieces and retries; runs whose pieces are at work
        Index("runs_follow_up", "id", postgresql_where=text("follow_up")),
        Index("runs_open_pieces", "parent_id", postgresql_where=text("kind = 'piece' AND (state <> 'ended' OR follow_up)")),
        Index("runs_of_parent", "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
        Index("runs_processing", "id", postgresql_where=text("state = 'processing'")),
        # the journal: what ended last with an outcome, what was dropped last for a reason, with what drops are counted
        # by (each row is in one of the two), and both of an owner, whose tasks may be gone. The type of the owner comes
        # first, as there are few: nobody then walks through the rows of the others. Only of rows that have ended, as a
        # run is written twice.
        Index("runs_by_outcome", "owner_type", "outcome", "ended_at", postgresql_where=text("outcome <> 'dropped'")),
        Index("runs_by_reason", "owner_type", "reason", "ended_at", postgresql_where=text("outcome = 'dropped'"),
              postgresql_include=["id", "task_id", "function", "owner_id"]),
        Index("runs_by_owner", "owner_type", "owner_id", "ended_at",
              postgresql_where=text("owner_type <> '' AND ended_at IS NOT NULL")),
    )  # fmt: skip


def _tickers(metadata: MetaData, types: Types) -> Table:
    """One row per ticker process: its heartbeat."""
    return Table(
        "tickers",
        metadata,
        Column("id", Uuid, primary_key=True),
        _text("host"),
        Column("pid", Integer, nullable=False),
        Column("started_at", types["moment"], nullable=False),
        Column("last_tick_at", types["moment"]),
        Column("last_report", types["object"], nullable=False, server_default=text("'{}'")),
    )


def _events(metadata: MetaData, types: Types) -> Table:
    """What happened to a task beside its runs: who paused it, since when it fails. No foreign key: it outlives its task."""
    return Table(
        "events",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        Column("task_id", BigInteger, nullable=False),
        _text("task_name"),
        _text("function"),
        _text("owner_type"),
        _text("owner_id"),
        _text("what", types["what"], default=None),
        _text("by"),
        _text("words"),
        Column("run_id", BigInteger),
        Column("told", Boolean, nullable=False, server_default=text("false")),
        Index("events_of_task", "task_id", "id"),
        Index("events_at", "at"),
        # what nobody was told of yet
        Index("events_untold", "id", postgresql_where=text("NOT told")),
    )


def _notices(metadata: MetaData, types: Types) -> Table:
    """One event on its way through one channel (log, webhook, mail, ...), until it has arrived."""
    return Table(
        "notices",
        metadata,
        Column("event_id", BigInteger, primary_key=True),
        Column("channel", Text, primary_key=True),
        Column("due_at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        _text("error"),
        Index("notices_due", "due_at"),
    )


def _templates(metadata: MetaData, types: Types) -> Table:
    """The default tasks of a kind of owner: the columns of a task, from which a trigger makes those of a new owner."""
    return Table(
        "templates",
        metadata,
        Column("owner_type", types["named"], primary_key=True),
        Column("name", types["named"], primary_key=True),
        Column("task", types["template"], nullable=False),
    )


def _functions(metadata: MetaData, types: Types) -> Table:
    """What workers have announced: the functions that they know, and how many tasks of each one job may carry."""
    return Table(
        "functions",
        metadata,
        Column("name", types["named"], primary_key=True),
        Column("batch", types["batch"], nullable=False, server_default=text("1")),
        Column("announced_at", types["moment"], nullable=False),
    )


def _installation(metadata: MetaData, types: Types) -> Table:
    """Returns the table whose one row is the installation of the tables. Its mark survives the promotion of a standby, but not a dump or a copy."""
    return Table(
        "installation",
        metadata,
        Column("single", Boolean, primary_key=True, server_default=text("true")),
        Column("id", Text, nullable=False, server_default=text("left(gen_random_uuid()::text, 8)")),
        Column("system_identifier", BigInteger),
        Column("database_oid", OID, nullable=False),
        Column("marker_oid", OID, nullable=False),
        _text("environment", types["plain"]),
        Column("created_at", types["moment"], nullable=False, server_default=text("clock_timestamp()")),
        Column("adopted_at", types["moment"]),
        _check("installation_single", "single"),
        _check("installation_id", "id ~ '^[a-z0-9]{8}$'"),
    )


def _text(name: str, type_: TypeEngine[Any] = _TEXT, *, default: str | None = "") -> Column[str]:
    return Column(name, type_, nullable=False, server_default=None if default is None else text(f"'{default}'"))


def _check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(text(rule), name=name)
