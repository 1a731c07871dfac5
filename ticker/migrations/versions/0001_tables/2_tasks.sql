-- What to run, how often, for which owner, and the state of each task.
CREATE TABLE tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    guid uuid DEFAULT gen_random_uuid() NOT NULL,

    -- What to run, and for which owner. Empty strings mean no owner.
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

    -- Whether the task may run: three facts with separate writers.
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

    -- Written by the start of a run.
    last_run ticker_moment,
    last_occurrence ticker_moment,
    run_token uuid,
    running_until ticker_moment,

    -- Written by the end of a run that still has its token.
    cursor ticker_readable,
    last_run_id bigint,
    last_outcome ticker_outcome,
    last_ended_at ticker_moment,
    last_success_at ticker_moment,
    last_worked_at ticker_moment,
    failures ticker_count DEFAULT 0 NOT NULL,

    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,

    -- The bounds of the schedule, what happens to missed times, and whether a task for a single time is deleted after its success.
    starts_at ticker_moment,
    ends_at ticker_moment,
    max_runs ticker_max_runs,
    started ticker_started DEFAULT 0 NOT NULL,
    catch_up ticker_catch_up DEFAULT 'one' NOT NULL,
    remove boolean DEFAULT false NOT NULL,

    -- What happens to an occurrence while another job of its task waits or runs, and after it fails.
    overlap ticker_overlap DEFAULT 'queue' NOT NULL,
    retries ticker_retries DEFAULT 0 NOT NULL,
    backoff ticker_short DEFAULT '10s..5m' NOT NULL,

    -- What happens to a task that keeps failing: its longest and its current interval, when it is paused, and when it is probed.
    stretch_ms ticker_span,
    stretched_ms ticker_span,
    pause_after ticker_limit,
    probe_ms ticker_span,

    -- Alerts: the number of intervals without a success, the time of the next check, and what was notified last.
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

    -- Whether the task has its own phase.
    spread boolean DEFAULT false NOT NULL,

    -- The ids of jobs that carry waiting occurrences together with those of other tasks, by occurrence in microseconds
    -- since 1970.
    batch_jobs ticker_batch_jobs,

    -- The window of a spread task after each of its times, and its phase in that window. An interval task has no
    -- `within_ms`: its window is the interval.
    within_ms ticker_span,
    phase_ms bigint GENERATED ALWAYS AS (  -- 28 bits of a hash: with an interval of at most 2^35 ms, a bigint is enough
        CASE WHEN spread THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint
            * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END) STORED,

    -- The time until which the task runs alone in its job, or with other suspects, up to `share` of them. The end of
    -- the year 9999 means: until one of its runs has ended.
    alone_until ticker_moment,
    share ticker_batch,

    -- One or two different keys, whose limits the task shares with other tasks.
    limits ticker_keys,

    -- The upper bound of an elastic interval, whose lower bound is `every_ms`, and the interval in force, if it is
    -- longer than the lower bound. The `next_run` that a run asked for (`run.again`).
    every_most_ms ticker_span,
    pace_ms ticker_span,
    again_at ticker_moment,

    -- The pause for which the due task waits. An occurrence whose job ended before it could start, and why: it is the
    -- next run again, and is pushed after `push_after`. The hours of the day, and the days of the week, in which the
    -- task is due ('' for always).
    pause_id bigint,
    returned ticker_moment,
    wait_reason ticker_short,
    during ticker_short DEFAULT '' NOT NULL,

    -- The event that counts the occurrences that were not pushed, while none of the task's occurrences is pushed.
    unpushed_event bigint,

    CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name),
    CONSTRAINT tasks_owner CHECK ((owner_type = '') = (owner_id = '')),
    CONSTRAINT tasks_schedule CHECK (
        CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END),
    -- Two runs of a task never overlap: one is dead before the next may start.
    CONSTRAINT tasks_fit CHECK (kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms),
    CONSTRAINT tasks_elastic CHECK ((every_most_ms IS NULL OR kind = 'interval' AND every_most_ms > every_ms)
        AND (pace_ms IS NULL OR coalesce(pace_ms BETWEEN every_ms AND every_most_ms, false))),
    CONSTRAINT tasks_during CHECK (during = '' OR kind = 'interval'),
    CONSTRAINT tasks_bounds CHECK (starts_at <= ends_at),
    CONSTRAINT tasks_hold CHECK ((run_token IS NULL) = (running_until IS NULL)),
    CONSTRAINT tasks_paused CHECK (paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')),
    CONSTRAINT tasks_waiting CHECK (
        array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000
        AND coalesce(array_lower(waiting, 1), 1) = 1
        AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND '9999-12-31T00:00:00Z' >= ALL (waiting))
)
-- The end of a run touches no index. If the page has room, PostgreSQL writes the row's new version next to the old one
-- (HOT). That saves a third of all WAL. Autovacuum's defaults are enough.
WITH (fillfactor = 85);

-- The due query: a range on next_run, oldest first. With 1,000 due of 200,000 rows, the first row takes 0.06 ms.
-- Without the index, it takes a scan of the table (tests/db/test_indexes.py checks the plans). Due tasks that wait for
-- a pause are not in it. Tasks with limits have an index of their own, so that what is blocked delays nothing else.
CREATE INDEX tasks_due ON tasks (next_run, id)
    WHERE enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL AND next_run IS NOT NULL
        AND limits IS NULL;
CREATE INDEX tasks_due_limited ON tasks (next_run, id)
    WHERE enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL AND next_run IS NOT NULL
        AND limits IS NOT NULL;
CREATE INDEX tasks_withheld ON tasks (pause_id, next_run) WHERE pause_id IS NOT NULL;

-- The sweep: occurrences that were pushed and have not started. Empty while workers keep up.
CREATE INDEX tasks_waiting_oldest ON tasks (id) WHERE waiting <> '{}';

-- The room of a key: what was pushed and has not started will take it.
CREATE INDEX tasks_waiting_limited ON tasks (id) WHERE waiting <> '{}' AND limits IS NOT NULL;

-- For the tick, which counts guilty tasks by function. Nearly always empty.
CREATE INDEX tasks_alone ON tasks (alone_until) WHERE alone_until IS NOT NULL;

-- For the names of all functions of tasks: one look-up for each name, however many tasks there are. Another tells
-- whether a function has runnable tasks in a queue.
CREATE INDEX tasks_function
    ON tasks (function, queue, (enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL));

-- The sweep: tasks for a single time that has passed, which are to be removed. Nearly always empty.
CREATE INDEX tasks_done_once ON tasks (id) WHERE kind = 'once' AND remove AND next_run IS NULL;

-- The sweep: when to check whether a task has had a success.
CREATE INDEX tasks_alarm_at ON tasks (alarm_at) WHERE alarm_at IS NOT NULL;

-- The sweep: pauses that end by themselves. Nearly always empty.
CREATE INDEX tasks_paused_until ON tasks (paused_until) WHERE paused_until IS NOT NULL;

-- For people, among a million tasks: tasks that fail, most failures first, and tasks that do not run. Small if all is
-- well. Runs rarely touch them: `failures` changes only with a failure, and with the success after it.
CREATE INDEX tasks_failing ON tasks (failures DESC, id) WHERE failures > 0;
CREATE INDEX tasks_paused ON tasks (id) WHERE paused_by IS NOT NULL OR pause_id IS NOT NULL;
CREATE INDEX tasks_inactive ON tasks (id) WHERE NOT enabled OR NOT owner_active;
