-- The tables and their indexes. ticker.db.tables explains them, and defines them for applications.
CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    task_id BIGINT NOT NULL,
    task_name ticker_short DEFAULT '' NOT NULL,
    function ticker_short DEFAULT '' NOT NULL,
    owner_type ticker_short DEFAULT '' NOT NULL,
    owner_id ticker_short DEFAULT '' NOT NULL,
    what ticker_what NOT NULL,
    by ticker_prose DEFAULT '' NOT NULL,
    words ticker_words DEFAULT '' NOT NULL,
    run_id BIGINT,
    told BOOLEAN DEFAULT 'false' NOT NULL,
    count INTEGER,
    until ticker_moment,
    PRIMARY KEY (id)
);
CREATE INDEX events_at ON events (at);
CREATE UNIQUE INDEX events_expired ON events (function, at) WHERE what = 'expired';
CREATE INDEX events_of_task ON events (task_id, id);
CREATE UNIQUE INDEX events_unknown_function ON events (function) WHERE what = 'unknown_function';
CREATE INDEX events_untold ON events (id) WHERE NOT told;
CREATE TABLE functions (
    name ticker_named NOT NULL,
    batch ticker_batch DEFAULT 1 NOT NULL,
    announced_at ticker_moment,
    concurrency ticker_batch DEFAULT 1 NOT NULL,
    repeatable BOOLEAN DEFAULT 'false' NOT NULL,
    halved_to ticker_batch,
    halved_until ticker_moment,
    queues ticker_queues DEFAULT '{}' NOT NULL,
    mean_ms BIGINT,
    PRIMARY KEY (name),
    CONSTRAINT functions_mean_ms CHECK (mean_ms > 0)
);
CREATE TABLE hours (
    at ticker_moment NOT NULL,
    function TEXT DEFAULT '' NOT NULL,
    queue TEXT NOT NULL,
    outcome TEXT DEFAULT '' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    kind TEXT DEFAULT '' NOT NULL,
    count INTEGER DEFAULT 0 NOT NULL,
    started INTEGER DEFAULT 0 NOT NULL,
    late_ms BIGINT DEFAULT 0 NOT NULL,
    took_ms BIGINT DEFAULT 0 NOT NULL,
    late INTEGER[] DEFAULT '{}' NOT NULL,
    took INTEGER[] DEFAULT '{}' NOT NULL,
    samples INTEGER DEFAULT 0 NOT NULL,
    listening BIGINT DEFAULT 0 NOT NULL,
    busy BIGINT DEFAULT 0 NOT NULL,
    waiting BIGINT DEFAULT 0 NOT NULL,
    needed INTEGER,
    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);
CREATE INDEX hours_of_all ON hours (at) WHERE function = '(all)';
CREATE TABLE installation (
    single BOOLEAN DEFAULT 'true' NOT NULL,
    id TEXT DEFAULT "left"((gen_random_uuid())::text, 8) NOT NULL,
    system_identifier BIGINT,
    database_oid OID NOT NULL,
    marker_oid OID NOT NULL,
    environment ticker_plain DEFAULT '' NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    adopted_at ticker_moment,
    counted_until ticker_moment,
    counted_twice_until ticker_moment,
    traced_until ticker_moment,
    taken_from ticker_queues DEFAULT '{}' NOT NULL,
    PRIMARY KEY (single),
    CONSTRAINT installation_id CHECK (id ~ '^[a-z0-9]{8}$'),
    CONSTRAINT installation_single CHECK (single)
);
CREATE TABLE limited_keys (
    key ticker_key NOT NULL,
    limited_by ticker_key,
    concurrency ticker_limited,
    burst ticker_limited,
    token_us BIGINT,
    closed_until ticker_moment,
    closed_at ticker_moment,
    closed_step INTEGER DEFAULT 0 NOT NULL,
    allowed ticker_limited,
    PRIMARY KEY (key),
    CONSTRAINT limited_keys_rate CHECK ((burst IS NULL) = (token_us IS NULL))
);
CREATE TABLE limits (
    key ticker_key NOT NULL,
    concurrency ticker_limited,
    rate INTEGER,
    period_ms ticker_span,
    burst ticker_limited,
    by ticker_short DEFAULT '' NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    declared_in ticker_prose DEFAULT '' NOT NULL,
    registered ticker_registered DEFAULT '{}' NOT NULL,
    PRIMARY KEY (key),
    CONSTRAINT limits_any CHECK (concurrency IS NOT NULL OR rate IS NOT NULL),
    CONSTRAINT limits_rate CHECK ((rate IS NULL) = (period_ms IS NULL) AND (rate IS NULL) = (burst IS NULL) AND rate BETWEEN 1 AND 1000000 AND burst <= rate)
);
CREATE TABLE minutes (
    at ticker_moment NOT NULL,
    function TEXT DEFAULT '' NOT NULL,
    queue TEXT NOT NULL,
    outcome TEXT DEFAULT '' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    kind TEXT DEFAULT '' NOT NULL,
    count INTEGER DEFAULT 0 NOT NULL,
    started INTEGER DEFAULT 0 NOT NULL,
    late_ms BIGINT DEFAULT 0 NOT NULL,
    took_ms BIGINT DEFAULT 0 NOT NULL,
    late INTEGER[] DEFAULT '{}' NOT NULL,
    took INTEGER[] DEFAULT '{}' NOT NULL,
    samples INTEGER DEFAULT 0 NOT NULL,
    listening BIGINT DEFAULT 0 NOT NULL,
    busy BIGINT DEFAULT 0 NOT NULL,
    waiting BIGINT DEFAULT 0 NOT NULL,
    needed INTEGER,
    demand ticker_registered,
    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);
