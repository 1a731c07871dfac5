-- Every statement that writes or decides, in the order of a row's life. One purpose each.
--
-- `{schema}` is filled in once (ticker/sql.py); parameters are psycopg's, %(name)s. Each statement that decides takes
-- `now`; NULL means the database's clock, read with clock_timestamp() and never with now(), which is the start of the
-- transaction. Rows are locked FOR NO KEY UPDATE, a task before its runs, unless locked rows are skipped. least() passes
-- over NULLs, so a column that may be NULL is compared in a CASE.
--
-- The database's clock may be set; a host's uptime never is. Where the last start was made on the host that asks now
-- (`boot`), `uptime` says how long ago it was: `true_last_run`, on the clock of this instant. If that is over 1 s later
-- or 2 s earlier than `last_run` (so long may a start wait for its answer), the clock was set in between.


-- ------------------------------------------------------------------------------------------ registered and edited

-- name: instant
-- The one clock.
SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now

-- name: look_up_task
-- The row that a registration finds: when it has no news for it, it locks nothing, and a long deploy blocks no start.
SELECT * FROM {schema}.tasks
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND name = %(name)s

-- name: find_task
-- The same, locked until the transaction ends.
SELECT * FROM {schema}.tasks
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND name = %(name)s
FOR NO KEY UPDATE

-- name: insert_task
-- A new task, due at once unless `first` says otherwise. No row: another process was faster, or the owner is gone.
INSERT INTO {schema}.tasks (
    owner_type, owner_id, name, function, kwargs, registered, declared_in, kind, expression, zone,
    every_ms, tolerance_ms, box_ms, grace_ms, queue, subject, description, metadata, enabled,
    starts_at, ends_at, max_runs, catch_up, keep, next_run)
VALUES (
    %(owner_type)s, %(owner_id)s, %(name)s, %(function)s, %(kwargs)s::jsonb, %(registered)s::jsonb, %(declared_in)s,
    %(kind)s, %(expression)s, %(zone)s, %(every_ms)s, %(tolerance_ms)s, %(box_ms)s, %(grace_ms)s, %(queue)s,
    %(subject)s, %(description)s, %(metadata)s::jsonb, %(enabled)s,
    %(starts_at)s::timestamptz, %(ends_at)s::timestamptz, %(max_runs)s::integer, %(catch_up)s, %(keep)s,
    coalesce(%(first)s::timestamptz, %(now)s::timestamptz, clock_timestamp()))
ON CONFLICT (owner_type, owner_id, name) DO NOTHING
RETURNING *

-- name: change_task
-- New values for what people define. A changed interval may bring the next run nearer, never push it away; `again`: more
-- than that has changed of the schedule, and `next_run` says when the task is due.
UPDATE {schema}.tasks SET
    function = %(function)s, kwargs = %(kwargs)s::jsonb, registered = coalesce(%(registered)s::jsonb, registered),
    kind = %(kind)s, expression = %(expression)s, zone = %(zone)s,
    every_ms = %(every_ms)s, tolerance_ms = %(tolerance_ms)s, box_ms = %(box_ms)s, grace_ms = %(grace_ms)s,
    queue = %(queue)s, subject = %(subject)s, description = %(description)s, metadata = %(metadata)s::jsonb,
    enabled = %(enabled)s, starts_at = %(starts_at)s::timestamptz, ends_at = %(ends_at)s::timestamptz,
    max_runs = %(max_runs)s::integer, catch_up = %(catch_up)s, keep = %(keep)s,
    next_run = CASE WHEN %(again)s THEN %(next_run)s::timestamptz
        WHEN every_ms = %(every_ms)s OR next_run IS NULL THEN next_run ELSE
        greatest(%(starts_at)s::timestamptz, least(next_run,
            coalesce(%(now)s::timestamptz, clock_timestamp()) + %(every_ms)s * interval '1 millisecond')) END,
    push_after = NULL,
    declared_in = coalesce(%(declared_in)s, declared_in),
    updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE id = %(id)s
RETURNING *

-- name: declared_tasks
-- What `ticker sync` compares: tasks without an owner that were declared, or that have one of these names; locked.
SELECT * FROM {schema}.tasks
WHERE owner_type = '' AND (declared_in <> '' OR name = ANY (%(names)s::text[]))
ORDER BY id
FOR NO KEY UPDATE

-- name: select_tasks
-- The tasks that an id, a name of an owner, or an owner names; locked, in the order of their ids.
SELECT * FROM {schema}.tasks
WHERE CASE WHEN %(id)s::bigint IS NOT NULL THEN id = %(id)s::bigint
      ELSE owner_type = %(owner_type)s AND owner_id = %(owner_id)s
           AND (%(name)s::text IS NULL OR name = %(name)s::text) END
ORDER BY id
FOR NO KEY UPDATE

-- name: delete_tasks
-- Gone, with what was planned for them; jobs that wait in Redis end as `gone` when a worker takes them.
WITH gone AS (DELETE FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[]) RETURNING *)
SELECT * FROM gone ORDER BY id

-- name: pause_tasks
-- Nothing is pushed and nothing starts until someone resumes them, or `until` passes.
UPDATE {schema}.tasks SET paused_by = %(by)s, paused_reason = %(reason)s, paused_until = %(until)s::timestamptz
WHERE id = ANY (%(ids)s::bigint[])
RETURNING *

