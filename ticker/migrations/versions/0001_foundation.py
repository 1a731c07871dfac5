"""The tables tasks, runs and tickers."""

from alembic import op

revision = "0001"
down_revision = None

DOMAINS = {
    "ticker_plain": "TEXT CHECK (length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]')",
    "ticker_named": "TEXT CHECK (VALUE <> '' AND length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]')",
    "ticker_short": "TEXT CHECK (length(VALUE) <= 200)",
    "ticker_prose": "TEXT CHECK (length(VALUE) <= 2000)",
    "ticker_output": "TEXT CHECK (length(VALUE) <= 100000)",
    "ticker_moment": "TIMESTAMP WITH TIME ZONE CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z')",
    "ticker_duration": "BIGINT CHECK (VALUE BETWEEN 0 AND 31622400000)",
    "ticker_box": "BIGINT CHECK (VALUE BETWEEN 100 AND 31622400000)",
    "ticker_grace": "BIGINT CHECK (VALUE BETWEEN 1 AND 1000)",
    "ticker_uptime": "BIGINT CHECK (VALUE BETWEEN 0 AND 3153600000000000)",
    "ticker_count": "INTEGER CHECK (VALUE BETWEEN 0 AND 1000000)",
    "ticker_kind": "TEXT CHECK (VALUE IN ('interval', 'cron', 'calendar', 'once'))",
    "ticker_run_kind": "TEXT CHECK (VALUE IN ('scheduled', 'manual', 'retry', 'piece'))",
    "ticker_state": "TEXT CHECK (VALUE IN ('planned', 'pushed', 'running', 'processing', 'ended'))",
    "ticker_outcome": "TEXT CHECK (VALUE IN ('succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'dropped'))",
    "ticker_object": "JSONB CHECK (jsonb_typeof(VALUE) = 'object' AND (octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536 AND NOT jsonb_path_exists(VALUE, '$.**{252}') AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == \"number\" && (@.double() >= 0) is unknown)'))))",
    "ticker_registered": "JSONB CHECK (jsonb_typeof(VALUE) = 'object' AND (octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 262144 AND NOT jsonb_path_exists(VALUE, '$.**{252}') AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == \"number\" && (@.double() >= 0) is unknown)'))))",
    "ticker_cursor": "JSONB CHECK ((octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536 AND NOT jsonb_path_exists(VALUE, '$.**{252}') AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == \"number\" && (@.double() >= 0) is unknown)'))))",
    "ticker_readable": "JSONB CHECK ((octet_length(VALUE::text) <= 500 OR (NOT jsonb_path_exists(VALUE, '$.**{252}') AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == \"number\" && (@.double() >= 0) is unknown)'))))",
}

