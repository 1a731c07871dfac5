-- Everything that ticker keeps in its schema. The search_path finds bare names in that schema. The words in braces are replaced
-- by the schema's quoted name and by TICKER_ENVIRONMENT.
--
-- The database enforces the rules, too, so that a row edited by hand cannot break them. A rule about one value is a domain,
-- which PostgreSQL checks when the value changes. A rule between columns is a CHECK, which it checks for each row that is
-- written. With CHECKs alone, a start and its end took 1.7 times as long. Durations are whole milliseconds. Times are finite.


-- ------------------------------------------------------------------------------------------------------------- domains

-- Texts.
CREATE DOMAIN ticker_plain AS text CHECK (length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN ticker_named AS text CHECK (VALUE <> '' AND length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN ticker_short AS text CHECK (length(VALUE) <= 200);
CREATE DOMAIN ticker_prose AS text CHECK (length(VALUE) <= 2000);
CREATE DOMAIN ticker_words AS text CHECK (length(VALUE) <= 10000);
CREATE DOMAIN ticker_output AS text CHECK (length(VALUE) <= 100000);

-- Times.
CREATE DOMAIN ticker_moment AS timestamptz CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z');
CREATE DOMAIN ticker_duration AS bigint CHECK (VALUE BETWEEN 0 AND 31622400000);
CREATE DOMAIN ticker_span AS bigint CHECK (VALUE BETWEEN 1000 AND 31622400000);
CREATE DOMAIN ticker_box AS bigint CHECK (VALUE BETWEEN 100 AND 31622400000);
CREATE DOMAIN ticker_grace AS bigint CHECK (VALUE BETWEEN 1 AND 1000);
-- Microseconds of less than a hundred years, so that no difference overflows.
CREATE DOMAIN ticker_uptime AS bigint CHECK (VALUE BETWEEN 0 AND 3153600000000000);

-- Numbers.
CREATE DOMAIN ticker_count AS integer CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE DOMAIN ticker_limit AS integer CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN ticker_intervals AS integer CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN ticker_max_runs AS integer CHECK (VALUE BETWEEN 1 AND 1000000000);
CREATE DOMAIN ticker_started AS integer CHECK (VALUE >= 0);
CREATE DOMAIN ticker_total AS bigint CHECK (VALUE BETWEEN 0 AND 1000000000000000);
CREATE DOMAIN ticker_retries AS integer CHECK (VALUE BETWEEN 0 AND 100);
CREATE DOMAIN ticker_priority AS integer CHECK (VALUE BETWEEN -1000 AND 1000);
CREATE DOMAIN ticker_batch AS integer CHECK (VALUE BETWEEN 1 AND 100);

-- Words.
CREATE DOMAIN ticker_kind AS text CHECK (VALUE IN ('interval', 'cron', 'calendar', 'once'));
CREATE DOMAIN ticker_catch_up AS text CHECK (VALUE IN ('one', 'none'));
CREATE DOMAIN ticker_overlap AS text CHECK (VALUE IN ('queue', 'skip'));
CREATE DOMAIN ticker_keep AS text CHECK (VALUE IN ('all', 'problems', 'none'));
CREATE DOMAIN ticker_told AS text CHECK (VALUE IN ('', 'failed'));
CREATE DOMAIN ticker_run_kind AS text CHECK (VALUE IN ('scheduled', 'manual', 'retry', 'piece'));
CREATE DOMAIN ticker_state AS text CHECK (VALUE IN ('planned', 'pushed', 'running', 'processing', 'ended'));
CREATE DOMAIN ticker_outcome AS text CHECK (VALUE IN (
    'succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'dropped'));
CREATE DOMAIN ticker_what AS text CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted'));

-- JSON that Python can read: not nested too deeply, and without numbers that do not fit a double (such as 1e5000). One row that
-- cannot be read would break every query that returns it with others. A short text has neither problem, so its length is
-- checked first. `registered` holds the arguments one level deeper.
CREATE DOMAIN ticker_object AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'))));
CREATE DOMAIN ticker_registered AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 262144
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'))));
CREATE DOMAIN ticker_readable AS jsonb CHECK (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')));
CREATE DOMAIN ticker_template AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 524288);
-- An object of texts, without nested values or numbers: the job id of each of up to 10,000 waiting occurrences.
CREATE DOMAIN ticker_batch_jobs AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 1048576
    AND NOT jsonb_path_exists(VALUE, '$.* ? (@.type() != "string")'));


-- --------------------------------------------------------------------------------------------------------------- tasks

CREATE TABLE tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    guid uuid DEFAULT gen_random_uuid() NOT NULL,

    -- What to run, and for which owner. An empty owner is no owner.
    owner_type ticker_plain DEFAULT '' NOT NULL,
    owner_id ticker_plain DEFAULT '' NOT NULL,
    name ticker_named NOT NULL,
    function ticker_named NOT NULL,
    kwargs ticker_object DEFAULT '{}' NOT NULL,
    registered ticker_registered DEFAULT '{}' NOT NULL,
    declared_in ticker_prose DEFAULT '' NOT NULL,

    -- The schedule.
    kind ticker_kind NOT NULL,
    expression ticker_prose DEFAULT '' NOT NULL,
    zone ticker_prose DEFAULT 'UTC' NOT NULL,
    every_ms ticker_duration DEFAULT 0 NOT NULL,
    tolerance_ms ticker_duration DEFAULT 0 NOT NULL,
    box_ms ticker_box NOT NULL,
    grace_ms ticker_grace NOT NULL,

    -- The queue, and texts for people.
    queue ticker_named NOT NULL,
    subject ticker_prose DEFAULT '' NOT NULL,
    description ticker_prose DEFAULT '' NOT NULL,
    metadata ticker_object DEFAULT '{}' NOT NULL,

    -- Three facts with separate writers.
    enabled boolean DEFAULT true NOT NULL,
    owner_active boolean DEFAULT true NOT NULL,
    paused_by ticker_prose,
    paused_reason ticker_prose DEFAULT '' NOT NULL,
    paused_until ticker_moment,

    -- Written by the ticker.
    next_run ticker_moment,
    waiting timestamptz[] DEFAULT '{}' NOT NULL,
    push_after ticker_moment,
    push_errors ticker_count DEFAULT 0 NOT NULL,
    push_error ticker_prose DEFAULT '' NOT NULL,

    -- Written by the start.
    last_run ticker_moment,
    last_occurrence ticker_moment,
    run_token uuid,
    running_until ticker_moment,

    -- Written by the fenced end.
    cursor ticker_readable,
    last_run_id bigint,
    last_outcome ticker_outcome,
    last_ended_at ticker_moment,
    last_success_at ticker_moment,
    last_worked_at ticker_moment,
    failures ticker_count DEFAULT 0 NOT NULL,

    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,

    -- The schedule's bounds, what becomes of missed times, and whether a single run that succeeded is removed.
    starts_at ticker_moment,
    ends_at ticker_moment,
    max_runs ticker_max_runs,
    started ticker_started DEFAULT 0 NOT NULL,
    catch_up ticker_catch_up DEFAULT 'one' NOT NULL,
    remove boolean DEFAULT false NOT NULL,

    -- What becomes of an occurrence that meets a job of its task, or fails.
    overlap ticker_overlap DEFAULT 'queue' NOT NULL,
    retries ticker_retries DEFAULT 0 NOT NULL,
    backoff ticker_short DEFAULT '10s..5m' NOT NULL,

    -- What becomes of a task that keeps failing: its longest and its present interval; a pause and its end.
    stretch_ms ticker_span,
    stretched_ms ticker_span,
    pause_after ticker_limit,
    probe_ms ticker_span,

    -- Alerts: after how many intervals without a success, when to check next, and what was notified last.
    dead_man ticker_intervals,
    alarm_at ticker_moment,
    told ticker_told DEFAULT '' NOT NULL,
    resumed_at ticker_moment,

    -- Fairness among submitters and groups, and which records are kept.
    submitter ticker_plain DEFAULT '' NOT NULL,
    group_name ticker_plain DEFAULT '' NOT NULL,
    priority ticker_priority DEFAULT 0 NOT NULL,
    keep ticker_keep DEFAULT 'all' NOT NULL,

    -- Counts of all its runs, whether their rows are kept or not.
    succeeded ticker_total DEFAULT 0 NOT NULL,
    failed ticker_total DEFAULT 0 NOT NULL,
    dropped ticker_total DEFAULT 0 NOT NULL,

    -- Whether the task has a phase of its own.
    spread boolean DEFAULT false NOT NULL,

    -- The ids of jobs that carry waiting occurrences together with those of other tasks, by occurrence in microseconds
    -- since 1970.
    batch_jobs ticker_batch_jobs,

    -- The window after each time of a spread task (for an interval task, the interval), and the task's phase in it: 28 bits
    -- of a hash, as a fraction. An interval is at most 2^35 ms, and a bigint has 63 bits.
    within_ms ticker_span,
    phase_ms bigint GENERATED ALWAYS AS (
        CASE WHEN spread THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint
            * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END) STORED,

    CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name),
    CONSTRAINT tasks_owner CHECK ((owner_type = '') = (owner_id = '')),
    CONSTRAINT tasks_schedule CHECK (
        CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END),
    -- Two runs of a task never overlap: one is dead before the next may start.
    CONSTRAINT tasks_fit CHECK (kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms),
    CONSTRAINT tasks_bounds CHECK (starts_at <= ends_at),
    CONSTRAINT tasks_hold CHECK ((run_token IS NULL) = (running_until IS NULL)),
    CONSTRAINT tasks_paused CHECK (paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')),
    CONSTRAINT tasks_waiting CHECK (
        array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000
        AND coalesce(array_lower(waiting, 1), 1) = 1
        AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting))
)
-- The end of a run touches no index. If the page has room, PostgreSQL writes the row's new version next to the old one (HOT).
-- That saves a third of all WAL (python -m tests.bench table). Autovacuum's defaults are enough.
WITH (fillfactor = 85);

-- The due query: a range on next_run, oldest first. With 1,000 due of 200,000 rows, the first row takes 0.06 ms. Without the
-- index, it takes a scan of the table (tests/db/test_indexes.py checks the plans).
CREATE INDEX tasks_due ON tasks (next_run)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL;

-- The sweep: occurrences that were pushed and have not started. Empty while workers keep up.
CREATE INDEX tasks_waiting_oldest ON tasks (id) WHERE waiting <> '{}';

-- The sweep: tasks for a single time that has passed, which are to be removed. Nearly always empty.
CREATE INDEX tasks_done_once ON tasks (id) WHERE kind = 'once' AND remove AND next_run IS NULL;

-- The sweep: when to check whether a task has had a success.
CREATE INDEX tasks_alarm_at ON tasks (alarm_at) WHERE alarm_at IS NOT NULL;

-- The sweep: pauses that end by themselves. Nearly always empty.
CREATE INDEX tasks_paused_until ON tasks (paused_until) WHERE paused_until IS NOT NULL;

-- For people, among a million tasks: tasks that fail, most failures first, and tasks that do not run. Small if all is well.
-- Runs rarely touch them: `failures` changes only with a failure, and with the success after it.
CREATE INDEX tasks_failing ON tasks (failures DESC, id) WHERE failures > 0;
CREATE INDEX tasks_paused ON tasks (id) WHERE paused_by IS NOT NULL;
CREATE INDEX tasks_inactive ON tasks (id) WHERE NOT enabled OR NOT owner_active;


-- ---------------------------------------------------------------------------------------------------------------- runs

-- Runs of every kind, and drops. There is no foreign key: the record outlives its task.
CREATE TABLE runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id bigint NOT NULL,
    task_name ticker_short DEFAULT '' NOT NULL,
    function ticker_short DEFAULT '' NOT NULL,
    owner_type ticker_short DEFAULT '' NOT NULL,
    owner_id ticker_short DEFAULT '' NOT NULL,
    kind ticker_run_kind NOT NULL,
    parent_id bigint,
    item ticker_readable,
    occurrence ticker_moment,
    attempt integer DEFAULT 1 NOT NULL,

    state ticker_state NOT NULL,
    outcome ticker_outcome,
    reason ticker_prose DEFAULT '' NOT NULL,
    token uuid,
    due_at ticker_moment,
    pushed_at ticker_moment,
    started_at ticker_moment,
    until ticker_moment,
    boot ticker_short,
    uptime_us ticker_uptime,
    ended_at ticker_moment,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,

    -- The numbers by which the start was judged.
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
    pid integer,
    job_id ticker_prose DEFAULT '' NOT NULL,

    -- Whether the end leads to something more and no tick has handled it yet; whether a retry followed; how many pieces of
    -- work the run made.
    follow_up boolean DEFAULT false NOT NULL,
    retried boolean DEFAULT false NOT NULL,
    pieces integer,

    CONSTRAINT runs_ended CHECK ((state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
    CONSTRAINT runs_dropped CHECK (outcome <> 'dropped' OR reason <> ''),
    CONSTRAINT runs_planned CHECK (state <> 'planned' OR due_at IS NOT NULL),
    CONSTRAINT runs_running CHECK (
        state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)),
    CONSTRAINT runs_uptime CHECK ((boot IS NULL) = (uptime_us IS NULL)),
    CONSTRAINT runs_piece CHECK (kind <> 'piece' OR parent_id IS NOT NULL),
    CONSTRAINT runs_occurrence CHECK (kind <> 'scheduled' OR occurrence IS NOT NULL)
);

-- One record for each occurrence, whatever became of it. A job that is delivered again finds it.
CREATE UNIQUE INDEX runs_one_record ON runs (task_id, occurrence) WHERE kind = 'scheduled';

-- For people: the last runs of a task, and separately its retries and pieces, because one run may have a million of them. Each
-- row is in one of the two indexes.
CREATE INDEX runs_of_task ON runs (task_id, id) WHERE kind IN ('scheduled', 'manual');
CREATE INDEX runs_further ON runs (task_id, id) WHERE kind IN ('retry', 'piece');

-- The ticker: planned runs that are due, and the first attempts of pieces, which it pushes run by run in turn.
CREATE INDEX runs_planned ON runs (due_at) WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1);
CREATE INDEX runs_planned_pieces ON runs (parent_id, id) WHERE state = 'planned' AND kind = 'piece' AND attempt = 1;