-- name: resume_tasks
-- An interval task is due as soon as it may run: at once, or when its spacing allows, and never later than it was. (Due
-- at once whatever its spacing, a daily task would be dropped as too early, and wait another day.) No time behind what
-- the tables' CHECK takes, after a `last_run` that a hand has set far ahead.
UPDATE {schema}.tasks t SET
    paused_by = NULL, paused_reason = '', paused_until = NULL,
    next_run = CASE WHEN kind <> 'interval' OR next_run IS NULL THEN next_run WHEN i.now > ends_at THEN NULL ELSE
        greatest(starts_at, least(CASE WHEN next_run > i.now THEN next_run END, '9999-12-31T00:00:00Z',
            greatest(i.now, last_run + (every_ms - tolerance_ms) * interval '1 millisecond'))) END
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
WHERE id = ANY (%(ids)s::bigint[]) AND paused_by IS NOT NULL
RETURNING t.*

-- name: set_next_runs
-- When these are due, as somebody has found out who knows their times.
UPDATE {schema}.tasks t SET next_run = b.next_run
FROM unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[]) AS b (id, next_run)
WHERE t.id = b.id
RETURNING t.*

-- name: plan_runs
-- One manual run of each, which the next tick pushes; the schedule is not touched.
INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, state, due_at, created_at)
SELECT id, name, function, owner_type, owner_id, 'manual', 'planned', i.now, i.now
FROM {schema}.tasks, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
WHERE id = ANY (%(ids)s::bigint[])
ORDER BY id
RETURNING id


-- ---------------------------------------------------------------------------------------------- found due, pushed

-- name: end_pauses
-- Pauses whose time has passed, ended as `resume_tasks` would.
WITH over AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE paused_until <= %(now)s
    ORDER BY paused_until LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.tasks t SET
    paused_by = NULL, paused_reason = '', paused_until = NULL,
    next_run = CASE WHEN kind <> 'interval' OR next_run IS NULL THEN next_run WHEN %(now)s > ends_at THEN NULL ELSE
        greatest(starts_at, least(CASE WHEN next_run > %(now)s THEN next_run END, '9999-12-31T00:00:00Z',
            greatest(%(now)s, last_run + (every_ms - tolerance_ms) * interval '1 millisecond'))) END
FROM over WHERE t.id = over.id
RETURNING t.id, t.kind, t.expression, t.zone, t.every_ms, t.next_run, t.starts_at, t.ends_at

-- name: claim_due
-- The due tasks, oldest first, locked; rows that another ticker holds are its own.
-- Interval tasks count as due a little early (timing.horizon), the others never: they would be pushed twice.
SELECT id, next_run AS occurrence, queue, function, kind, expression, zone, every_ms, box_ms, grace_ms, push_errors,
    starts_at, ends_at, catch_up
FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_by IS NULL
  AND next_run <= %(now)s + %(look_ahead)s * interval '1 millisecond'
  AND next_run <= %(now)s + CASE WHEN kind = 'interval' THEN least(%(look_ahead)s, tolerance_ms / 5) ELSE 0 END
                          * interval '1 millisecond'
  AND (push_after IS NULL OR push_after <= %(now)s)
ORDER BY next_run
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: advance
-- Redis took these jobs: note the occurrences as waiting (unless one has started meanwhile), and move on. The newest
-- 10,000 are kept: a row that a hand has filled would otherwise fail the tables' CHECK, and with it all others here.
UPDATE {schema}.tasks t SET
    next_run = a.next_run,
    waiting = CASE WHEN a.occurrence = ANY (t.waiting) OR (a.occurrence <= t.last_occurrence AND EXISTS (
                       SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.occurrence = a.occurrence
                       AND r.kind = 'scheduled' AND r.started_at IS NOT NULL)) THEN t.waiting
                   ELSE t.waiting[greatest(cardinality(t.waiting) - 9998, 1):] || a.occurrence END,
    push_errors = 0, push_error = '', push_after = NULL
FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(next_runs)s::timestamptz[])
     AS a (id, occurrence, next_run)
WHERE t.id = a.id

-- name: skip
-- Occurrences that an outage made these tasks miss, and that nobody wants any more: recorded, and passed over.
WITH skipped AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(next_runs)s::timestamptz[])
        AS s (id, occurrence, next_run)
), recorded AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms)
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', s.occurrence, 'ended', 'dropped',
        'missed', %(now)s, %(now)s, t.last_run, %(now)s, t.every_ms, t.tolerance_ms
    FROM skipped s JOIN {schema}.tasks t ON t.id = s.id
)
UPDATE {schema}.tasks t SET next_run = s.next_run, push_errors = 0, push_error = '', push_after = NULL
FROM skipped s WHERE t.id = s.id