CREATE INDEX minutes_of_queues ON minutes (at, queue) WHERE outcome = '';
CREATE TABLE notices (
    event_id BIGINT NOT NULL,
    channel TEXT NOT NULL,
    due_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    cause ticker_short DEFAULT '' NOT NULL,
    tasks INTEGER DEFAULT 0 NOT NULL,
    paused INTEGER DEFAULT 0 NOT NULL,
    sent_at ticker_moment,
    PRIMARY KEY (event_id, channel, cause)
);
CREATE UNIQUE INDEX notices_cause ON notices (channel, cause) WHERE cause <> '';
CREATE INDEX notices_due ON notices (due_at);
CREATE TABLE pauses (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    scope TEXT NOT NULL,
    value ticker_short DEFAULT '' NOT NULL,
    of_queue ticker_short DEFAULT '' NOT NULL,
    by ticker_short DEFAULT '' NOT NULL,
    reason ticker_prose DEFAULT '' NOT NULL,
    paused_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    until ticker_moment,
    resumed_at ticker_moment,
    resumed_by ticker_short DEFAULT '' NOT NULL,
    budget INTEGER,
    granted_at ticker_moment,
    done_at ticker_moment,
    mark TEXT GENERATED ALWAYS AS (CASE scope WHEN 'all' THEN scope WHEN 'unknown' THEN scope || ' ' || of_queue::text || ' ' || value::text
    ELSE scope || ' ' || value::text END) STORED NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT pauses_done CHECK (done_at IS NULL OR resumed_at IS NOT NULL),
    CONSTRAINT pauses_scope CHECK (scope IN ('all', 'group', 'function', 'queue', 'owner_type', 'limit', 'unknown')),
    CONSTRAINT pauses_value CHECK ((scope = 'all') = (value = ''))
);
CREATE INDEX pauses_ended ON pauses (mark, resumed_at);
CREATE UNIQUE INDEX pauses_in_force ON pauses (scope, value, of_queue) WHERE resumed_at IS NULL;
CREATE INDEX pauses_open ON pauses (id) WHERE done_at IS NULL;
CREATE TABLE runs (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    task_id BIGINT NOT NULL,
    task_name ticker_short DEFAULT '' NOT NULL,
    function ticker_short DEFAULT '' NOT NULL,
    owner_type ticker_short DEFAULT '' NOT NULL,
    owner_id ticker_short DEFAULT '' NOT NULL,
    kind ticker_run_kind NOT NULL,
    parent_id BIGINT,
    item ticker_readable,
    occurrence ticker_moment,
    attempt INTEGER DEFAULT 1 NOT NULL,
    state ticker_state NOT NULL,
    outcome ticker_outcome,
    reason ticker_prose DEFAULT '' NOT NULL,
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
    traceback ticker_output DEFAULT '' NOT NULL,
    worker ticker_prose DEFAULT '' NOT NULL,
    host ticker_short DEFAULT '' NOT NULL,
    pid INTEGER,
    job_id ticker_prose DEFAULT '' NOT NULL,
    follow_up BOOLEAN DEFAULT 'false' NOT NULL,
    retried BOOLEAN DEFAULT 'false' NOT NULL,
    pieces INTEGER,
    stop_requested_by ticker_short,
    stop_requested_at ticker_moment,
    queue ticker_short DEFAULT '' NOT NULL,
    traceparent ticker_short,
    PRIMARY KEY (id),
    CONSTRAINT runs_dropped CHECK (outcome <> 'dropped' OR reason <> ''),
    CONSTRAINT runs_ended CHECK ((state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT runs_occurrence CHECK (kind <> 'scheduled' OR occurrence IS NOT NULL),
    CONSTRAINT runs_piece CHECK (kind <> 'piece' OR parent_id IS NOT NULL),
    CONSTRAINT runs_planned CHECK (state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT runs_running CHECK (state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)),
    CONSTRAINT runs_uptime CHECK ((boot IS NULL) = (uptime_us IS NULL))
);
CREATE INDEX runs_by_outcome ON runs (owner_type, outcome, ended_at) WHERE outcome <> 'dropped';
CREATE INDEX runs_by_owner ON runs (owner_type, owner_id, ended_at) WHERE owner_type <> '' AND ended_at IS NOT NULL;
CREATE INDEX runs_by_reason ON runs (owner_type, reason, ended_at) INCLUDE (id, task_id, function, owner_id) WHERE outcome = 'dropped';
CREATE INDEX runs_follow_up ON runs (id) WHERE follow_up;
CREATE INDEX runs_further ON runs (task_id, id) WHERE kind IN ('retry', 'piece');
CREATE INDEX runs_manual ON runs (task_id, due_at) WHERE kind = 'manual';
CREATE INDEX runs_of_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_of_task ON runs (task_id, id) WHERE kind IN ('scheduled', 'manual');
CREATE UNIQUE INDEX runs_one_record ON runs (task_id, occurrence) WHERE kind = 'scheduled';
CREATE INDEX runs_open_pieces ON runs (parent_id) WHERE kind = 'piece' AND (state <> 'ended' OR follow_up);
CREATE INDEX runs_planned ON runs (due_at) WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1);
CREATE INDEX runs_planned_pieces ON runs (parent_id, id) WHERE state = 'planned' AND kind = 'piece' AND attempt = 1;
CREATE INDEX runs_processing ON runs (id) WHERE state = 'processing';
CREATE INDEX runs_pushed ON runs (id) WHERE state = 'pushed';
CREATE INDEX runs_running_token ON runs (token) WHERE state = 'running';
CREATE INDEX runs_to_stop ON runs (id) WHERE stop_requested_by IS NOT NULL AND state <> 'ended';
CREATE INDEX runs_unstarted ON runs (task_id) WHERE state IN ('planned', 'pushed');
CREATE TABLE slots (
    key ticker_key NOT NULL,
    kind TEXT NOT NULL,
    n INTEGER NOT NULL,
    token UUID,
    until ticker_moment,
    took_ms INTEGER,
    PRIMARY KEY (key, kind, n),
    CONSTRAINT slots_kind CHECK (kind IN ('run', 'start')),
    CONSTRAINT slots_token CHECK (kind = 'run' OR token IS NULL)
);
CREATE INDEX slots_token ON slots (token) WHERE token IS NOT NULL;
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
    enabled BOOLEAN DEFAULT 'true' NOT NULL,
    owner_active BOOLEAN DEFAULT 'true' NOT NULL,
    paused_by ticker_prose,
    paused_reason ticker_prose DEFAULT '' NOT NULL,
    paused_until ticker_moment,
    next_run ticker_moment,
    waiting TIMESTAMP WITH TIME ZONE[] DEFAULT '{}' NOT NULL,
    push_after ticker_moment,
    push_errors ticker_count DEFAULT 0 NOT NULL,
    push_error ticker_prose DEFAULT '' NOT NULL,
    last_run ticker_moment,
    last_occurrence ticker_moment,
    run_token UUID,
    running_until ticker_moment,
    cursor ticker_readable,
    last_run_id BIGINT,
    last_outcome ticker_outcome,
    last_ended_at ticker_moment,
    last_success_at ticker_moment,
    last_worked_at ticker_moment,
    failures ticker_count DEFAULT 0 NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    starts_at ticker_moment,
    ends_at ticker_moment,
    max_runs ticker_max_runs,
    started ticker_started DEFAULT 0 NOT NULL,
    catch_up ticker_catch_up DEFAULT 'one' NOT NULL,
    remove BOOLEAN DEFAULT 'false' NOT NULL,
    overlap ticker_overlap DEFAULT 'queue' NOT NULL,
    retries ticker_retries DEFAULT 0 NOT NULL,
    backoff ticker_short DEFAULT '10s..5m' NOT NULL,
    stretch_ms ticker_span,
    stretched_ms ticker_span,
    pause_after ticker_limit,
    probe_ms ticker_span,
    dead_man ticker_intervals,
    alarm_at ticker_moment,
    told ticker_told DEFAULT '' NOT NULL,
    resumed_at ticker_moment,
    submitter ticker_plain DEFAULT '' NOT NULL,
    group_name ticker_plain DEFAULT '' NOT NULL,
    priority ticker_priority DEFAULT 0 NOT NULL,
    keep ticker_keep DEFAULT 'all' NOT NULL,
    succeeded ticker_total DEFAULT 0 NOT NULL,
    failed ticker_total DEFAULT 0 NOT NULL,
    dropped ticker_total DEFAULT 0 NOT NULL,
    spread BOOLEAN DEFAULT 'false' NOT NULL,
    batch_jobs ticker_batch_jobs,
    within_ms ticker_span,
    phase_ms BIGINT GENERATED ALWAYS AS (CASE WHEN spread
    THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint
        * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END) STORED,
    alone_until ticker_moment,
    share ticker_batch,
    limits ticker_keys,
    every_most_ms ticker_span,
    pace_ms ticker_span,
    again_at ticker_moment,
    pause_id BIGINT,
    waits_again ticker_moment,
    wait_reason ticker_short,
    during ticker_short DEFAULT '' NOT NULL,
    enough_jobs_event BIGINT,
    cause ticker_short DEFAULT '' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT tasks_bounds CHECK (starts_at <= ends_at),
    CONSTRAINT tasks_during CHECK (during = '' OR kind = 'interval'),
    CONSTRAINT tasks_elastic CHECK ((every_most_ms IS NULL OR kind = 'interval' AND every_most_ms > every_ms) AND (pace_ms IS NULL OR coalesce(pace_ms BETWEEN every_ms AND every_most_ms, false))),
    CONSTRAINT tasks_fit CHECK (kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms),
    CONSTRAINT tasks_hold CHECK ((run_token IS NULL) = (running_until IS NULL)),
    CONSTRAINT tasks_owner CHECK ((owner_type = '') = (owner_id = '')),
    CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name),
    CONSTRAINT tasks_paused CHECK (paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')),
    CONSTRAINT tasks_schedule CHECK (CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END),
    CONSTRAINT tasks_waiting CHECK (array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000 AND coalesce(array_lower(waiting, 1), 1) = 1 AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting))
);
CREATE INDEX tasks_alarm_at ON tasks (alarm_at) WHERE alarm_at IS NOT NULL;
CREATE INDEX tasks_alone ON tasks (alone_until) WHERE alone_until IS NOT NULL;
CREATE INDEX tasks_at_gate ON tasks (pause_id, next_run) WHERE pause_id IS NOT NULL;
CREATE INDEX tasks_cause ON tasks (cause, id) WHERE cause <> '' AND enabled AND owner_active AND (paused_by IS NULL OR paused_by = 'ticker');
CREATE INDEX tasks_done_once ON tasks (id) WHERE kind = 'once' AND remove AND next_run IS NULL;
CREATE INDEX tasks_due ON tasks (next_run, id) WHERE enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL AND next_run IS NOT NULL AND limits IS NULL;
CREATE INDEX tasks_due_limited ON tasks (next_run, id) WHERE enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL AND next_run IS NOT NULL AND limits IS NOT NULL;
CREATE INDEX tasks_failing ON tasks (failures DESC, id) WHERE failures > 0;
CREATE INDEX tasks_function ON tasks (function, queue, (enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL));
CREATE INDEX tasks_inactive ON tasks (id) WHERE NOT enabled OR NOT owner_active;
CREATE INDEX tasks_paused ON tasks (id) WHERE paused_by IS NOT NULL OR pause_id IS NOT NULL;
CREATE INDEX tasks_paused_until ON tasks (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX tasks_waiting_limited ON tasks (id) WHERE waiting <> '{}' AND limits IS NOT NULL;
CREATE INDEX tasks_waiting_oldest ON tasks (id) WHERE waiting <> '{}';
CREATE TABLE templates (
    owner_type ticker_named NOT NULL,
    name ticker_named NOT NULL,
    task ticker_template NOT NULL,
    PRIMARY KEY (owner_type, name)
);
CREATE TABLE tickers (
    id UUID NOT NULL,
    host TEXT DEFAULT '' NOT NULL,
    pid INTEGER NOT NULL,
    started_at ticker_moment NOT NULL,
    last_tick_at ticker_moment,
    last_report ticker_object DEFAULT '{}' NOT NULL,
    seen_at ticker_moment,
    failure ticker_prose DEFAULT '' NOT NULL,
    failing_since ticker_moment,
    PRIMARY KEY (id),
    CONSTRAINT tickers_failure CHECK ((failure = '') = (failing_since IS NULL))
);
ALTER TABLE slots SET (fillfactor = 50);
ALTER TABLE tasks SET (fillfactor = 85);