-- The sweep: runs that were pushed, and those past their limit.
CREATE INDEX runs_pushed ON runs (id) WHERE state = 'pushed';
CREATE INDEX runs_running_until ON runs (until) WHERE state = 'running';

-- The worker: the record of a dead work-horse, by its token.
CREATE INDEX runs_running_token ON runs (token) WHERE state = 'running';

-- Deletion: the task's unstarted runs.
CREATE INDEX runs_unstarted ON runs (task_id) WHERE state IN ('planned', 'pushed');

-- The ticker: ends that it has to handle; runs whose pieces are not done, and the open pieces of each.
CREATE INDEX runs_follow_up ON runs (id) WHERE follow_up;
CREATE INDEX runs_processing ON runs (id) WHERE state = 'processing';
CREATE INDEX runs_open_pieces ON runs (parent_id) WHERE kind = 'piece' AND (state <> 'ended' OR follow_up);

-- The pieces and retries of a run.
CREATE INDEX runs_of_parent ON runs (parent_id) WHERE parent_id IS NOT NULL;

-- The journal: the last ends with an outcome; the last drops for a reason, with the columns by which drops are counted (each
-- row is in one of the two); and both for an owner, whose tasks may be gone. The owner's type comes first, because there are
-- few types. So no query reads the rows of others. Only ended rows have an outcome, because a run is written twice.
CREATE INDEX runs_by_outcome ON runs (owner_type, outcome, ended_at) WHERE outcome <> 'dropped';
CREATE INDEX runs_by_reason ON runs (owner_type, reason, ended_at) INCLUDE (id, task_id, function, owner_id)
    WHERE outcome = 'dropped';