-- name: set_back
-- These could not be pushed: they stay due, wait a while, and say why. (Counts stop where the tables' CHECK ends.)
UPDATE {schema}.tasks t SET
    push_errors = least(t.push_errors + 1, 1000000), push_error = left(b.error, 500), push_after = b.after
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE t.id = b.id

-- name: claim_planned
-- Planned runs that are due, with what their push needs from the task's row.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id
WHERE r.state = 'planned' AND r.due_at <= %(now)s
ORDER BY r.due_at, r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: mark_pushed
UPDATE {schema}.runs SET state = 'pushed', pushed_at = %(now)s, reason = '' WHERE id = ANY (%(ids)s::bigint[])

-- name: set_back_planned
-- A planned run that could not be pushed tries again later, and says why.
UPDATE {schema}.runs r SET due_at = b.after, reason = left(b.error, 500)
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE r.id = b.id

-- name: drop_orphaned_plans
-- Runs that were planned for a task which is gone by now; pushed ones, too, when Redis must have forgotten their jobs
-- (timing.job_ttl): until then a worker may take the job, and record this itself.
WITH planned AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE r.state = 'planned' AND r.due_at <= %(now)s
      AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), pushed AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE r.state = 'pushed' AND r.pushed_at < %(now)s - interval '2 hours'
      AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.runs r SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = %(now)s
WHERE r.id IN (SELECT id FROM planned UNION ALL SELECT id FROM pushed)


-- -------------------------------------------------------------------------------------------- started, or dropped

-- name: start
-- Decides, under the task's row lock and by the clock read after it, whether a scheduled job may run; records it.
-- `true_last_run` is the last run by the uptime of this host, to which the wait for the lock is added. The spacing counts
-- from the later one of the two; where they differ by over 3 s, the clock was set, and the uptime decides alone. (Under
-- that it may be the way of the statement to the server, for which nobody waits longer than 2 s.) The first job that comes
-- too early after the clock was set is dropped as `clock`, and brings the row's times to the new clock. Up to 20 s forward
-- it may also be that the server was stopped before it read the statement: then `next_run` stays where it is.
-- `is_over` (a volatile function) sees what was committed while this waited for the lock; the statement itself does not.
WITH locked AS MATERIALIZED (
    SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found,
        %(uptime)s::bigint + CASE WHEN %(now)s::timestamptz IS NULL THEN greatest(0, least(2500000, (1000000
            * extract(epoch FROM clock_timestamp() - statement_timestamp()))::bigint)) ELSE 0 END AS uptime
    FROM locked
), measured AS MATERIALIZED (
    SELECT i.now, i.uptime, l.*, (l.box_ms + l.grace_ms) * interval '1 millisecond' AS hold, h.held_for, h.held_since,
        CASE WHEN l.last_run IS NOT NULL AND l.last_boot = %(boot)s::text
                  AND l.last_uptime_us <= i.uptime
             THEN i.now - (i.uptime - l.last_uptime_us) * interval '1 microsecond' END AS true_last_run
    FROM instant i LEFT JOIN locked l ON true LEFT JOIN LATERAL (
        SELECT greatest(r.until - r.started_at, interval '0') AS held_for,
            CASE WHEN r.boot = %(boot)s::text AND r.uptime_us <= i.uptime
                 THEN (i.uptime - r.uptime_us) * interval '1 microsecond' END AS held_since
        FROM {schema}.runs r WHERE r.token = l.run_token AND r.state = 'running') h ON true
), spaced AS MATERIALIZED (
    SELECT m.*, coalesce(m.held_for, m.hold) - coalesce(m.held_since, interval '0') AS hold_left,
        c.clock_was_set,
        m.true_last_run BETWEEN m.last_run AND m.last_run + interval '20 seconds' AS perhaps_late,
        CASE WHEN c.clock_was_set THEN coalesce(m.true_last_run, m.now)
             ELSE greatest(m.last_run, m.true_last_run) END AS spaced_from
    FROM measured m, LATERAL (
        SELECT CASE WHEN m.true_last_run IS NULL THEN m.last_run > m.now
            ELSE abs(extract(epoch FROM m.true_last_run - m.last_run)) > 3 END AS clock_was_set) c
), judged AS MATERIALIZED (
    SELECT l.*, CASE
        WHEN l.id IS NULL THEN 'gone'
        WHEN l.function <> ALL (%(functions)s::text[]) THEN 'unknown_function'
        WHEN NOT l.enabled OR NOT l.owner_active
             OR (l.paused_by IS NOT NULL AND (l.paused_until IS NULL OR l.now < l.paused_until)) THEN 'paused'
        WHEN l.started >= l.max_runs THEN 'done'
        WHEN l.clock_was_set AND (l.true_last_run IS NULL OR (l.kind = 'interval'
             AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond')) THEN 'clock'
        WHEN %(occurrence)s < l.now - greatest(2 * l.every_ms, 600000) * interval '1 millisecond'
             AND %(occurrence)s < (SELECT max(w) FROM unnest(l.waiting) w) THEN 'expired'
        WHEN %(occurrence)s <= least(l.last_occurrence, CASE WHEN l.clock_was_set THEN l.spaced_from END)
             OR {schema}.is_over(l.id, %(occurrence)s) THEN 'duplicate'
        WHEN CASE WHEN l.held_since IS NULL THEN l.now < l.running_until ELSE l.hold_left > interval '0' END
             THEN 'still_running'
        WHEN l.kind = 'interval'
             AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond' THEN 'too_early'
        END AS refusal
    FROM spaced l
), changed AS (
    UPDATE {schema}.tasks t SET
        waiting = array_remove(j.waiting, %(occurrence)s),
        started = CASE WHEN j.refusal IS NULL THEN least(j.started + 1, 1000000000) ELSE j.started END,
        next_run = CASE WHEN n.next_run > j.ends_at THEN NULL ELSE n.next_run END,
        last_run = CASE WHEN j.refusal IS NULL THEN j.now WHEN j.refusal = 'clock' THEN j.spaced_from
                        ELSE j.last_run END,
        last_boot = CASE WHEN j.refusal IS NULL THEN %(boot)s::text ELSE j.last_boot END,
        last_uptime_us = CASE WHEN j.refusal IS NULL THEN j.uptime ELSE j.last_uptime_us END,
        last_occurrence = CASE WHEN j.refusal IS NULL AND %(occurrence)s > j.now + interval '1 second' THEN j.now
                               WHEN j.refusal IS NULL THEN %(occurrence)s
                               WHEN j.refusal = 'clock' AND j.last_occurrence > j.spaced_from THEN j.spaced_from
                               ELSE j.last_occurrence END,
        run_token = CASE WHEN j.refusal IS NULL THEN %(token)s::uuid ELSE j.run_token END,
        running_until = CASE WHEN j.refusal IS NULL THEN j.now + j.hold
                             WHEN j.refusal = 'clock'
                                  AND (j.held_since IS NOT NULL OR j.running_until > j.now + j.hold_left)
                             THEN j.now + j.hold_left ELSE j.running_until END
    FROM judged j, LATERAL (SELECT CASE WHEN j.refusal IS NULL AND j.started + 1 >= j.max_runs THEN NULL
        WHEN j.kind <> 'interval' OR j.next_run IS NULL THEN j.next_run
        WHEN j.refusal = 'clock' AND j.true_last_run IS NOT NULL
             AND j.next_run > j.spaced_from + j.every_ms * interval '1 millisecond'
        THEN greatest(j.starts_at, j.spaced_from + j.every_ms * interval '1 millisecond')
        WHEN j.refusal IS NULL AND ((j.clock_was_set AND NOT j.perhaps_late) OR %(occurrence)s > j.now + interval '1 second')
        THEN greatest(j.starts_at, j.now + j.every_ms * interval '1 millisecond') ELSE j.next_run END AS next_run) n
    WHERE t.id = j.id
), recorded AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, token,
        started_at, until, boot, uptime_us, ended_at, created_at, checked_last_run, checked_at, every_ms,
        tolerance_ms, worker, host, pid, job_id)
    SELECT %(task_id)s, coalesce(j.name, ''), coalesce(j.function, ''), coalesce(j.owner_type, ''),
        coalesce(j.owner_id, ''), 'scheduled', %(occurrence)s,
        CASE WHEN j.refusal IS NULL THEN 'running' ELSE 'ended' END,
        CASE WHEN j.refusal IS NOT NULL THEN 'dropped' END, coalesce(j.refusal, ''),
        CASE WHEN j.refusal IS NULL THEN %(token)s::uuid END,
        CASE WHEN j.refusal IS NULL THEN j.now END, CASE WHEN j.refusal IS NULL THEN j.now + j.hold END,
        CASE WHEN j.refusal IS NULL THEN %(boot)s::text END, CASE WHEN j.refusal IS NULL THEN j.uptime END,
        CASE WHEN j.refusal IS NOT NULL THEN j.now END, j.now,
        j.spaced_from, j.now, j.every_ms, j.tolerance_ms, %(worker)s, %(host)s, %(pid)s, %(job_id)s
    FROM judged j
    RETURNING id
)
SELECT j.refusal, j.now, recorded.id AS run_id, j.name, j.function, j.kwargs, j.owner_type, j.owner_id, j.cursor,
    j.kind, j.every_ms, j.tolerance_ms, j.box_ms, j.grace_ms, j.spaced_from AS last_run, j.last_occurrence,
    CASE WHEN j.held_since IS NULL THEN j.running_until ELSE j.now + j.hold_left END AS running_until,
    j.spaced_from - j.last_run AS set_by
