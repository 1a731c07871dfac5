"""The tables: columns, CHECKs and indexes, each beside the query that it serves.

The CHECKs hold the rules in the database too, so that a row edited by hand cannot break them. Durations are whole
milliseconds, times are UTC and finite. `migrations/` is what creates them; a test compares the two.
"""

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
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from ticker.json_text import NESTED_AT_MOST
from ticker.schedules.duration import LONGEST
from ticker.task import (
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

WHEN = DateTime(timezone=True)

OUTCOMES = ", ".join(f"'{outcome}'" for outcome in Outcome)
UPTIME_AT_MOST = 100 * 365 * 86_400 * 1_000_000  # microseconds
# 28 bits of a hash, as a part of the interval: an interval is at most 2^35 ms, and a bigint has 63 bits
PHASE = (
    "CASE WHEN spread AND kind = 'interval' THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))"
    "::bit(28)::bigint * every_ms / 268435456 END"
)
FINITE = "{0} BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z'"


def define(schema: str | None = "ticker") -> MetaData:
    """The tables in a schema; None leaves the names bare, for the search_path to decide."""
    metadata = MetaData(schema=schema)
    _tasks(metadata)
    _runs(metadata)
    _tickers(metadata)
    _events(metadata)
    _notices(metadata)
    _templates(metadata)
    _functions(metadata)
    return metadata


def _tasks(metadata: MetaData) -> Table:
    return Table(
        "tasks",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("guid", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
        # what to run, and for whom; an empty owner is no owner
        _text("owner_type"),
        _text("owner_id"),
        _text("name", default=None),
        _text("function", default=None),
        Column("kwargs", JSONB, nullable=False, server_default=text("'{}'")),
        Column("registered", JSONB, nullable=False, server_default=text("'{}'")),
        _text("declared_in"),
        # when
        _text("kind", default=None),
        _text("expression"),
        _text("zone", default="UTC"),
        Column("every_ms", BigInteger, nullable=False, server_default=text("0")),
        Column("tolerance_ms", BigInteger, nullable=False, server_default=text("0")),
        Column("box_ms", BigInteger, nullable=False),
        Column("grace_ms", BigInteger, nullable=False),
        # where, and for people
        _text("queue", default=None),
        _text("subject"),
        _text("description"),
        Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
        # three facts with separate writers
        Column("enabled", Boolean, nullable=False, server_default=text("true")),
        Column("owner_active", Boolean, nullable=False, server_default=text("true")),
        Column("paused_by", Text),
        _text("paused_reason"),
        Column("paused_until", WHEN),
        # written by the ticker
        Column("next_run", WHEN),
        Column("waiting", ARRAY(WHEN), nullable=False, server_default=text("'{}'")),
        Column("push_after", WHEN),
        Column("push_errors", Integer, nullable=False, server_default=text("0")),
        _text("push_error"),
        # written by the start; the uptime of its host tells how long ago that was when the clock has been set
        Column("last_run", WHEN),
        Column("last_boot", Text),
        Column("last_uptime_us", BigInteger),
        Column("last_occurrence", WHEN),
        Column("run_token", Uuid),
        Column("running_until", WHEN),
        # written by the fenced end
        Column("cursor", JSONB),
        Column("last_run_id", BigInteger),
        Column("last_outcome", Text),
        Column("last_ended_at", WHEN),
        Column("last_success_at", WHEN),
        Column("last_worked_at", WHEN),
        Column("failures", Integer, nullable=False, server_default=text("0")),
        Column("created_at", WHEN, nullable=False, server_default=text("clock_timestamp()")),
        Column("updated_at", WHEN, nullable=False, server_default=text("clock_timestamp()")),
        # from when to when, and how often in all; what becomes of what was missed, and of a single run that succeeded
        Column("starts_at", WHEN),
        Column("ends_at", WHEN),
        Column("max_runs", Integer),
        Column("started", Integer, nullable=False, server_default=text("0")),
        _text("catch_up", default="one"),
        Column("remove", Boolean, nullable=False, server_default=text("false")),
        # what becomes of an occurrence that meets a job of its task, or fails
        _text("overlap", default="queue"),
        Column("retries", Integer, nullable=False, server_default=text("0")),
        _text("backoff", default="10s..5m"),
        # what becomes of a task that goes on failing: the longest interval, and the one of now; a pause, and its end
        Column("stretch_ms", BigInteger),
        Column("stretched_ms", BigInteger),
        Column("pause_after", Integer),
        Column("probe_ms", BigInteger),
        # who is told: after so many intervals without a success; when to look; what was said last
        Column("dead_man", Integer),
        Column("alarm_at", WHEN),
        _text("told"),
        Column("resumed_at", WHEN),
        # for whom, and how long its record is kept
        _text("submitter"),
        _text("group_name"),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        _text("keep", default="all"),
        # of all its runs, whether their rows are kept or not
        Column("succeeded", BigInteger, nullable=False, server_default=text("0")),
        Column("failed", BigInteger, nullable=False, server_default=text("0")),
        Column("dropped", BigInteger, nullable=False, server_default=text("0")),
        # whether it has a place of its own in the interval, and which, from 1970 on
        Column("spread", Boolean, nullable=False, server_default=text("false")),
        Column("phase_ms", BigInteger, Computed(PHASE, persisted=True)),
        # the job that carries its newest waiting occurrence beside those of other tasks
        Column("carrier", Text),
        UniqueConstraint("owner_type", "owner_id", "name", name="tasks_owner_name"),
        UniqueConstraint("guid", name="tasks_guid"),
        _check("tasks_owner", "(owner_type = '') = (owner_id = '')"),
        _check("tasks_texts", " AND ".join(_plain(c) for c in ("owner_type", "owner_id", "name", "function", "queue"))),
        _check("tasks_named", "name <> '' AND function <> '' AND queue <> ''"),
        _check("tasks_prose", " AND ".join(
            f"length({column}) <= {TEXT_AT_MOST}" for column in ("declared_in", "expression", "zone", "subject",
                                                                 "description", "paused_by", "paused_reason", "push_error"))),
        _check("tasks_kwargs", _object("kwargs", JSON_AT_MOST)),
        _check("tasks_metadata", _object("metadata", JSON_AT_MOST)),
        _check("tasks_registered", _object("registered", 4 * JSON_AT_MOST)),
        _check("tasks_cursor", _readable("cursor", JSON_AT_MOST)),
        _check("tasks_kind", "kind IN ('interval', 'cron', 'calendar', 'once')"),
        _check(
            "tasks_schedule",
            f"CASE kind WHEN 'interval' THEN every_ms BETWEEN 1000 AND {LONGEST} ELSE every_ms = 0 AND expression <> '' END",
        ),
        _check("tasks_box", f"tolerance_ms BETWEEN 0 AND {LONGEST} AND box_ms BETWEEN 100 AND {LONGEST}"
               " AND grace_ms BETWEEN 1 AND 1000"),
        # two runs of a task never overlap: the one is dead before the next may start
        _check("tasks_fit", "kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms"),
        _check("tasks_bounds", "starts_at <= ends_at AND max_runs BETWEEN 1 AND 1000000000 AND started >= 0"),
        _check("tasks_bounds_finite", _finite("starts_at", "ends_at")),
        _check("tasks_catch_up", "catch_up IN ('one', 'none')"),
        _check("tasks_policy", "overlap IN ('queue', 'skip') AND keep IN ('all', 'problems', 'none')"
               f" AND retries BETWEEN 0 AND {RETRIES_AT_MOST} AND length(backoff) <= {NAME_AT_MOST}"),
        _check("tasks_failing", f"stretch_ms BETWEEN 1000 AND {LONGEST} AND stretched_ms BETWEEN 1000 AND {LONGEST}"
               f" AND probe_ms BETWEEN 1000 AND {LONGEST} AND pause_after BETWEEN 1 AND {COUNT_AT_MOST}"),
        _check("tasks_alarm", f"dead_man BETWEEN 1 AND {INTERVALS_AT_MOST} AND told IN ('', 'failed')"
               f" AND {_finite('alarm_at', 'resumed_at')}"),
        _check("tasks_carrier", f"length(carrier) <= {NAME_AT_MOST}"),
        _check("tasks_whose", f"{_plain('submitter')} AND {_plain('group_name')} AND priority BETWEEN {-PRIORITY_AT_MOST} AND {PRIORITY_AT_MOST}"),
        _check("tasks_totals", "0 <= least(succeeded, failed, dropped) AND greatest(succeeded, failed, dropped) <= 1000000000000000"),
        _check("tasks_hold", "(run_token IS NULL) = (running_until IS NULL)"),
        _check("tasks_uptime", _uptime("last_boot", "last_uptime_us")),
        _check("tasks_paused", "paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')"),
        _check("tasks_counts", f"push_errors BETWEEN 0 AND {COUNT_AT_MOST} AND failures BETWEEN 0 AND {COUNT_AT_MOST}"),
        _check("tasks_outcome", f"last_outcome IN ({OUTCOMES})"),
        _check("tasks_waiting", "array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000"
               " AND coalesce(array_lower(waiting, 1), 1) = 1"
               " AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting)"),
        _check("tasks_finite", _finite("next_run", "push_after", "paused_until", "last_run", "last_occurrence", "running_until",
                                        "last_ended_at", "last_success_at", "last_worked_at", "created_at", "updated_at")),
        # The due query: a range on next_run, oldest first. 1,000 due of 200,000 rows: 0.06 ms to the first row with
        # it, a scan of the table without; tests/test_due_index.py argues with EXPLAIN.
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
        # What people look for among a million: tasks that fail, or rest. Small where all is well.
        Index("tasks_troubled", "owner_type", "owner_id", postgresql_where=text(
            "failures > 0 OR paused_by IS NOT NULL OR NOT owner_active OR NOT enabled")),
        # Pauses that end by themselves. Nearly always empty.
        Index("tasks_paused_until", "paused_until", postgresql_where=text("paused_until IS NOT NULL")),
    )  # fmt: skip


def _runs(metadata: MetaData) -> Table:
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
        _text("kind", default=None),
        Column("parent_id", BigInteger),
        Column("item", JSONB),
        Column("occurrence", WHEN),
        Column("attempt", Integer, nullable=False, server_default=text("1")),
        _text("state", default=None),
        Column("outcome", Text),
        _text("reason"),
        Column("token", Uuid),
        Column("due_at", WHEN),
        Column("pushed_at", WHEN),
        Column("started_at", WHEN),
        Column("until", WHEN),
        Column("boot", Text),
        Column("uptime_us", BigInteger),
        Column("ended_at", WHEN),
        Column("created_at", WHEN, nullable=False, server_default=text("clock_timestamp()")),
        # the arithmetic of the verdict, as it was judged
        Column("checked_last_run", WHEN),
        Column("checked_at", WHEN),
        Column("every_ms", BigInteger),
        Column("tolerance_ms", BigInteger),
        Column("result", JSONB),
        _text("output"),
        _text("error_output"),
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
        _check("runs_kind", "kind IN ('scheduled', 'manual', 'retry', 'piece')"),
        _check("runs_state", "state IN ('planned', 'pushed', 'running', 'processing', 'ended')"),
        _check("runs_outcome", f"outcome IN ({OUTCOMES})"),
        _check("runs_ended", "(state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)"),
        _check("runs_dropped", "outcome <> 'dropped' OR reason <> ''"),
        _check("runs_planned", "state <> 'planned' OR due_at IS NOT NULL"),
        _check("runs_running", "state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)"),
        _check("runs_finite", _finite("occurrence", "due_at", "pushed_at", "started_at", "until", "ended_at",
                                      "created_at", "checked_last_run", "checked_at")),
        _check("runs_durations", f"every_ms BETWEEN 0 AND {LONGEST} AND tolerance_ms BETWEEN 0 AND {LONGEST}"),
        _check("runs_uptime", _uptime("boot", "uptime_us")),
        _check("runs_item", _readable("item")),
        _check("runs_result", _readable("result")),
        _check("runs_output", f"length(output) <= {OUTPUT_AT_MOST} AND length(error_output) <= {OUTPUT_AT_MOST}"),
        _check("runs_piece", "kind <> 'piece' OR parent_id IS NOT NULL"),
        _check("runs_occurrence", "kind <> 'scheduled' OR occurrence IS NOT NULL"),
        # at most one scheduled start per occurrence
        Index("runs_started_once", "task_id", "occurrence", unique=True,
              postgresql_where=text("kind = 'scheduled' AND started_at IS NOT NULL")),
        # what the sweep gave up may still be in a worker's hands: the start looks here
        Index("runs_given_up", "task_id", "occurrence",
              postgresql_where=text("started_at IS NULL AND (reason = 'expired' OR outcome = 'lost')")),
        # what people ask: the last runs of a task
        Index("runs_of_task", "task_id", "id"),
        # the ticker's planned runs, those it pushed, and the sweep's overdue ones; a dead horse's record by its token
        Index("runs_planned", "due_at", postgresql_where=text("state = 'planned'")),
        Index("runs_pushed", "id", postgresql_where=text("state = 'pushed'")),
        Index("runs_running_until", "until", postgresql_where=text("state = 'running'")),
        Index("runs_running_token", "token", postgresql_where=text("state = 'running'")),
        # ends that a tick has to see to; a run's pieces and retries; runs whose pieces are at work
        Index("runs_follow_up", "id", postgresql_where=text("follow_up")),
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


def _tickers(metadata: MetaData) -> Table:
    """One row per ticker process: its heartbeat."""
    return Table(
        "tickers",
        metadata,
        Column("id", Uuid, primary_key=True),
        _text("host"),
        Column("pid", Integer, nullable=False),
        Column("started_at", WHEN, nullable=False),
        Column("last_tick_at", WHEN),
        Column("last_report", JSONB, nullable=False, server_default=text("'{}'")),
        _check("tickers_finite", _finite("started_at", "last_tick_at")),
        _check("tickers_report", _object("last_report", JSON_AT_MOST)),
    )


def _events(metadata: MetaData) -> Table:
    """What happened to a task beside its runs: who paused it, since when it fails. No foreign key: it outlives its task."""
    return Table(
        "events",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("at", WHEN, nullable=False, server_default=text("clock_timestamp()")),
        Column("task_id", BigInteger, nullable=False),
        _text("task_name"),
        _text("function"),
        _text("owner_type"),
        _text("owner_id"),
        _text("what", default=None),
        _text("by"),
        _text("words"),
        Column("run_id", BigInteger),
        Column("told", Boolean, nullable=False, server_default=text("false")),
        _check("events_what", f"what IN ({', '.join(repr(str(what)) for what in What)})"),
        _check("events_finite", _finite("at")),
        Index("events_of_task", "task_id", "id"),
        Index("events_at", "at"),
        # what nobody was told of yet
        Index("events_untold", "id", postgresql_where=text("NOT told")),
    )


def _notices(metadata: MetaData) -> Table:
    """One event on its way through one channel (log, webhook, mail, ...), until it has arrived."""
    return Table(
        "notices",
        metadata,
        Column("event_id", BigInteger, primary_key=True),
        Column("channel", Text, primary_key=True),
        Column("due_at", WHEN, nullable=False, server_default=text("clock_timestamp()")),
        Column("tries", Integer, nullable=False, server_default=text("0")),
        _text("error"),
        _check("notices_finite", _finite("due_at")),
        Index("notices_due", "due_at"),
    )


def _templates(metadata: MetaData) -> Table:
    """The default tasks of a kind of owner: the columns of a task, from which a trigger makes those of a new owner."""
    return Table(
        "templates",
        metadata,
        Column("owner_type", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("task", JSONB, nullable=False),
        _check("templates_named", f"owner_type <> '' AND name <> '' AND {_plain('owner_type')} AND {_plain('name')}"),
        _check("templates_task", f"jsonb_typeof(task) = 'object' AND octet_length(task::text) <= {8 * JSON_AT_MOST}"),
    )


def _functions(metadata: MetaData) -> Table:
    """What workers have announced: the functions that they know, and how many tasks of each one job may carry."""
    return Table(
        "functions",
        metadata,
        Column("name", Text, primary_key=True),
        Column("batch", Integer, nullable=False, server_default=text("1")),
        Column("announced_at", WHEN, nullable=False),
        _check("functions_name", f"name <> '' AND {_plain('name')}"),
        _check("functions_batch", f"batch BETWEEN 1 AND {BATCH_AT_MOST}"),
        _check("functions_finite", _finite("announced_at")),
    )


def _text(name: str, *, default: str | None = "") -> Column[str]:
    return Column(name, Text, nullable=False, server_default=None if default is None else text(f"'{default}'"))


def _check(name: str, rule: str) -> CheckConstraint:
    return CheckConstraint(text(rule), name=name)


def _plain(column: str) -> str:
    return f"length({column}) <= {NAME_AT_MOST} AND {column} !~ '[[:cntrl:]]'"


def _object(column: str, most: int) -> str:
    return f"jsonb_typeof({column}) = 'object' AND {_readable(column, most)}"


def _readable(column: str, most: int | None = None) -> str:
    """That Python's reader takes it: a row that cannot be read stops everybody who reads the rows beside it, too.

    Too deep, or a number that is no double (such as 1e5000). A short text can be neither, and is asked first, since
    each update of a row asks. `registered` holds the arguments one level deeper.
    """
    text = f"octet_length({column}::text)"
    bound = "" if most is None else f"{text} <= {most} AND "
    numbers = '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'
    return (
        f"({text} <= {2 * NESTED_AT_MOST} OR ({bound}NOT jsonb_path_exists({column}, '$.**{{{NESTED_AT_MOST + 2}}}')"
        f" AND NOT jsonb_path_exists({column}, '{numbers}')))"
    )


def _uptime(boot: str, uptime: str) -> str:
    """Microseconds, of less than a hundred years, so that no difference overflows; and whose."""
    return f"({boot} IS NULL) = ({uptime} IS NULL) AND length({boot}) <= {NAME_AT_MOST} AND {uptime} BETWEEN 0 AND {UPTIME_AT_MOST}"


def _finite(*columns: str) -> str:
    return " AND ".join(FINITE.format(column) for column in columns)