CREATE INDEX runs_by_owner ON runs (owner_type, owner_id, ended_at) WHERE owner_type <> '' AND ended_at IS NOT NULL;

-- Returns the record of an occurrence. VOLATILE, so that each call sees everything that was committed before it.
CREATE FUNCTION record_of(task bigint, at timestamptz) RETURNS bigint LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT id FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled';
END;

-- Returns an occurrence in the form that it has in job ids.
CREATE FUNCTION micros(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM at) * 1000000)::bigint::text;


-- -------------------------------------------------------------------------------------------------------------- events

-- What happened to a task apart from its runs, such as who paused it, and since when it has failed. Events outlive their task.
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    task_id bigint NOT NULL,
    task_name ticker_short DEFAULT '' NOT NULL,
    function ticker_short DEFAULT '' NOT NULL,
    owner_type ticker_short DEFAULT '' NOT NULL,
    owner_id ticker_short DEFAULT '' NOT NULL,
    what ticker_what NOT NULL,
    by ticker_prose DEFAULT '' NOT NULL,
    words ticker_words DEFAULT '' NOT NULL,
    run_id bigint,
    told boolean DEFAULT false NOT NULL
);

-- The events of a task.
CREATE INDEX events_of_task ON events (task_id, id);

-- The journal: the last events.
CREATE INDEX events_at ON events (at);