FROM judged j, recorded

-- name: start_planned
-- The same for a planned run: it obeys enabled and the hold (a manual run also starts while the task is paused), skips
-- the too-early and duplicate checks, and never touches last_run or last_occurrence. A copy of its job is a duplicate.
WITH locked AS MATERIALIZED (
    SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), plan AS MATERIALIZED (
    SELECT r.* FROM {schema}.runs r, (SELECT count(id) FROM locked) AS after_the_task
    WHERE r.id = %(run_id)s FOR NO KEY UPDATE OF r
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found FROM plan
), judged AS MATERIALIZED (
    SELECT i.now, l.*, p.id AS run_id, p.kind AS run_kind, (l.box_ms + l.grace_ms) * interval '1 millisecond' AS hold,
        coalesce(i.now + h.hold_left, l.running_until) AS held_until, coalesce(p.state IN ('planned', 'pushed'), false) AS fresh, CASE
        WHEN l.id IS NULL OR p.id IS NULL THEN 'gone'
        WHEN p.state NOT IN ('planned', 'pushed') THEN 'duplicate'
        WHEN l.function <> ALL (%(functions)s::text[]) THEN 'unknown_function'
        WHEN NOT l.enabled OR NOT l.owner_active OR (p.kind <> 'manual' AND l.paused_by IS NOT NULL
             AND (l.paused_until IS NULL OR i.now < l.paused_until)) THEN 'paused'
        WHEN i.now < coalesce(i.now + h.hold_left, l.running_until) THEN 'still_running'
        END AS refusal
    FROM instant i LEFT JOIN locked l ON true LEFT JOIN plan p ON true LEFT JOIN LATERAL (
        SELECT r.until - r.started_at - (%(uptime)s::bigint - r.uptime_us) * interval '1 microsecond' AS hold_left
        FROM {schema}.runs r WHERE r.token = l.run_token AND r.state = 'running'
            AND r.boot = %(boot)s::text AND r.uptime_us <= %(uptime)s::bigint) h ON true
), changed AS (
    UPDATE {schema}.tasks t SET run_token = %(token)s::uuid, running_until = j.now + j.hold
    FROM judged j WHERE t.id = j.id AND j.refusal IS NULL
), taken AS (
    UPDATE {schema}.runs r SET
        task_name = coalesce(j.name, r.task_name), function = coalesce(j.function, r.function),
        state = CASE WHEN j.refusal IS NULL THEN 'running' ELSE 'ended' END,
        outcome = CASE WHEN j.refusal IS NOT NULL THEN 'dropped' END, reason = coalesce(j.refusal, ''),
        token = CASE WHEN j.refusal IS NULL THEN %(token)s::uuid END,
        started_at = CASE WHEN j.refusal IS NULL THEN j.now END,
        until = CASE WHEN j.refusal IS NULL THEN j.now + j.hold END,
        boot = CASE WHEN j.refusal IS NULL THEN %(boot)s::text END,
        uptime_us = CASE WHEN j.refusal IS NULL THEN %(uptime)s::bigint END,
        ended_at = CASE WHEN j.refusal IS NOT NULL THEN j.now END,
        checked_last_run = j.last_run, checked_at = j.now, every_ms = j.every_ms, tolerance_ms = j.tolerance_ms,
        worker = %(worker)s, host = %(host)s, pid = %(pid)s, job_id = %(job_id)s
    FROM judged j WHERE r.id = j.run_id AND j.fresh
    RETURNING r.id
), refused AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, kind, parent_id, state, outcome, reason, ended_at,
        created_at, checked_at, worker, host, pid, job_id)
    SELECT %(task_id)s, coalesce(j.name, ''), coalesce(j.function, ''), coalesce(j.owner_type, ''),
        coalesce(j.owner_id, ''), coalesce(j.run_kind, 'manual'), %(run_id)s, 'ended', 'dropped', j.refusal, j.now,
        j.now, j.now, %(worker)s, %(host)s, %(pid)s, %(job_id)s
    FROM judged j WHERE NOT j.fresh
    RETURNING id
)
SELECT j.refusal, j.now, coalesce(taken.id, refused.id) AS run_id, j.name, j.function, j.kwargs, j.owner_type,
    j.owner_id, j.cursor, j.kind, j.every_ms, j.tolerance_ms, j.box_ms, j.grace_ms, j.last_run, j.last_occurrence,
    j.held_until AS running_until
