"""Describes the tables, for applications that join their own with `tasks` and `runs` (docs/concepts/owners.md).

This module defines the columns, types and indexes. The rules are only in `ticker/migrations/versions/*.sql`, which creates
the tables: domains (named in `info`), CHECKs, triggers and the conditions of indexes, each with its purpose. A test
compares this module with the SQL, using Alembic.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    FetchedValue,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, OID

metadata = MetaData(schema="ticker")

TIME = DateTime(timezone=True)

tasks = Table(
    "tasks",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("guid", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("owner_type", Text, nullable=False, server_default="", info={"domain": "plain"}),
    Column("owner_id", Text, nullable=False, server_default="", info={"domain": "plain"}),
    Column("name", Text, nullable=False, info={"domain": "named"}),
    Column("function", Text, nullable=False, info={"domain": "named"}),
    Column("kwargs", JSONB, nullable=False, server_default="{}", info={"domain": "object"}),
    Column("registered", JSONB, nullable=False, server_default="{}", info={"domain": "registered"}),
    Column("declared_in", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("kind", Text, nullable=False, info={"domain": "kind"}),
    Column("expression", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("zone", Text, nullable=False, server_default="UTC", info={"domain": "prose"}),
    Column("every_ms", BigInteger, nullable=False, server_default="0", info={"domain": "duration"}),
    Column("tolerance_ms", BigInteger, nullable=False, server_default="0", info={"domain": "duration"}),
    Column("box_ms", BigInteger, nullable=False, info={"domain": "box"}),
    Column("grace_ms", BigInteger, nullable=False, info={"domain": "grace"}),
    Column("queue", Text, nullable=False, info={"domain": "named"}),
    Column("subject", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("description", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("metadata", JSONB, nullable=False, server_default="{}", info={"domain": "object"}),
    Column("enabled", Boolean, nullable=False, server_default="true"),
    Column("owner_active", Boolean, nullable=False, server_default="true"),
    Column("paused_by", Text, info={"domain": "prose"}),
    Column("paused_reason", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("paused_until", TIME, info={"domain": "moment"}),
    Column("next_run", TIME, info={"domain": "moment"}),
    Column("waiting", ARRAY(TIME), nullable=False, server_default="{}"),
    Column("push_after", TIME, info={"domain": "moment"}),
    Column("push_errors", Integer, nullable=False, server_default="0", info={"domain": "count"}),
    Column("push_error", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("last_run", TIME, info={"domain": "moment"}),
    Column("last_occurrence", TIME, info={"domain": "moment"}),
    Column("run_token", Uuid),
    Column("running_until", TIME, info={"domain": "moment"}),
    Column("cursor", JSONB, info={"domain": "readable"}),
    Column("last_run_id", BigInteger),
    Column("last_outcome", Text, info={"domain": "outcome"}),
    Column("last_ended_at", TIME, info={"domain": "moment"}),
    Column("last_success_at", TIME, info={"domain": "moment"}),
    Column("last_worked_at", TIME, info={"domain": "moment"}),
    Column("failures", Integer, nullable=False, server_default="0", info={"domain": "count"}),
    Column("created_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("updated_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("starts_at", TIME, info={"domain": "moment"}),
    Column("ends_at", TIME, info={"domain": "moment"}),
    Column("max_runs", Integer, info={"domain": "max_runs"}),
    Column("started", Integer, nullable=False, server_default="0", info={"domain": "started"}),
    Column("catch_up", Text, nullable=False, server_default="one", info={"domain": "catch_up"}),
    Column("remove", Boolean, nullable=False, server_default="false"),
    Column("overlap", Text, nullable=False, server_default="queue", info={"domain": "overlap"}),
    Column("retries", Integer, nullable=False, server_default="0", info={"domain": "retries"}),
    Column("backoff", Text, nullable=False, server_default="10s..5m", info={"domain": "short"}),
    Column("stretch_ms", BigInteger, info={"domain": "span"}),
    Column("stretched_ms", BigInteger, info={"domain": "span"}),
    Column("pause_after", Integer, info={"domain": "limit"}),
    Column("probe_ms", BigInteger, info={"domain": "span"}),
    Column("dead_man", Integer, info={"domain": "intervals"}),
    Column("alarm_at", TIME, info={"domain": "moment"}),
    Column("told", Text, nullable=False, server_default="", info={"domain": "told"}),
    Column("resumed_at", TIME, info={"domain": "moment"}),
    Column("submitter", Text, nullable=False, server_default="", info={"domain": "plain"}),
    Column("group_name", Text, nullable=False, server_default="", info={"domain": "plain"}),
    Column("priority", Integer, nullable=False, server_default="0", info={"domain": "priority"}),
    Column("keep", Text, nullable=False, server_default="all", info={"domain": "keep"}),
    Column("succeeded", BigInteger, nullable=False, server_default="0", info={"domain": "total"}),
    Column("failed", BigInteger, nullable=False, server_default="0", info={"domain": "total"}),
    Column("dropped", BigInteger, nullable=False, server_default="0", info={"domain": "total"}),
    Column("spread", Boolean, nullable=False, server_default="false"),
    Column("batch_jobs", JSONB, info={"domain": "batch_jobs"}),
    Column("within_ms", BigInteger, info={"domain": "span"}),
    Column("phase_ms", BigInteger, server_default=FetchedValue()),
    Column("alone_until", TIME, info={"domain": "alone"}),
    Column("limits", ARRAY(Text), info={"domain": "keys"}),
    Column("every_most_ms", BigInteger, info={"domain": "pace"}),
    Column("pace_ms", BigInteger, info={"domain": "pace"}),
    Column("again_at", TIME, info={"domain": "again"}),
    Column("pause_id", BigInteger),
    Column("returned", TIME, info={"domain": "returned"}),
    Column("wait_reason", Text, info={"domain": "short"}),
    Column("during", Text, nullable=False, server_default="", info={"domain": "during"}),
    Column("unpushed_event", BigInteger),
    UniqueConstraint("owner_type", "owner_id", "name", name="tasks_owner_name"),
    Index("tasks_due", "next_run", "id"),
    Index("tasks_due_limited", "next_run", "id"),
    Index("tasks_withheld", "pause_id", "next_run"),
    Index("tasks_waiting_limited", "id"),
    Index("tasks_alone", "alone_until"),
    Index("tasks_waiting_oldest", "id"),
    Index("tasks_done_once", "id"),
    Index("tasks_alarm_at", "alarm_at"),
    Index("tasks_failing", text("failures DESC"), "id"),
    Index("tasks_paused", "id"),
    Index("tasks_inactive", "id"),
    Index("tasks_function", "function"),
    Index("tasks_paused_until", "paused_until"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task_id", BigInteger, nullable=False),
    Column("task_name", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("function", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("owner_type", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("owner_id", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("kind", Text, nullable=False, info={"domain": "run_kind"}),
    Column("parent_id", BigInteger),
    Column("item", JSONB, info={"domain": "readable"}),
    Column("occurrence", TIME, info={"domain": "moment"}),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("state", Text, nullable=False, info={"domain": "state"}),
    Column("outcome", Text, info={"domain": "outcome"}),
    Column("reason", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("token", Uuid),
    Column("due_at", TIME, info={"domain": "moment"}),
    Column("pushed_at", TIME, info={"domain": "moment"}),
    Column("started_at", TIME, info={"domain": "moment"}),
    Column("until", TIME, info={"domain": "moment"}),
    Column("boot", Text, info={"domain": "short"}),
    Column("uptime_us", BigInteger, info={"domain": "uptime"}),
    Column("ended_at", TIME, info={"domain": "moment"}),
    Column("created_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("checked_last_run", TIME, info={"domain": "moment"}),
    Column("checked_at", TIME, info={"domain": "moment"}),
    Column("every_ms", BigInteger, info={"domain": "duration"}),
    Column("tolerance_ms", BigInteger, info={"domain": "duration"}),
    Column("result", JSONB, info={"domain": "readable"}),
    Column("output", Text, nullable=False, server_default="", info={"domain": "output"}),
    Column("error_output", Text, nullable=False, server_default="", info={"domain": "output"}),
    Column("traceback", Text, nullable=False, server_default="", info={"domain": "output"}),
    Column("worker", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("host", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("pid", Integer),
    Column("job_id", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("follow_up", Boolean, nullable=False, server_default="false"),
    Column("retried", Boolean, nullable=False, server_default="false"),
    Column("pieces", Integer),
    Column("stop_requested_by", Text, info={"domain": "stop_by"}),
    Column("stop_requested_at", TIME, info={"domain": "stop"}),
    Column("queue", Text, info={"domain": "queue"}),
    Column("traceparent", Text, info={"domain": "traceparent"}),
    Index("runs_one_record", "task_id", "occurrence", unique=True),
    Index("runs_of_task", "task_id", "id"),
    Index("runs_further", "task_id", "id"),
    Index("runs_planned", "due_at"),
    Index("runs_planned_pieces", "parent_id", "id"),
    Index("runs_pushed", "id"),
    Index("runs_unstarted", "task_id"),
    Index("runs_running_token", "token"),
    Index("runs_follow_up", "id"),
    Index("runs_open_pieces", "parent_id"),
    Index("runs_of_parent", "parent_id"),
    Index("runs_processing", "id"),
    Index("runs_to_stop", "id"),
    Index("runs_by_outcome", "owner_type", "outcome", "ended_at"),
    Index("runs_by_reason", "owner_type", "reason", "ended_at"),
    Index("runs_by_owner", "owner_type", "owner_id", "ended_at"),
)

tickers = Table(
    "tickers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("host", Text, nullable=False, server_default=""),
    Column("pid", Integer, nullable=False),
    Column("started_at", TIME, nullable=False, info={"domain": "moment"}),
    Column("last_tick_at", TIME, info={"domain": "moment"}),
    Column("last_report", JSONB, nullable=False, server_default="{}", info={"domain": "object"}),
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("task_id", BigInteger, nullable=False),
    Column("task_name", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("function", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("owner_type", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("owner_id", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("what", Text, nullable=False, info={"domain": "what"}),
    Column("by", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("words", Text, nullable=False, server_default="", info={"domain": "words"}),
    Column("run_id", BigInteger),
    Column("told", Boolean, nullable=False, server_default="false"),
    Column("count", Integer),
    Column("until", TIME, info={"domain": "moment"}),
    Index("events_of_task", "task_id", "id"),
    Index("events_at", "at"),
    Index("events_untold", "id"),
    Index("events_unknown_function", "function", unique=True),
)

notices = Table(
    "notices",
    metadata,
    Column("event_id", BigInteger, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("due_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("error", Text, nullable=False, server_default=""),
    Index("notices_due", "due_at"),
)

templates = Table(
    "templates",
    metadata,
    Column("owner_type", Text, primary_key=True, info={"domain": "named"}),
    Column("name", Text, primary_key=True, info={"domain": "named"}),
    Column("task", JSONB, nullable=False, info={"domain": "template"}),
)

functions = Table(
    "functions",
    metadata,
    Column("name", Text, primary_key=True, info={"domain": "named"}),
    Column("batch", Integer, nullable=False, server_default="1", info={"domain": "batch"}),
    Column("announced_at", TIME, nullable=False, info={"domain": "moment"}),
    Column("concurrency", Integer, nullable=False, server_default="1", info={"domain": "batch"}),
    Column("repeatable", Boolean, nullable=False, server_default="false"),
    Column("queues", ARRAY(Text), nullable=False, server_default="{}", info={"domain": "queues"}),
)

limits = Table(
    "limits",
    metadata,
    Column("key", Text, primary_key=True, info={"domain": "key"}),
    Column("concurrency", Integer, info={"domain": "limited"}),
    Column("rate", Integer),
    Column("period_ms", BigInteger, info={"domain": "span"}),
    Column("burst", Integer, info={"domain": "limited"}),
    Column("by", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("updated_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("declared_in", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("registered", JSONB, nullable=False, server_default="{}", info={"domain": "registered"}),
)

limited_keys = Table(
    "limited_keys",
    metadata,
    Column("key", Text, primary_key=True, info={"domain": "key"}),
    Column("limited_by", Text, info={"domain": "key"}),
    Column("concurrency", Integer, info={"domain": "limited"}),
    Column("burst", Integer, info={"domain": "limited"}),
    Column("token_us", BigInteger),
    Column("held_until", TIME, info={"domain": "moment"}),
    Column("held_at", TIME, info={"domain": "moment"}),
    Column("held_step", Integer, nullable=False, server_default="0"),
    Column("allowed", Integer, info={"domain": "limited"}),
)

slots = Table(
    "slots",
    metadata,
    Column("key", Text, primary_key=True, info={"domain": "key"}),
    Column("kind", Text, primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("token", Uuid),
    Column("until", TIME, info={"domain": "moment"}),
    Column("took_ms", Integer),
    Index("slots_token", "token"),
)

pauses = Table(
    "pauses",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("scope", Text, nullable=False),
    Column("value", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("by", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("reason", Text, nullable=False, server_default="", info={"domain": "prose"}),
    Column("paused_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("until", TIME, info={"domain": "moment"}),
    Column("resumed_at", TIME, info={"domain": "moment"}),
    Column("resumed_by", Text, nullable=False, server_default="", info={"domain": "short"}),
    Column("budget", Integer),
    Column("granted_at", TIME, info={"domain": "moment"}),
    Column("done_at", TIME, info={"domain": "moment"}),
    Column("mark", Text, nullable=False, server_default=FetchedValue()),
    Index("pauses_in_force", "scope", "value", unique=True),
    Index("pauses_open", "id"),
)


def _ends(name: str) -> Table:
    """Defines a table of what ended in a minute or an hour."""
    return Table(
        name,
        metadata,
        Column("at", TIME, primary_key=True, info={"domain": "moment"}),
        Column("function", Text, primary_key=True),
        Column("queue", Text, primary_key=True),
        Column("outcome", Text, primary_key=True),
        Column("reason", Text, primary_key=True),
        Column("kind", Text, primary_key=True),
        Column("count", Integer, nullable=False),
        Column("started", Integer, nullable=False),
        Column("late_ms", BigInteger, nullable=False),
        Column("took_ms", BigInteger, nullable=False),
        Column("late", ARRAY(Integer), nullable=False),
        Column("took", ARRAY(Integer), nullable=False),
    )


def _queues(name: str) -> Table:
    """Defines a table of what ticks saw of the queues in a minute or an hour."""
    return Table(
        name,
        metadata,
        Column("at", TIME, primary_key=True, info={"domain": "moment"}),
        Column("queue", Text, primary_key=True),
        Column("samples", Integer, nullable=False, server_default="0"),
        Column("listening", BigInteger, nullable=False, server_default="0"),
        Column("busy", BigInteger, nullable=False, server_default="0"),
        Column("waiting", BigInteger, nullable=False, server_default="0"),
        Column("needed", Integer),
    )


minutes, hours = _ends("minutes"), _ends("hours")
queue_minutes, queue_hours = _queues("queue_minutes"), _queues("queue_hours")

closed_minutes = Table(
    "closed_minutes",
    metadata,
    Column("at", TIME, primary_key=True, info={"domain": "moment"}),
    Column("xact", BigInteger, nullable=False, server_default=text("((pg_current_xact_id())::text)::bigint")),
    Column("snapshot", Text, nullable=False, server_default=text("(pg_current_snapshot())::text")),
    Column("horizon", BigInteger),
    Column("is_summed", Boolean, nullable=False, server_default="true"),
    Index("closed_minutes_open", "at"),
)

minute_changes = Table(
    "minute_changes",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("xact", BigInteger, nullable=False, server_default=text("((pg_current_xact_id())::text)::bigint")),
    Column("sign", SmallInteger, nullable=False),
    Column("at", TIME, nullable=False, info={"domain": "moment"}),
    Column("function", Text, nullable=False),
    Column("queue", Text),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("occurrence", TIME),
    Column("due_at", TIME),
    Column("started_at", TIME),
    Column("ended_at", TIME, nullable=False),
    Column("pieces", Integer),
)

needs = Table(
    "needs",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("at", TIME, nullable=False, info={"domain": "moment"}),
    Column("average", Double, nullable=False),
    Column("enough", Integer),
    Column("functions", JSONB, nullable=False, info={"domain": "registered"}),
)

installation = Table(
    "installation",
    metadata,
    Column("single", Boolean, primary_key=True, server_default="true"),
    Column("id", Text, nullable=False, server_default=text('"left"((gen_random_uuid())::text, 8)')),
    Column("system_identifier", BigInteger),
    Column("database_oid", OID, nullable=False),
    Column("marker_oid", OID, nullable=False),
    Column("environment", Text, nullable=False, server_default="", info={"domain": "plain"}),
    Column("created_at", TIME, nullable=False, server_default=text("clock_timestamp()"), info={"domain": "moment"}),
    Column("adopted_at", TIME, info={"domain": "moment"}),
    Column("traced_until", TIME, info={"domain": "moment"}),
)


def define(schema: str = "ticker") -> MetaData:
    """Returns the tables in another schema, such as TICKER_SCHEMA."""
    other = MetaData(schema=schema)
    for table in metadata.sorted_tables:
        table.to_metadata(other, schema=schema)
    return other