-- The ticker: events that have not been notified yet.
CREATE INDEX events_untold ON events (id) WHERE NOT told;

-- Three of the next triggers record all changes of `tasks`, including those by raw SQL. Each of their functions names its schema.
-- If it wrote to the schema of its trigger's table, it could be made to write anywhere, with its definer's rights. pg_temp
-- comes last in their search_path, because otherwise a caller's temporary objects would be found first. The author is the one
-- given to an operation (ticker.by), or else the user of the session.

-- Records pauses, switches and resumptions, and since when successes are expected again. The author of a pause is in the
-- task's row.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE event text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed'
            WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
    WHEN NEW.enabled <> OLD.enabled THEN CASE WHEN NEW.enabled THEN 'enabled' ELSE 'disabled' END
    WHEN NEW.owner_active THEN 'owner_active' ELSE 'owner_inactive' END;
    is_pause boolean := event IN ('paused', 'auto_paused');
BEGIN
    IF NEW.enabled AND NEW.owner_active AND NEW.paused_by IS NULL THEN
        NEW.resumed_at := clock_timestamp();
    END IF;
    -- that it pauses itself once more is no news, until it has worked again
    INSERT INTO {schema}.events (task_id, task_name, function, owner_type, owner_id, what, by, words, told)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, event,
        CASE WHEN is_pause THEN coalesce(NEW.paused_by, '')
            ELSE left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200) END,
        CASE WHEN event = 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, ''))
            WHEN is_pause THEN NEW.paused_reason ELSE '' END,
        event = 'auto_paused' AND EXISTS (SELECT FROM {schema}.events e WHERE e.task_id = NEW.id AND e.what = event
            AND e.id > coalesce((SELECT max(id) FROM {schema}.events WHERE task_id = NEW.id AND what = 'recovered'), 0));
    RETURN NEW;