FROM judged j LEFT JOIN taken ON true LEFT JOIN refused ON true


-- ----------------------------------------------------------------------------------------------- running, and ended

-- name: checkpoint
-- Where the next run goes on; only the run that holds the task may write it.
UPDATE {schema}.tasks SET cursor = %(cursor)s::jsonb
WHERE id = %(task_id)s AND run_token = %(token)s::uuid
RETURNING id

-- name: finish
-- The end, fenced by the token: a run that lost its hold changes nothing. A run whose task is gone still ends. A start that
-- was given up, since its answer came too late, was asked for with an uptime that may be as old: it tells nothing.
WITH held AS MATERIALIZED (
    SELECT id, run_token IS NOT DISTINCT FROM %(token)s::uuid AS mine
    FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, coalesce(bool_and(mine), true) AS mine FROM held
), ended AS (
    UPDATE {schema}.runs r SET
        state = 'ended', outcome = %(outcome)s, reason = %(reason)s, result = %(result)s::jsonb,
        traceback = %(traceback)s, ended_at = i.now
    FROM instant i
    WHERE r.token = %(token)s::uuid AND r.state = 'running' AND i.mine
    RETURNING r.id
), freed AS (
    UPDATE {schema}.tasks t SET
        run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = %(outcome)s, last_ended_at = i.now,
        last_success_at = CASE WHEN %(outcome)s IN ('succeeded', 'partial', 'nothing_to_do') THEN i.now
                               ELSE t.last_success_at END,
        last_worked_at = CASE WHEN %(outcome)s IN ('succeeded', 'partial') THEN i.now ELSE t.last_worked_at END,
        last_boot = CASE WHEN %(outcome)s <> 'lost' THEN t.last_boot END,
        last_uptime_us = CASE WHEN %(outcome)s <> 'lost' THEN t.last_uptime_us END,
        failures = CASE WHEN %(outcome)s IN ('succeeded', 'partial', 'nothing_to_do') THEN 0
                        ELSE least(t.failures + 1, 1000000) END
    FROM instant i, ended e
    WHERE t.id = %(task_id)s AND t.run_token = %(token)s::uuid
)
SELECT id AS run_id FROM ended


-- --------------------------------------------------------------------------------------------------------- swept

