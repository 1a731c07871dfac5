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

    -- The values by which the start was decided. `checked_at` is null for a run that started: it was decided at `started_at`.
    checked_last_run ticker_moment,
    checked_at ticker_moment,
    every_ms ticker_duration,
    tolerance_ms ticker_duration,

    -- What the function returned and printed, and where it ran.
    result ticker_readable,
    output ticker_output DEFAULT '' NOT NULL,
    error_output ticker_output DEFAULT '' NOT NULL,
    traceback ticker_output DEFAULT '' NOT NULL,
    worker ticker_prose DEFAULT '' NOT NULL,
    host ticker_short DEFAULT '' NOT NULL,
    pid integer,
    job_id ticker_prose DEFAULT '' NOT NULL,

    -- Whether the end needs a follow-up that no tick has made yet, whether a retry followed, and how many pieces the run
    -- created.
    follow_up boolean DEFAULT false NOT NULL,
    retried boolean DEFAULT false NOT NULL,
    pieces integer,

    -- Who first requested to stop the run, and when. A tick stops it.
    stop_requested_by ticker_short,
    stop_requested_at ticker_moment,

    -- The queue of the run.
    queue ticker_short DEFAULT '' NOT NULL,

    -- The trace context in which a manual run was requested, as W3C's `traceparent`; its retries and pieces have it,
    -- too.
    traceparent ticker_short,

    CONSTRAINT runs_ended CHECK (
        (state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)),
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

-- For people: the last runs of a task, and separately its retries and pieces, because one run may have a million of
-- them. Each row is in one of the two indexes.
CREATE INDEX runs_of_task ON runs (task_id, id) WHERE kind IN ('scheduled', 'manual');
CREATE INDEX runs_further ON runs (task_id, id) WHERE kind IN ('retry', 'piece');

-- The ticker: planned runs that are due, and the first attempts of pieces, which it pushes run by run in turn.
CREATE INDEX runs_planned ON runs (due_at) WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1);
CREATE INDEX runs_planned_pieces ON runs (parent_id, id) WHERE state = 'planned' AND kind = 'piece' AND attempt = 1;

-- The sweep: runs that were pushed.
CREATE INDEX runs_pushed ON runs (id) WHERE state = 'pushed';

-- The ticker: runs that are to be stopped. Nearly always empty.
CREATE INDEX runs_to_stop ON runs (id) WHERE stop_requested_by IS NOT NULL AND state <> 'ended';

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

-- The journal: the last ends with an outcome; the last drops for a reason, with the columns by which drops are counted
-- (each row is in one of the two); and both for an owner, whose tasks may be gone. The owner's type comes first,
-- because there are few types. So no query reads the rows of others. Only ended rows have an outcome, because a run is
-- written twice.
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