END $$;

CREATE TRIGGER tasks_note_change BEFORE UPDATE OF enabled, owner_active, paused_by ON tasks FOR EACH ROW
WHEN (NEW.enabled IS DISTINCT FROM OLD.enabled OR NEW.owner_active IS DISTINCT FROM OLD.owner_active
      OR NEW.paused_by IS DISTINCT FROM OLD.paused_by)
EXECUTE FUNCTION note_change();

-- Skips a task whose owner does not exist, and otherwise sets `owner_active`. If the rows of a table are owners of this type,
-- `owners` has made a guard for them: a function that returns whether the owner is active, or NULL if there is none. A guard must
-- be SECURITY DEFINER. Otherwise, a role that may create functions here could run one with the rights of this function.
CREATE FUNCTION guard_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE guard text := (SELECT proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace AND prosecdef
    AND pronargs = 1 AND proargtypes[0] = 'text'::regtype AND proname = 'owner_guard_' || left(encode(sha256(convert_to(NEW.owner_type, 'UTF8')), 'hex'), 32));
BEGIN
    IF guard IS NOT NULL THEN
        EXECUTE format('SELECT {schema}.%I($1)', guard) INTO NEW.owner_active USING NEW.owner_id::text;
        IF NEW.owner_active IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER tasks_guard_owner BEFORE INSERT OR UPDATE OF owner_type, owner_id ON tasks FOR EACH ROW