-- name: clamp
-- After the clock was set, brings the tasks' times to the instant that is read after the rows' locks: an older one, of
-- a ticker that was stopped meanwhile, would end holds of living runs. `stepped`: the ticker saw it itself, by its
-- uptime; a heartbeat in the future is another sign of it; `thorough` looks at every row. What started on this host is
-- told by its uptime, and due an interval after its true last run (no later than it was, if the two differ by up to 20 s
-- and the ticker saw no step: it may also be that a stopped server read the start late); of the rest, only what lies
-- too far ahead is brought back; so is a back-off, the longest of which is an hour. A task that was never pushed keeps
-- its `first`, unless it was itself registered in the future.
WITH measured AS MATERIALIZED (
    SELECT t.id, i.now, CASE WHEN t.last_run IS NOT NULL AND t.last_boot = %(boot)s::text
            AND t.last_uptime_us <= %(uptime)s::bigint
        THEN i.now - (%(uptime)s::bigint - t.last_uptime_us) * interval '1 microsecond' END AS true_last_run
    FROM {schema}.tasks t, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
    WHERE t.id > %(after)s::bigint AND (%(thorough)s OR %(stepped)s
        OR EXISTS (SELECT FROM {schema}.tickers WHERE last_tick_at > i.now + interval '1 second'))
), ahead AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks t JOIN measured m ON m.id = t.id
    WHERE abs(extract(epoch FROM m.true_last_run - t.last_run)) > 3
        OR (m.true_last_run IS NULL AND t.last_run > m.now) OR t.last_occurrence > m.now + interval '1 second'
        OR t.running_until > m.now + coalesce(
            (SELECT greatest(r.until - r.started_at, interval '0') FROM {schema}.runs r
             WHERE r.token = t.run_token AND r.state = 'running'),
            (t.box_ms + t.grace_ms) * interval '1 millisecond')
        OR t.push_after > m.now + CASE WHEN %(stepped)s THEN interval '0' ELSE interval '61 minutes' END
        OR (t.kind = 'interval' AND t.next_run > m.now + (t.every_ms + 1000) * interval '1 millisecond'
            AND (t.starts_at IS NULL OR t.next_run > t.starts_at)
            AND (t.last_occurrence IS NOT NULL OR t.waiting <> '{}' OR t.created_at > m.now + interval '1 second'
                 OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled')))
        OR (%(stepped)s AND t.kind = 'interval' AND m.true_last_run IS NOT NULL
            AND t.next_run IS DISTINCT FROM t.starts_at
            AND (t.next_run > t.last_run + (t.every_ms + 1000) * interval '1 millisecond'
                 OR t.next_run < t.last_run + (t.every_ms - t.tolerance_ms) * interval '1 millisecond'))
    ORDER BY t.id LIMIT %(limit)s FOR NO KEY UPDATE OF t SKIP LOCKED
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found FROM ahead
), held AS MATERIALIZED (
    SELECT t.id, i.now, CASE WHEN t.last_run IS NOT NULL AND t.last_boot = %(boot)s::text
            AND t.last_uptime_us <= %(uptime)s::bigint
            THEN i.now - (%(uptime)s::bigint - t.last_uptime_us) * interval '1 microsecond' END AS true_last_run,
        h.held_since, i.now + coalesce(h.held_for, (t.box_ms + t.grace_ms) * interval '1 millisecond')
            - coalesce(h.held_since, interval '0') AS until
    FROM instant i, ahead a JOIN {schema}.tasks t ON t.id = a.id LEFT JOIN LATERAL (
        SELECT greatest(r.until - r.started_at, interval '0') AS held_for,
            CASE WHEN r.boot = %(boot)s::text AND r.uptime_us <= %(uptime)s::bigint
                 THEN (%(uptime)s::bigint - r.uptime_us) * interval '1 microsecond' END AS held_since
        FROM {schema}.runs r WHERE r.token = t.run_token AND r.state = 'running') h ON true
)
UPDATE {schema}.tasks t SET
    last_run = CASE WHEN h.true_last_run IS NOT NULL THEN h.true_last_run
                    WHEN t.last_run > h.now THEN h.now ELSE t.last_run END,
    last_occurrence = CASE WHEN t.last_occurrence > coalesce(h.true_last_run, h.now)
                           THEN coalesce(h.true_last_run, h.now) ELSE t.last_occurrence END,
    running_until = CASE WHEN t.running_until > h.until OR h.held_since IS NOT NULL THEN h.until
                         ELSE t.running_until END,
    push_after = NULL,
    next_run = (SELECT CASE WHEN due.at > t.ends_at THEN NULL ELSE due.at END FROM (SELECT CASE
        WHEN t.kind = 'interval' AND h.true_last_run IS NOT NULL AND t.next_run IS NOT NULL
        THEN greatest(t.starts_at, least(h.true_last_run + t.every_ms * interval '1 millisecond', CASE
            WHEN NOT %(stepped)s AND abs(extract(epoch FROM h.true_last_run - t.last_run)) <= 20 THEN t.next_run END))
        WHEN t.kind = 'interval'
        AND (t.last_occurrence IS NOT NULL OR t.waiting <> '{}' OR t.created_at > h.now + interval '1 second'
             OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled'))
        AND t.next_run > h.now + t.every_ms * interval '1 millisecond'
        THEN greatest(t.starts_at, h.now + t.every_ms * interval '1 millisecond') ELSE t.next_run END AS at) due)
FROM held h WHERE t.id = h.id
RETURNING t.id

-- name: clock_signs
-- Whether a ticker's heartbeat lies ahead: the clock was set back.
SELECT EXISTS (SELECT FROM {schema}.tickers
    WHERE last_tick_at > coalesce(%(now)s::timestamptz, clock_timestamp()) + interval '1 second') AS set_back

-- name: claim_ahead
-- After the clock was set back: tasks by cron and calendar that wait for a time ahead, and were pushed before, so that it is
-- no `first`; locked. The clamp cannot tell when they are due; a pass can.
SELECT id, next_run AS occurrence, queue, function, kind, expression, zone, every_ms, box_ms, grace_ms, push_errors,
    starts_at, ends_at, catch_up
FROM {schema}.tasks t
WHERE kind IN ('cron', 'calendar') AND next_run > %(now)s AND id > %(after)s::bigint
  AND (last_occurrence IS NOT NULL OR waiting <> '{}' OR created_at > %(now)s + interval '1 second'
       OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled'))
ORDER BY id
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: bring_forward
UPDATE {schema}.tasks t SET next_run = b.next_run, push_after = NULL
FROM unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[]) AS b (id, next_run)
WHERE t.id = b.id AND t.next_run > b.next_run

-- name: clamp_runs
-- The same for runs that began, or were planned, in the future; each is so only once.
WITH ahead AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE (state = 'running' AND started_at > %(now)s::timestamptz + interval '1 second')
       OR (state = 'planned' AND (created_at > %(now)s::timestamptz + interval '1 second'
                                  OR (kind = 'manual' AND due_at > %(now)s::timestamptz + interval '1 minute')))
    LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.runs r SET
    started_at = CASE WHEN r.state = 'running' THEN %(now)s::timestamptz ELSE r.started_at END,
    until = CASE WHEN r.state = 'running'
                 THEN %(now)s::timestamptz + greatest(r.until - r.started_at, interval '0') ELSE r.until END,
    due_at = CASE WHEN r.state = 'planned' THEN %(now)s::timestamptz ELSE r.due_at END,
    created_at = least(r.created_at, %(now)s::timestamptz)
FROM ahead WHERE r.id = ahead.id
RETURNING r.id

-- name: end_overdue
-- Runs past B + g that nobody ended: their worker is gone. A row that is busy just now, the run's or its task's, is
-- left to the next tick; as nothing is waited for, the run may be locked first here. A run of this host is past it when
-- the uptime says so, whatever the clock was set to; of the others, by the clock as it is read here: the `now` of a pass
-- that was stopped meanwhile may lie ahead of it. Perhaps its worker never had the answer to its start, as the server was
-- stopped for long: its uptime may be as old, and tells nothing.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), overdue AS MATERIALIZED (
    SELECT id, task_id, token FROM {schema}.runs
    WHERE state = 'running'
      AND CASE WHEN boot = %(boot)s::text AND uptime_us <= %(uptime)s::bigint
               THEN (%(uptime)s::bigint - uptime_us) * interval '1 microsecond'
                    > until - started_at + interval '1 second'
               ELSE until < (SELECT now FROM instant) - interval '1 second' END
    ORDER BY until LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT t.id, t.run_token FROM {schema}.tasks t
    WHERE t.id IN (SELECT task_id FROM overdue) ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    UPDATE {schema}.runs r SET state = 'ended', outcome = 'lost', ended_at = (SELECT now FROM instant),
        reason = 'no end was recorded within its time box: its worker is gone'
    FROM overdue o
    WHERE r.id = o.id AND r.state = 'running'
      AND (o.task_id IN (SELECT id FROM held) OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = o.task_id))
    RETURNING r.id, r.task_id, r.token
), freed AS (
    UPDATE {schema}.tasks t SET run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = 'lost', last_ended_at = (SELECT now FROM instant),
        last_boot = NULL, last_uptime_us = NULL,
        failures = least(t.failures + 1, 1000000)
    FROM ended e JOIN held h ON h.id = e.task_id AND h.run_token = e.token
    WHERE t.id = e.task_id
)
SELECT id FROM ended