DDL = """
CREATE TABLE tasks (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    guid UUID DEFAULT gen_random_uuid() NOT NULL,
    owner_type ticker_plain DEFAULT '' NOT NULL,
    owner_id ticker_plain DEFAULT '' NOT NULL,
    name ticker_named NOT NULL,
    function ticker_named NOT NULL,
    kwargs ticker_object DEFAULT '{}' NOT NULL,
    registered ticker_registered DEFAULT '{}' NOT NULL,
    declared_in ticker_prose DEFAULT '' NOT NULL,
    kind ticker_kind NOT NULL,
    expression ticker_prose DEFAULT '' NOT NULL,
    zone ticker_prose DEFAULT 'UTC' NOT NULL,
    every_ms ticker_duration DEFAULT 0 NOT NULL,
    tolerance_ms ticker_duration DEFAULT 0 NOT NULL,
    box_ms ticker_box NOT NULL,
    grace_ms ticker_grace NOT NULL,
    queue ticker_named NOT NULL,
    subject ticker_prose DEFAULT '' NOT NULL,
    description ticker_prose DEFAULT '' NOT NULL,
    metadata ticker_object DEFAULT '{}' NOT NULL,
    enabled BOOLEAN DEFAULT true NOT NULL,
    owner_active BOOLEAN DEFAULT true NOT NULL,
    paused_by ticker_prose,
    paused_reason ticker_prose DEFAULT '' NOT NULL,
    paused_until ticker_moment,
    next_run ticker_moment,
    waiting TIMESTAMP WITH TIME ZONE[] DEFAULT '{}' NOT NULL,
    push_after ticker_moment,
    push_errors ticker_count DEFAULT 0 NOT NULL,
    push_error ticker_prose DEFAULT '' NOT NULL,
    last_run ticker_moment,
    last_boot ticker_short,
    last_uptime_us ticker_uptime,
    last_occurrence ticker_moment,
    run_token UUID,
    running_until ticker_moment,
    cursor ticker_cursor,
    last_run_id BIGINT,
    last_outcome ticker_outcome,
    last_ended_at ticker_moment,
    last_success_at ticker_moment,
    last_worked_at ticker_moment,
    failures ticker_count DEFAULT 0 NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name),
    CONSTRAINT tasks_owner CHECK ((owner_type = '') = (owner_id = '')),
    CONSTRAINT tasks_schedule CHECK (CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END),
    CONSTRAINT tasks_fit CHECK (kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms),
    CONSTRAINT tasks_hold CHECK ((run_token IS NULL) = (running_until IS NULL)),
    CONSTRAINT tasks_uptime CHECK ((last_boot IS NULL) = (last_uptime_us IS NULL)),
    CONSTRAINT tasks_paused CHECK (paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')),
    CONSTRAINT tasks_waiting CHECK (array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000 AND coalesce(array_lower(waiting, 1), 1) = 1 AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting))
);

CREATE INDEX tasks_due ON tasks (next_run) WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL;

CREATE INDEX tasks_paused_until ON tasks (paused_until) WHERE paused_until IS NOT NULL;

CREATE INDEX tasks_waiting_oldest ON tasks (id) WHERE waiting <> '{}';

CREATE TABLE runs (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    task_id BIGINT NOT NULL,
    task_name TEXT DEFAULT '' NOT NULL,
    function TEXT DEFAULT '' NOT NULL,
    owner_type TEXT DEFAULT '' NOT NULL,
    owner_id TEXT DEFAULT '' NOT NULL,
    kind ticker_run_kind NOT NULL,
    parent_id BIGINT,
    item ticker_readable,
    occurrence ticker_moment,
    attempt INTEGER DEFAULT 1 NOT NULL,
    state ticker_state NOT NULL,
    outcome ticker_outcome,
    reason TEXT DEFAULT '' NOT NULL,
    token UUID,
    due_at ticker_moment,
    pushed_at ticker_moment,
    started_at ticker_moment,
    until ticker_moment,
    boot ticker_short,
    uptime_us ticker_uptime,
    ended_at ticker_moment,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    checked_last_run ticker_moment,
    checked_at ticker_moment,
    every_ms ticker_duration,
    tolerance_ms ticker_duration,
    result ticker_readable,
    output ticker_output DEFAULT '' NOT NULL,
    error_output ticker_output DEFAULT '' NOT NULL,
    traceback TEXT DEFAULT '' NOT NULL,
    worker TEXT DEFAULT '' NOT NULL,
    host TEXT DEFAULT '' NOT NULL,
    pid INTEGER,
    job_id TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT runs_ended CHECK ((state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT runs_dropped CHECK (outcome <> 'dropped' OR reason <> ''),
    CONSTRAINT runs_planned CHECK (state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT runs_running CHECK (state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)),
    CONSTRAINT runs_uptime CHECK ((boot IS NULL) = (uptime_us IS NULL)),
    CONSTRAINT runs_occurrence CHECK (kind <> 'scheduled' OR occurrence IS NOT NULL)
);

CREATE INDEX runs_given_up ON runs (task_id, occurrence) WHERE started_at IS NULL AND (reason = 'expired' OR outcome = 'lost');

CREATE INDEX runs_of_task ON runs (task_id, id);

CREATE INDEX runs_planned ON runs (due_at) WHERE state = 'planned';

CREATE INDEX runs_pushed ON runs (id) WHERE state = 'pushed';

CREATE INDEX runs_running_token ON runs (token) WHERE state = 'running';

CREATE INDEX runs_running_until ON runs (until) WHERE state = 'running';

CREATE UNIQUE INDEX runs_started_once ON runs (task_id, occurrence) WHERE kind = 'scheduled' AND started_at IS NOT NULL;

CREATE TABLE tickers (
    id UUID NOT NULL,
    host TEXT DEFAULT '' NOT NULL,
    pid INTEGER NOT NULL,
    started_at ticker_moment NOT NULL,
    last_tick_at ticker_moment,
    last_report ticker_object DEFAULT '{}' NOT NULL,
    PRIMARY KEY (id)
);
"""


def upgrade() -> None:
    for name, rule in DOMAINS.items():
        op.execute(f"CREATE DOMAIN {name} AS {rule}")
    for statement in DDL.strip().split(";\n"):
        op.execute(statement.strip().removesuffix(";"))


def downgrade() -> None:
    op.execute("DROP TABLE tasks, runs, tickers")
    op.execute(f"DROP DOMAIN {', '.join(DOMAINS)}")