WHEN (NEW.owner_type <> '') EXECUTE FUNCTION guard_owner();

-- Records the old and the new value of each edited field. Arguments and metadata may hold secrets: for them, it records only
-- that they changed. `told` is true, since edits and deletions are not notified.
CREATE FUNCTION note_edit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE before jsonb := to_jsonb(OLD); after jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO {schema}.events (task_id, task_name, function, owner_type, owner_id, what, by, told, words)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, 'edited',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true,
        string_agg(CASE WHEN field IN ('kwargs', 'metadata') THEN field || ' changed' ELSE
            regexp_replace(field, '_(ms|at|name)$', '') || ': ' || (SELECT string_agg(coalesce(nullif(CASE
                WHEN field NOT LIKE '%\_ms' THEN left(v, 60) || CASE WHEN length(v) > 60 THEN '…' ELSE '' END
                ELSE concat(nullif(v::bigint / 86400000, 0) || 'd', nullif(v::bigint / 3600000 % 24, 0) || 'h',
                    nullif(v::bigint / 60000 % 60, 0) || 'm', nullif(v::bigint / 1000 % 60, 0) || 's',
                    nullif(v::bigint % 1000, 0) || 'ms') END, ''), 'none'), ' -> ' ORDER BY m)
            FROM (VALUES (1, before ->> field), (2, after ->> field)) AS one (m, v)) END, ', ' ORDER BY n)
    FROM unnest(ARRAY[
        'function', 'kwargs', 'kind', 'expression', 'zone', 'every_ms', 'tolerance_ms', 'box_ms', 'queue', 'starts_at',
        'ends_at', 'max_runs', 'catch_up', 'remove', 'overlap', 'retries', 'backoff', 'stretch_ms', 'pause_after',
        'probe_ms', 'dead_man', 'keep', 'submitter', 'group_name', 'priority', 'spread', 'subject', 'description',
        'metadata', 'within_ms'
    ]) WITH ORDINALITY AS f (field, n) WHERE before -> field <> after -> field;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_note_edit AFTER UPDATE OF
    function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs, catch_up,
    remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name, priority,
    spread, subject, description, metadata, within_ms
ON tasks FOR EACH ROW WHEN (ROW(
    OLD.function, OLD.kwargs, OLD.kind, OLD.expression, OLD.zone, OLD.every_ms, OLD.tolerance_ms, OLD.box_ms, OLD.queue,
    OLD.starts_at, OLD.ends_at, OLD.max_runs, OLD.catch_up, OLD.remove, OLD.overlap, OLD.retries, OLD.backoff,
    OLD.stretch_ms, OLD.pause_after, OLD.probe_ms, OLD.dead_man, OLD.keep, OLD.submitter, OLD.group_name, OLD.priority,
    OLD.spread, OLD.subject, OLD.description, OLD.metadata, OLD.within_ms
) IS DISTINCT FROM ROW(
    NEW.function, NEW.kwargs, NEW.kind, NEW.expression, NEW.zone, NEW.every_ms, NEW.tolerance_ms, NEW.box_ms, NEW.queue,
    NEW.starts_at, NEW.ends_at, NEW.max_runs, NEW.catch_up, NEW.remove, NEW.overlap, NEW.retries, NEW.backoff,
    NEW.stretch_ms, NEW.pause_after, NEW.probe_ms, NEW.dead_man, NEW.keep, NEW.submitter, NEW.group_name, NEW.priority,
    NEW.spread, NEW.subject, NEW.description, NEW.metadata, NEW.within_ms
)) EXECUTE FUNCTION note_edit();