-- name: remove_done
-- Tasks for a single time that have succeeded, and that nobody wants to keep.
WITH done AS MATERIALIZED (
    SELECT id FROM {schema}.tasks
    WHERE kind = 'once' AND NOT keep AND next_run IS NULL AND run_token IS NULL AND waiting = '{}'
      AND last_outcome IN ('succeeded', 'partial', 'nothing_to_do')
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM {schema}.tasks t USING done WHERE t.id = done.id
RETURNING t.id

-- name: claim_waiting
-- Tasks with waiting occurrences, locked, so that none of them can start while Redis is asked for their jobs. Of many,
-- the oldest 99 and the newest; and of all, as many tasks as have 5,000: more of them would take longer than the locks may
-- be held. `upto` is the last one that was looked at, none where that was all.
WITH looked_at AS MATERIALIZED (
    SELECT id, least(cardinality(waiting), 100) AS count FROM {schema}.tasks
    WHERE waiting <> '{}' AND id > %(after)s::bigint ORDER BY id LIMIT %(limit)s
), counted AS (
    SELECT id, sum(count) OVER (ORDER BY id) - count < 5000 AS fits FROM looked_at
), chosen AS MATERIALIZED (
    SELECT coalesce(array_agg(id) FILTER (WHERE fits), '{}') AS ids,
        CASE WHEN count(*) = %(limit)s OR NOT bool_and(fits) THEN max(id) FILTER (WHERE fits) END AS upto
    FROM counted
)
SELECT id, queue, function, every_ms, box_ms, grace_ms, CASE WHEN cardinality(waiting) <= 100 THEN waiting
    ELSE waiting[:99] || waiting[cardinality(waiting)] END AS waiting, (SELECT upto FROM chosen) AS upto
FROM {schema}.tasks
WHERE waiting <> '{}' AND id = ANY (ARRAY(SELECT unnest(ids) FROM chosen))
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED

-- name: settle_waiting
-- Occurrences that will not start any more, each recorded with its outcome and reason. A worker may have its job in
-- hand, if Redis was wiped, or if the worker itself was stopped for a while: the start finds the record.
WITH settled AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(outcomes)s::text[], %(reasons)s::text[])
        AS s (id, occurrence, outcome, reason)
), recorded AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms)
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', s.occurrence, 'ended', s.outcome,
        s.reason, %(now)s, %(now)s, t.last_run, %(now)s, t.every_ms, t.tolerance_ms
    FROM settled s JOIN {schema}.tasks t ON t.id = s.id
)
UPDATE {schema}.tasks t SET
    waiting = ARRAY(
        SELECT w FROM unnest(t.waiting) w
        WHERE NOT EXISTS (SELECT FROM settled s WHERE s.id = t.id AND s.occurrence = w) ORDER BY w),
    last_outcome = CASE WHEN f.lost > 0 THEN 'lost' ELSE t.last_outcome END,
    last_ended_at = CASE WHEN f.lost > 0 THEN %(now)s ELSE t.last_ended_at END,
    failures = least(t.failures + f.lost, 1000000)
