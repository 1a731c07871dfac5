"""The tables tasks, runs and tickers."""

from alembic import op

revision = "0001"
down_revision = None

DDL = """
CREATE TABLE tasks (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    guid UUID DEFAULT gen_random_uuid() NOT NULL,
    owner_type TEXT DEFAULT '' NOT NULL,
    owner_id TEXT DEFAULT '' NOT NULL,
    name TEXT NOT NULL,
    function TEXT NOT NULL,
    kwargs JSONB DEFAULT '{}' NOT NULL,
    registered JSONB DEFAULT '{}' NOT NULL,
    declared_in TEXT DEFAULT '' NOT NULL,
    kind TEXT NOT NULL,
    expression TEXT DEFAULT '' NOT NULL,
    zone TEXT DEFAULT 'UTC' NOT NULL,
    every_ms BIGINT DEFAULT 0 NOT NULL,
    tolerance_ms BIGINT DEFAULT 0 NOT NULL,
    box_ms BIGINT NOT NULL,
    grace_ms BIGINT NOT NULL,
    queue TEXT NOT NULL,
    subject TEXT DEFAULT '' NOT NULL,
    description TEXT DEFAULT '' NOT NULL,
    metadata JSONB DEFAULT '{}' NOT NULL,
    enabled BOOLEAN DEFAULT true NOT NULL,
    owner_active BOOLEAN DEFAULT true NOT NULL,
    paused_by TEXT,
    paused_reason TEXT DEFAULT '' NOT NULL,
    paused_until TIMESTAMP WITH TIME ZONE,
    next_run TIMESTAMP WITH TIME ZONE,
    waiting TIMESTAMP WITH TIME ZONE[] DEFAULT '{}' NOT NULL,
    push_after TIMESTAMP WITH TIME ZONE,
    push_errors INTEGER DEFAULT 0 NOT NULL,
    push_error TEXT DEFAULT '' NOT NULL,
    last_run TIMESTAMP WITH TIME ZONE,
    last_boot TEXT,
    last_uptime_us BIGINT,
    last_occurrence TIMESTAMP WITH TIME ZONE,
    run_token UUID,
    running_until TIMESTAMP WITH TIME ZONE,
    cursor JSONB,
    last_run_id BIGINT,
    last_outcome TEXT,
    last_ended_at TIMESTAMP WITH TIME ZONE,
    last_success_at TIMESTAMP WITH TIME ZONE,
    last_worked_at TIMESTAMP WITH TIME ZONE,
    failures INTEGER DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name),
    CONSTRAINT tasks_guid UNIQUE (guid),
    CONSTRAINT tasks_owner CHECK ((owner_type = '') = (owner_id = '')),
    CONSTRAINT tasks_texts CHECK (length(owner_type) <= 200 AND owner_type !~ '[[:cntrl:]]' AND length(owner_id) <= 200 AND owner_id !~ '[[:cntrl:]]' AND length(name) <= 200 AND name !~ '[[:cntrl:]]' AND length(function) <= 200 AND function !~ '[[:cntrl:]]' AND length(queue) <= 200 AND queue !~ '[[:cntrl:]]'),
    CONSTRAINT tasks_named CHECK (name <> '' AND function <> '' AND queue <> ''),
    CONSTRAINT tasks_prose CHECK (length(declared_in) <= 2000 AND length(expression) <= 2000 AND length(zone) <= 2000 AND length(subject) <= 2000 AND length(description) <= 2000 AND length(paused_by) <= 2000 AND length(paused_reason) <= 2000 AND length(push_error) <= 2000),
    CONSTRAINT tasks_kwargs CHECK (jsonb_typeof(kwargs) = 'object' AND (octet_length(kwargs::text) <= 500 OR (octet_length(kwargs::text) <= 65536 AND NOT jsonb_path_exists(kwargs, '$.**{252}') AND NOT jsonb_path_exists(kwargs, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
    CONSTRAINT tasks_metadata CHECK (jsonb_typeof(metadata) = 'object' AND (octet_length(metadata::text) <= 500 OR (octet_length(metadata::text) <= 65536 AND NOT jsonb_path_exists(metadata, '$.**{252}') AND NOT jsonb_path_exists(metadata, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
    CONSTRAINT tasks_registered CHECK (jsonb_typeof(registered) = 'object' AND (octet_length(registered::text) <= 500 OR (octet_length(registered::text) <= 262144 AND NOT jsonb_path_exists(registered, '$.**{252}') AND NOT jsonb_path_exists(registered, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
    CONSTRAINT tasks_cursor CHECK ((octet_length(cursor::text) <= 500 OR (octet_length(cursor::text) <= 65536 AND NOT jsonb_path_exists(cursor, '$.**{252}') AND NOT jsonb_path_exists(cursor, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
    CONSTRAINT tasks_kind CHECK (kind IN ('interval', 'cron', 'calendar', 'once')),
    CONSTRAINT tasks_schedule CHECK (CASE kind WHEN 'interval' THEN every_ms BETWEEN 1000 AND 31622400000 ELSE every_ms = 0 AND expression <> '' END),
    CONSTRAINT tasks_box CHECK (tolerance_ms BETWEEN 0 AND 31622400000 AND box_ms BETWEEN 100 AND 31622400000 AND grace_ms BETWEEN 1 AND 1000),
    CONSTRAINT tasks_fit CHECK (kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms),
    CONSTRAINT tasks_hold CHECK ((run_token IS NULL) = (running_until IS NULL)),
    CONSTRAINT tasks_uptime CHECK ((last_boot IS NULL) = (last_uptime_us IS NULL) AND length(last_boot) <= 200 AND last_uptime_us BETWEEN 0 AND 3153600000000000),
    CONSTRAINT tasks_paused CHECK (paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')),
    CONSTRAINT tasks_counts CHECK (push_errors BETWEEN 0 AND 1000000 AND failures BETWEEN 0 AND 1000000),
    CONSTRAINT tasks_outcome CHECK (last_outcome IN ('succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'dropped')),
    CONSTRAINT tasks_waiting CHECK (array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000 AND coalesce(array_lower(waiting, 1), 1) = 1 AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting)),
    CONSTRAINT tasks_finite CHECK (next_run BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND push_after BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND paused_until BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_run BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_occurrence BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND running_until BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_ended_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_success_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_worked_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND created_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND updated_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z')
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
    kind TEXT NOT NULL,
    parent_id BIGINT,
    item JSONB,
    occurrence TIMESTAMP WITH TIME ZONE,
    attempt INTEGER DEFAULT 1 NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT,
    reason TEXT DEFAULT '' NOT NULL,
    token UUID,
    due_at TIMESTAMP WITH TIME ZONE,
    pushed_at TIMESTAMP WITH TIME ZONE,
    started_at TIMESTAMP WITH TIME ZONE,
    until TIMESTAMP WITH TIME ZONE,
    boot TEXT,
    uptime_us BIGINT,
    ended_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    checked_last_run TIMESTAMP WITH TIME ZONE,
    checked_at TIMESTAMP WITH TIME ZONE,
    every_ms BIGINT,
    tolerance_ms BIGINT,
    result JSONB,
    output TEXT DEFAULT '' NOT NULL,
    error_output TEXT DEFAULT '' NOT NULL,
    traceback TEXT DEFAULT '' NOT NULL,
    worker TEXT DEFAULT '' NOT NULL,
    host TEXT DEFAULT '' NOT NULL,
    pid INTEGER,
    job_id TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT runs_kind CHECK (kind IN ('scheduled', 'manual', 'retry', 'piece')),
    CONSTRAINT runs_state CHECK (state IN ('planned', 'pushed', 'running', 'ended')),
    CONSTRAINT runs_outcome CHECK (outcome IN ('succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'dropped')),
    CONSTRAINT runs_ended CHECK ((state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT runs_dropped CHECK (outcome <> 'dropped' OR reason <> ''),
    CONSTRAINT runs_planned CHECK (state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT runs_running CHECK (state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)),
    CONSTRAINT runs_finite CHECK (occurrence BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND due_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND pushed_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND started_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND until BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND ended_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND created_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND checked_last_run BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND checked_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z'),
    CONSTRAINT runs_durations CHECK (every_ms BETWEEN 0 AND 31622400000 AND tolerance_ms BETWEEN 0 AND 31622400000),
    CONSTRAINT runs_uptime CHECK ((boot IS NULL) = (uptime_us IS NULL) AND length(boot) <= 200 AND uptime_us BETWEEN 0 AND 3153600000000000),
    CONSTRAINT runs_item CHECK ((octet_length(item::text) <= 500 OR (NOT jsonb_path_exists(item, '$.**{252}') AND NOT jsonb_path_exists(item, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
    CONSTRAINT runs_result CHECK ((octet_length(result::text) <= 500 OR (NOT jsonb_path_exists(result, '$.**{252}') AND NOT jsonb_path_exists(result, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')))),
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
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_tick_at TIMESTAMP WITH TIME ZONE,
    last_report JSONB DEFAULT '{}' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT tickers_finite CHECK (started_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z' AND last_tick_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z'),
    CONSTRAINT tickers_report CHECK (jsonb_typeof(last_report) = 'object' AND (octet_length(last_report::text) <= 500 OR (octet_length(last_report::text) <= 65536 AND NOT jsonb_path_exists(last_report, '$.**{252}') AND NOT jsonb_path_exists(last_report, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'))))
);
"""


def upgrade() -> None:
    for statement in DDL.strip().split(";\n"):
        op.execute(statement.strip().removesuffix(";"))


def downgrade() -> None:
    op.execute("DROP TABLE tasks, runs, tickers")