-- Records a deletion. Waiting occurrences end with their task, and runs continue. Planned pieces, of which there may be a
-- million, are left to ticks (drop_orphaned_plans), because ending them here would exceed the statement timeout. Sequential
-- scans are off, because a plan cached for a deletion of many tasks would read all runs for a single one.
CREATE FUNCTION note_deletion() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, told)
    SELECT now, id, name, function, owner_type, owner_id, 'deleted',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true
    FROM gone ORDER BY id;
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason,
        ended_at, created_at)
    SELECT id, name, function, owner_type, owner_id, 'scheduled', occurrence, 'ended', 'dropped', 'gone', now, now
    FROM gone, unnest(waiting) AS occurrence ORDER BY occurrence, id ON CONFLICT DO NOTHING;
    UPDATE {schema}.runs SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = now
    WHERE state IN ('planned', 'pushed') AND id = ANY (ARRAY(SELECT r.id FROM gone g, LATERAL (
        SELECT id FROM {schema}.runs WHERE task_id = g.id AND state IN ('planned', 'pushed')
            AND NOT (kind = 'piece' AND attempt = 1 AND state = 'planned') OFFSET 0) r));
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_note_deletion AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_deletion();

-- Otherwise any role could use these functions in triggers on its own tables, with the rights of the schema's owner.
REVOKE ALL ON FUNCTION note_change(), guard_owner(), note_edit(), note_deletion() FROM PUBLIC;

-- One event on its way through one channel (log, webhook, mail, ...), until it is delivered.
CREATE TABLE notices (
    event_id bigint NOT NULL,
    channel text NOT NULL,
    due_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    error text DEFAULT '' NOT NULL,
    PRIMARY KEY (event_id, channel)
);

-- The ticker: notices that are due.
CREATE INDEX notices_due ON notices (due_at);


-- ----------------------------------------------------------------------------------- owners, workers, tickers, the mark

-- The default tasks of a type of owner, as columns of a task. From them, a trigger makes the tasks of a new owner.
CREATE TABLE templates (
    owner_type ticker_named NOT NULL,
    name ticker_named NOT NULL,
    task ticker_template NOT NULL,
    PRIMARY KEY (owner_type, name)
);

-- What workers have announced: the functions that they know, and how many tasks of each function one job may carry. Without
-- `announced_at`, only an application has declared the function.
CREATE TABLE functions (
    name ticker_named PRIMARY KEY,
    batch ticker_batch DEFAULT 1 NOT NULL,
    announced_at ticker_moment
);

-- One row per ticker process: its heartbeat.
CREATE TABLE tickers (
    id uuid PRIMARY KEY,
    host text DEFAULT '' NOT NULL,
    pid integer NOT NULL,
    started_at ticker_moment NOT NULL,
    last_tick_at ticker_moment,
    last_report ticker_object DEFAULT '{}' NOT NULL
);

-- The installation to which the tables belong. Its mark survives the promotion of a standby, but not a dump or a copy.
CREATE TABLE installation (
    single boolean DEFAULT true PRIMARY KEY,
    id text DEFAULT left(gen_random_uuid()::text, 8) NOT NULL,
    system_identifier bigint,
    database_oid oid NOT NULL,
    marker_oid oid NOT NULL,
    environment ticker_plain DEFAULT '' NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    adopted_at ticker_moment,
    CONSTRAINT installation_single CHECK (single),
    CONSTRAINT installation_id CHECK (id ~ '^[a-z0-9]{8}$')
);

-- A role may lack the right to read it, and the server checks that before it evaluates a CASE. Then the mark is the two oids.
CREATE FUNCTION cluster_identifier() RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$;

INSERT INTO installation (system_identifier, database_oid, marker_oid, environment)
SELECT cluster_identifier(), d.oid, 'installation'::regclass, '{environment}'
FROM pg_database d WHERE d.datname = current_database();