FROM (SELECT id, count(*) FILTER (WHERE outcome = 'lost')::int AS lost FROM settled GROUP BY id) f
WHERE t.id = f.id

-- name: claim_pushed
-- Planned runs that were pushed and have not started, locked for the same question to Redis.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id
WHERE r.state = 'pushed' AND r.id > %(after)s
ORDER BY r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: lose_planned
UPDATE {schema}.runs SET state = 'ended', outcome = 'lost', reason = %(reason)s, ended_at = %(now)s
WHERE id = ANY (%(ids)s::bigint[]) AND state = 'pushed'

-- name: next_due
-- Seconds from `now`, which a pass has just served, to the next thing that a pass would do; none: there is nothing. What is
-- due already and could not be pushed waits for the rhythm.
SELECT extract(epoch FROM least(
    (SELECT next_run FROM {schema}.tasks
     WHERE enabled AND owner_active AND paused_by IS NULL AND next_run > %(now)s::timestamptz ORDER BY next_run LIMIT 1),
    (SELECT min(paused_until) FROM {schema}.tasks WHERE paused_until > %(now)s::timestamptz),
    (SELECT min(due_at) FROM {schema}.runs WHERE state = 'planned' AND due_at > %(now)s::timestamptz)
) - %(now)s::timestamptz)::float8 AS seconds

-- name: wake_up
-- Tells the tickers of this schema that something has changed, once the transaction commits.
SELECT pg_notify('ticker_wake', %(schema)s)

-- name: heartbeat
-- A ticker lives, and what its last tick did. Rows of tickers that were silent for a day go, and those from before the
-- clock was set back: this tick has clamped, and the living ones write theirs again.
WITH silent AS (
    DELETE FROM {schema}.tickers WHERE id <> %(id)s::uuid
      AND (last_tick_at < clock_timestamp() - interval '1 day'
           OR last_tick_at > clock_timestamp() + interval '1 second'))
INSERT INTO {schema}.tickers (id, host, pid, started_at, last_tick_at, last_report)
VALUES (%(id)s::uuid, %(host)s, %(pid)s, clock_timestamp(), %(now)s, %(report)s::jsonb)
ON CONFLICT (id) DO UPDATE SET last_tick_at = excluded.last_tick_at, last_report = excluded.last_report


-- -------------------------------------------------------------------------------------------------- read by people

-- name: list_tasks
SELECT * FROM {schema}.tasks
WHERE (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
  AND (%(owner_id)s::text IS NULL OR owner_id = %(owner_id)s)
  AND (%(name)s::text IS NULL OR name = %(name)s)
  AND (%(function)s::text IS NULL OR function = %(function)s)
  AND id > %(after)s
ORDER BY id
LIMIT %(limit)s

-- name: read_task
SELECT * FROM {schema}.tasks WHERE id = %(id)s

-- name: due_tasks
-- What a tick would push, without a lock: due by themselves, or by the end of their pause.
WITH instant AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT * FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_by IS NULL AND next_run <= (SELECT now FROM instant)
  AND (push_after IS NULL OR push_after <= (SELECT now FROM instant))
UNION ALL
SELECT * FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_until <= (SELECT now FROM instant) AND next_run IS NOT NULL
  AND (kind = 'interval' OR next_run <= (SELECT now FROM instant))
  AND (push_after IS NULL OR push_after <= (SELECT now FROM instant))
ORDER BY next_run
LIMIT %(limit)s

-- name: list_runs
SELECT * FROM {schema}.runs
WHERE (%(task_id)s::bigint IS NULL OR task_id = %(task_id)s)
  AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
  AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id DESC
LIMIT %(limit)s

-- name: tickers
SELECT id, host, pid, started_at, last_tick_at, last_report,
    extract(epoch FROM clock_timestamp() - last_tick_at)::float8 AS age
FROM {schema}.tickers ORDER BY last_tick_at DESC NULLS LAST
