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

-- name: actor
-- The author of the events of this transaction; empty means the database user. Statements with `by` set it, and `act_as`
-- restores it.
SELECT coalesce(current_setting('ticker.by', true), '') AS by

-- name: act_as
SELECT set_config('ticker.by', %(by)s, true)

-- name: insert_task
-- A new task, due at once unless `first` says otherwise. No row: another process was faster, or the owner is gone.
INSERT INTO {schema}.tasks (
    owner_type, owner_id, name, function, kwargs, registered, declared_in, kind, expression, zone,
    every_ms, tolerance_ms, box_ms, grace_ms, queue, subject, description, metadata, enabled,
    starts_at, ends_at, max_runs, catch_up, remove, overlap, retries, backoff, stretch_ms,
    pause_after, probe_ms, dead_man, alarm_at, keep, submitter, group_name, priority, spread, within_ms, next_run)
VALUES (
    %(owner_type)s, %(owner_id)s, %(name)s, %(function)s, %(kwargs)s::jsonb, %(registered)s::jsonb, %(declared_in)s,
    %(kind)s, %(expression)s, %(zone)s, %(every_ms)s, %(tolerance_ms)s, %(box_ms)s, %(grace_ms)s, %(queue)s,
    %(subject)s, %(description)s, %(metadata)s::jsonb, %(enabled)s,
    %(starts_at)s::timestamptz, %(ends_at)s::timestamptz, %(max_runs)s::integer, %(catch_up)s, %(remove)s,
    %(overlap)s, %(retries)s, %(backoff)s, %(stretch_ms)s::bigint, %(pause_after)s::integer, %(probe_ms)s::bigint,
    %(dead_man)s::integer, CASE WHEN %(dead_man)s::integer IS NOT NULL
        THEN coalesce(%(first)s::timestamptz, %(now)s::timestamptz, clock_timestamp()) END,
    %(keep)s, %(submitter)s, %(group_name)s, %(priority)s, %(spread)s,
    %(within_ms)s::bigint, coalesce(%(first)s::timestamptz, %(now)s::timestamptz, clock_timestamp()))
ON CONFLICT (owner_type, owner_id, name) DO NOTHING
RETURNING *

-- name: change_task
-- New values for what people define. A changed interval may bring the next run nearer, never push it away. An interval task
-- that is enabled and was due meanwhile is due now. With `again`, more of the schedule has changed, and `next_run` says when
-- the task is due.
UPDATE {schema}.tasks SET
    function = %(function)s, kwargs = %(kwargs)s::jsonb, registered = coalesce(%(registered)s::jsonb, registered),
    kind = %(kind)s, expression = %(expression)s, zone = %(zone)s,
    every_ms = %(every_ms)s, tolerance_ms = %(tolerance_ms)s, box_ms = %(box_ms)s, grace_ms = %(grace_ms)s,
    queue = %(queue)s, subject = %(subject)s, description = %(description)s, metadata = %(metadata)s::jsonb,
    enabled = %(enabled)s, starts_at = %(starts_at)s::timestamptz, ends_at = %(ends_at)s::timestamptz,
    max_runs = %(max_runs)s::integer, catch_up = %(catch_up)s, remove = %(remove)s,
    overlap = %(overlap)s, retries = %(retries)s, backoff = %(backoff)s, stretch_ms = %(stretch_ms)s::bigint,
    stretched_ms = CASE WHEN %(stretch_ms)s::bigint IS NOT NULL THEN stretched_ms END,
    pause_after = %(pause_after)s::integer, probe_ms = %(probe_ms)s::bigint, dead_man = %(dead_man)s::integer,
    alarm_at = CASE WHEN %(dead_man)s::integer IS NULL THEN NULL WHEN dead_man = %(dead_man)s::integer THEN alarm_at
        ELSE coalesce(%(now)s::timestamptz, clock_timestamp()) END,
    keep = %(keep)s, submitter = %(submitter)s, group_name = %(group_name)s, priority = %(priority)s,
    spread = %(spread)s, within_ms = %(within_ms)s::bigint, next_run = CASE WHEN %(again)s THEN %(next_run)s::timestamptz
        WHEN %(enabled)s AND NOT enabled AND every_ms = %(every_ms)s AND kind = 'interval' AND next_run IS NOT NULL
        THEN greatest(next_run, coalesce(%(now)s::timestamptz, clock_timestamp()))
        WHEN every_ms = %(every_ms)s OR next_run IS NULL THEN next_run ELSE
        greatest(%(starts_at)s::timestamptz, least(next_run,
            coalesce(%(now)s::timestamptz, clock_timestamp()) + %(every_ms)s * interval '1 millisecond')) END,
    push_after = NULL,
    declared_in = coalesce(%(declared_in)s, declared_in),
    updated_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE id = %(id)s AND set_config('ticker.by', coalesce(%(by)s, current_setting('ticker.by', true), ''), true) IS NOT NULL
RETURNING *

-- name: place
-- Brings spread tasks to their places: the first from which on they may start.
UPDATE {schema}.tasks t SET next_run = timestamptz 'epoch' + (p.rounds * every_ms + phase_ms)::float8 * interval '1 millisecond'
FROM (SELECT id, ceil((1000 * extract(epoch FROM greatest(starts_at, coalesce(%(now)s::timestamptz, clock_timestamp()),
    last_run + (every_ms - tolerance_ms + least(tolerance_ms / 5, 10000)) * interval '1 millisecond')) - phase_ms) / every_ms) AS rounds
    FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[]) AND next_run IS NOT NULL AND phase_ms IS NOT NULL
    FOR NO KEY UPDATE) p
WHERE t.id = p.id
RETURNING t.*

-- name: spread_plan
-- Of the interval tasks that are chosen: how many there are, how many have a place already, and how many are due within the
-- same tick at most, as they are, and once each is in its place.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), chosen AS MATERIALIZED (
    SELECT t.spread, extract(epoch FROM greatest(t.next_run, i.now)) * 1000 AS due, t.every_ms,
        1000 * extract(epoch FROM i.now) AS now,
        ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint * every_ms / 268435456 AS phase
    FROM {schema}.tasks t, instant i
    WHERE kind = 'interval' AND next_run IS NOT NULL
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
      AND (%(function)s::text IS NULL OR function = %(function)s)
), placed AS (
    SELECT ceil((now - phase) / every_ms) * every_ms + phase AS due FROM chosen
)
SELECT (SELECT count(*) FROM chosen)::int AS tasks, (SELECT count(*) FILTER (WHERE spread) FROM chosen)::int AS placed,
    (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM chosen GROUP BY floor(due / %(tick_ms)s)) s)::int AS most_now,
    (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM placed GROUP BY floor(due / %(tick_ms)s)) s)::int AS most_then

-- name: spread
-- The next ones of them by id that have no place yet get one.
WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks
    WHERE kind = 'interval' AND NOT spread AND id > %(after)s::bigint
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
      AND (%(function)s::text IS NULL OR function = %(function)s)
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE
)
UPDATE {schema}.tasks t SET spread = true FROM chosen c WHERE t.id = c.id
RETURNING t.id

-- name: has_trigger
SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgname = %(name)s AND p.pronamespace = '{schema}'::regnamespace) AS found

-- name: owner_tables
-- The types of owners with tasks that are names of tables here: one look at the index for each type, however many tasks.
WITH RECURSIVE types AS (
    SELECT min(owner_type) AS type FROM {schema}.tasks WHERE owner_type > ''
    UNION ALL
    SELECT (SELECT min(owner_type) FROM {schema}.tasks WHERE owner_type > types.type) FROM types WHERE type IS NOT NULL)
SELECT type FROM types WHERE EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND (n.nspname || '.' || c.relname = type
        OR c.relname = type AND (n.nspname = 'public' OR pg_table_is_visible(c.oid))))
ORDER BY type

-- name: write_templates
-- The default tasks of a type of owner: these, and no others.
WITH gone AS (
    DELETE FROM {schema}.templates WHERE owner_type = %(owner_type)s AND name <> ALL (%(names)s::text[]))
INSERT INTO {schema}.templates AS t (owner_type, name, task)
SELECT %(owner_type)s, w.name, w.task::jsonb FROM unnest(%(names)s::text[], %(tasks)s::text[]) AS w (name, task)
ORDER BY w.name
ON CONFLICT (owner_type, name) DO UPDATE SET task = excluded.task WHERE t.task <> excluded.task

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
-- Deletes tasks. The trigger tasks_note_deletion ends what was planned and what waits, as in any other deletion.
WITH gone AS (DELETE FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[])
    AND set_config('ticker.by', coalesce(%(by)s, current_setting('ticker.by', true), ''), true) IS NOT NULL RETURNING *)
SELECT * FROM gone ORDER BY id

-- name: pause_tasks
-- Nothing is pushed and nothing starts until someone resumes them, or `until` passes.
UPDATE {schema}.tasks SET paused_by = coalesce(%(by)s, left(nullif(current_setting('ticker.by', true), ''), 200), session_user),
    paused_reason = %(reason)s, paused_until = %(until)s::timestamptz
WHERE id = ANY (%(ids)s::bigint[])
RETURNING *

-- name: resume_tasks
-- An interval task is due as soon as it may run: at once, or when its spacing allows, and never later than it was. (Due
-- at once whatever its spacing, a daily task would be dropped as too early, and wait another day. So it would where a ticker
-- looked ahead beyond the spacing: `timing.soonest_due`.) No time behind what the tables'
-- CHECK takes, after a `last_run` that a hand has set far ahead.
UPDATE {schema}.tasks t SET
    paused_by = NULL, paused_reason = '', paused_until = NULL,
    next_run = CASE WHEN kind <> 'interval' OR next_run IS NULL THEN next_run WHEN i.now > ends_at THEN NULL ELSE
        greatest(starts_at, least(CASE WHEN next_run > i.now THEN next_run END, '9999-12-31T00:00:00Z',
            greatest(i.now, last_run + (every_ms - tolerance_ms + least(tolerance_ms / 5, 10000)) * interval '1 millisecond'))) END
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
WHERE id = ANY (%(ids)s::bigint[]) AND paused_by IS NOT NULL
    AND set_config('ticker.by', coalesce(%(by)s, current_setting('ticker.by', true), ''), true) IS NOT NULL
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
            greatest(%(now)s, last_run + (every_ms - tolerance_ms + least(tolerance_ms / 5, 10000)) * interval '1 millisecond'))) END
FROM over WHERE t.id = over.id AND set_config('ticker.by', 'ticker', true) IS NOT NULL
RETURNING t.id, t.kind, t.expression, t.zone, t.every_ms, t.next_run, t.starts_at, t.ends_at, t.phase_ms

-- name: claim_due
-- The due tasks, oldest first, locked; rows that another ticker holds are its own.
-- Interval tasks count as due a little early (timing.horizon), the others never: they would be pushed twice.
SELECT id, next_run AS occurrence, queue, function, kind, expression, zone, every_ms, box_ms, grace_ms, push_errors,
    starts_at, ends_at, catch_up, tolerance_ms, phase_ms,
    coalesce((SELECT f.batch FROM {schema}.functions f WHERE f.name = t.function), 1) AS batch, overlap, overlap = 'skip' AND (waiting <> '{}' OR coalesce(running_until > %(now)s, false)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'pushed' AND r.task_id = t.id)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'processing' AND r.task_id = t.id)) AS busy
FROM {schema}.tasks t
WHERE enabled AND owner_active AND paused_by IS NULL
  AND next_run <= %(now)s + %(look_ahead)s * interval '1 millisecond'
  AND next_run <= %(now)s + CASE WHEN kind = 'interval' THEN least(%(look_ahead)s, tolerance_ms / 5) ELSE 0 END
                          * interval '1 millisecond'
  AND (push_after IS NULL OR push_after <= %(now)s) AND queue <> ALL (%(without)s::text[])
ORDER BY next_run
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: claim_in_turn
-- The same for a queue that has room for `limit` tasks: one of each owner, then the second of each, and so on. A task without
-- an owner counts as its own owner. Within an owner the priority decides, then the age.
WITH due AS MATERIALIZED (
    SELECT id, next_run, row_number() OVER (PARTITION BY owner_type, CASE owner_type WHEN '' THEN id::text ELSE owner_id END
        ORDER BY priority DESC, next_run, id) AS turn
    FROM {schema}.tasks
    WHERE enabled AND owner_active AND paused_by IS NULL
      AND next_run <= %(now)s + %(look_ahead)s * interval '1 millisecond'
      AND next_run <= %(now)s + CASE WHEN kind = 'interval' THEN least(%(look_ahead)s, tolerance_ms / 5) ELSE 0 END
                              * interval '1 millisecond'
      AND (push_after IS NULL OR push_after <= %(now)s)
      AND queue = %(queue)s
), chosen AS MATERIALIZED (
    SELECT * FROM due ORDER BY turn, next_run LIMIT %(limit)s
)
SELECT t.id, t.next_run AS occurrence, queue, function, kind, expression, zone, every_ms, box_ms, grace_ms, push_errors,
    starts_at, ends_at, catch_up, tolerance_ms, phase_ms,
    coalesce((SELECT f.batch FROM {schema}.functions f WHERE f.name = t.function), 1) AS batch, overlap, overlap = 'skip' AND (waiting <> '{}' OR coalesce(running_until > %(now)s, false)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'pushed' AND r.task_id = t.id)
        OR EXISTS (SELECT FROM {schema}.runs r WHERE r.state = 'processing' AND r.task_id = t.id)) AS busy
FROM {schema}.tasks t JOIN chosen c ON c.id = t.id
WHERE enabled AND owner_active AND paused_by IS NULL AND t.next_run = c.next_run AND queue = %(queue)s
ORDER BY c.turn, c.next_run
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: count_due
SELECT count(*) FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_by IS NULL
  AND next_run <= %(now)s + %(look_ahead)s * interval '1 millisecond'
  AND next_run <= %(now)s + CASE WHEN kind = 'interval' THEN least(%(look_ahead)s, tolerance_ms / 5) ELSE 0 END
                          * interval '1 millisecond'
  AND (push_after IS NULL OR push_after <= %(now)s)
  AND queue = %(queue)s

-- name: advance
-- Redis took the jobs of these locked rows. Notes each occurrence as waiting, unless it has started meanwhile, and sets the
-- next run. If the job also carries other tasks, its id is noted. The newest 10,000 are kept: otherwise a row that was filled
-- by hand would fail the tables' CHECK, and with it all others here.
UPDATE {schema}.tasks t SET
    next_run = a.next_run,
    waiting = CASE WHEN t.next_run = ANY (t.waiting) OR (t.next_run <= t.last_occurrence AND EXISTS (
                       SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.occurrence = t.next_run
                       AND r.kind = 'scheduled' AND r.started_at IS NOT NULL)) THEN t.waiting
                   ELSE t.waiting[greatest(cardinality(t.waiting) - 9998, 1):] || t.next_run END,
    batch_jobs = CASE WHEN a.batch_job IS NULL THEN t.batch_jobs
                      ELSE coalesce(CASE WHEN t.waiting <> '{}' THEN t.batch_jobs END, '{}')
                          || jsonb_build_object({schema}.micros(t.next_run), a.batch_job) END,
    push_errors = 0, push_error = '', push_after = NULL
FROM unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[], %(batch_jobs)s::text[]) AS a (id, next_run, batch_job)
WHERE t.id = a.id

-- name: detach
-- Notes that these occurrences were pushed again, each in a job of its own.
UPDATE {schema}.tasks t SET batch_jobs = nullif(t.batch_jobs - d.keys, '{}')
FROM (SELECT id, array_agg({schema}.micros(occurrence)) AS keys
      FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[]) AS a (id, occurrence) GROUP BY id) d
WHERE t.id = d.id AND t.batch_jobs IS NOT NULL

-- name: skip
-- Occurrences that get no job: an outage made these tasks miss them, or a job of the task waits or runs, and that is
-- what they ask for. Recorded, and passed over.
WITH skipped AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(next_runs)s::timestamptz[],
        %(reasons)s::text[]) AS s (id, occurrence, next_run, reason)
), recorded AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms)
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', s.occurrence, 'ended', 'dropped',
        s.reason, %(now)s, %(now)s, t.last_run, %(now)s, t.every_ms, t.tolerance_ms
    FROM skipped s JOIN {schema}.tasks t ON t.id = s.id
    ON CONFLICT (task_id, occurrence) WHERE kind = 'scheduled' DO NOTHING
    RETURNING task_id
)
UPDATE {schema}.tasks t SET next_run = s.next_run, push_errors = 0, push_error = '', push_after = NULL,
    dropped = t.dropped + (t.id IN (SELECT task_id FROM recorded))::int
FROM skipped s WHERE t.id = s.id

-- name: set_back
-- These could not be pushed: they stay due, wait a while, and say why. (Counts stop where the tables' CHECK ends.)
UPDATE {schema}.tasks t SET
    push_errors = least(t.push_errors + 1, 1000000), push_error = left(b.error, 500), push_after = b.after
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE t.id = b.id

-- name: claim_planned
-- Due retries (also of pieces) and manual runs, with what their push needs from the task's row. `queue`: of this queue alone;
-- otherwise of all queues except `without`.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id
WHERE r.state = 'planned' AND (r.kind <> 'piece' OR r.attempt > 1) AND r.due_at <= %(now)s
  AND CASE WHEN %(queue)s::text IS NULL THEN t.queue <> ALL (%(without)s::text[]) ELSE t.queue = %(queue)s END
ORDER BY r.due_at, r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: claim_pieces
-- The same for pieces: a share of each run that has made some, and nothing of a run that still makes them. Each run is found
-- after the previous one. Pieces that were made before the clock was set back are due.
WITH RECURSIVE parents AS (
    (SELECT parent_id AS id FROM {schema}.runs WHERE state = 'planned' AND kind = 'piece' AND attempt = 1 ORDER BY parent_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.parent_id FROM {schema}.runs r
            WHERE r.state = 'planned' AND r.kind = 'piece' AND r.attempt = 1 AND r.parent_id > p.id
            ORDER BY r.parent_id LIMIT 1)
    FROM parents p WHERE p.id IS NOT NULL
), made AS MATERIALIZED (
    SELECT p.id, p.task_id, t.queue, t.function, t.box_ms, t.grace_ms
    FROM parents m JOIN {schema}.runs p ON p.id = m.id JOIN {schema}.tasks t ON t.id = p.task_id
    WHERE p.state = 'processing'
      AND CASE WHEN %(queue)s::text IS NULL THEN t.queue <> ALL (%(without)s::text[]) ELSE t.queue = %(queue)s END
), chosen AS MATERIALIZED (
    SELECT c.id, c.turn FROM made m, LATERAL (
        SELECT f.id, row_number() OVER (ORDER BY f.id) AS turn FROM (
            SELECT r.id FROM {schema}.runs r
            WHERE r.parent_id = m.id AND r.state = 'planned' AND r.kind = 'piece' AND r.attempt = 1
              AND (r.due_at <= %(now)s OR r.created_at > %(now)s::timestamptz + interval '1 second')
            ORDER BY r.id LIMIT %(limit)s) f) c
    ORDER BY c.turn, c.id LIMIT %(limit)s
)
SELECT r.id, r.task_id, m.queue, m.function, m.box_ms, m.grace_ms
FROM chosen c JOIN {schema}.runs r ON r.id = c.id JOIN made m ON m.id = r.parent_id
WHERE r.state = 'planned'
ORDER BY c.turn, r.id
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: mark_pushed
UPDATE {schema}.runs SET state = 'pushed', pushed_at = %(now)s, reason = '' WHERE id = ANY (%(ids)s::bigint[])

-- name: set_back_planned
-- A planned run that could not be pushed tries again later, and says why.
UPDATE {schema}.runs r SET due_at = b.after, reason = left(b.error, 500)
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE r.id = b.id

-- name: drop_orphaned_plans
-- Drops planned runs whose task was deleted: pieces, which a deletion leaves to ticks, and what a deletion under REPEATABLE
-- READ did not see. If a run ended before it had made all its pieces, they never counted: they are deleted.
WITH RECURSIVE parents AS (
    (SELECT parent_id AS id FROM {schema}.runs WHERE state = 'planned' AND kind = 'piece' AND attempt = 1 ORDER BY parent_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.parent_id FROM {schema}.runs r
            WHERE r.state = 'planned' AND r.kind = 'piece' AND r.attempt = 1 AND r.parent_id > p.id
            ORDER BY r.parent_id LIMIT 1)
    FROM parents p WHERE p.id IS NOT NULL
), made AS MATERIALIZED (
    SELECT m.id, coalesce(p.state = 'ended', false) AS is_over, EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = p.task_id) AS is_wanted
    FROM parents m LEFT JOIN {schema}.runs p ON p.id = m.id WHERE m.id IS NOT NULL
), pieces AS MATERIALIZED (
    SELECT r.id, m.is_over FROM made m, LATERAL (
        SELECT r.id FROM {schema}.runs r
        WHERE r.parent_id = m.id AND r.state = 'planned' AND r.kind = 'piece' AND r.attempt = 1
        ORDER BY r.id LIMIT 20 * %(limit)s FOR NO KEY UPDATE SKIP LOCKED) r
    WHERE m.is_over OR NOT m.is_wanted
), unmade AS (
    DELETE FROM {schema}.runs r USING pieces p WHERE p.is_over AND r.id = p.id
), planned AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE r.state = 'planned' AND (r.kind <> 'piece' OR r.attempt > 1) AND r.due_at <= %(now)s
      AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.runs r SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = %(now)s
WHERE r.id IN (SELECT id FROM planned UNION ALL SELECT id FROM pieces WHERE NOT is_over)


-- -------------------------------------------------------------------------------------------- started, or dropped

-- name: start
-- Decides, under the task's row lock and by the clock read after it, whether a scheduled job may run; records it.
-- `true_last_run` is the last run by the uptime of this host, to which the wait for the lock is added. The spacing counts
-- from the later one of the two; where the uptime says over 3 s less, the clock was set back, and the uptime decides alone.
-- (Under that it may be the way of the statement to the server, for which nobody waits longer than 2 s.) So it does where it
-- says over 20 s more: up to that the server may have been stopped before it read the statement, and a clock that was set
-- forward is left to the ticker, which sees it by its own uptime; the row is only due the sooner. The first job that comes
-- too early after the clock was set is dropped as `clock`, and brings the row's times to the new clock.
-- `record_of` (a volatile function) sees what was committed while this waited for the lock; the statement itself does not.
-- Three refusals are not drops, and leave no record. If the task is gone, its deletion has recorded what waited. If a job is
-- delivered again (`redelivered`), the record of its occurrence gets an event. If the row neither waits for the occurrence nor
-- has it as its next run (`stale`), as after the restore of an older dump, the installation gets an event: the job may have
-- been meant for another task. If a later occurrence has started, `stale` is only a line in the worker's log. The record was
-- then pruned, or the tick was killed before it could commit. (A tick that is killed in this way leaves a job for the next
-- run, which is expected.)
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
        CASE WHEN c.clock_was_set THEN coalesce(m.true_last_run, m.now)
             ELSE greatest(m.last_run, m.true_last_run) END AS spaced_from
    FROM measured m, LATERAL (
        SELECT CASE WHEN m.true_last_run IS NULL THEN m.last_run > m.now
            ELSE m.true_last_run NOT BETWEEN m.last_run - interval '20 seconds' AND m.last_run + interval '20 seconds'
            END AS clock_was_set) c
), identified AS MATERIALIZED (
    SELECT s.*, {schema}.record_of(%(task_id)s, %(occurrence)s) AS record,
        %(occurrence)s = ANY (s.waiting) OR %(occurrence)s IS NOT DISTINCT FROM s.next_run AS is_expected
    FROM spaced s
), judged AS MATERIALIZED (
    SELECT l.*, CASE
        WHEN l.id IS NULL THEN 'gone'
        WHEN l.record IS NOT NULL THEN 'redelivered'
        WHEN NOT l.is_expected THEN 'stale'
        WHEN l.function <> ALL (%(functions)s::text[]) THEN 'unknown_function'
        WHEN NOT l.enabled OR NOT l.owner_active
             OR (l.paused_by IS NOT NULL AND (l.paused_until IS NULL OR l.now < l.paused_until)) THEN 'paused'
        WHEN l.started >= l.max_runs THEN 'done'
        WHEN l.clock_was_set AND (l.true_last_run IS NULL OR (l.kind = 'interval'
             AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond')) THEN 'clock'
        WHEN %(occurrence)s < l.now - greatest(2 * l.every_ms, 600000) * interval '1 millisecond'
             AND %(occurrence)s < (SELECT max(w) FROM unnest(l.waiting) w) THEN 'expired'
        WHEN %(occurrence)s <= least(l.last_occurrence, CASE WHEN l.clock_was_set THEN l.spaced_from END) THEN 'duplicate'
        WHEN CASE WHEN l.held_since IS NULL THEN l.now < l.running_until ELSE l.hold_left > interval '0' END
             THEN 'still_running'
        WHEN l.kind = 'interval'
             AND l.now < l.spaced_from + (l.every_ms - l.tolerance_ms) * interval '1 millisecond' THEN 'too_early'
        END AS refusal
    FROM identified l
), ruled AS MATERIALIZED (
    SELECT *, refusal IS NULL OR refusal NOT IN ('gone', 'redelivered', 'stale') AS is_recorded FROM judged
), changed AS (
    UPDATE {schema}.tasks t SET
        waiting = array_remove(j.waiting, %(occurrence)s),
        batch_jobs = nullif(j.batch_jobs - {schema}.micros(%(occurrence)s), '{}'),
        started = CASE WHEN j.refusal IS NULL THEN least(j.started + 1, 1000000000) ELSE j.started END,
        dropped = j.dropped + (j.is_recorded AND j.refusal IS NOT NULL)::int,
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
    FROM ruled j, LATERAL (SELECT CASE WHEN j.refusal IS NULL AND j.started + 1 >= j.max_runs THEN NULL
        WHEN j.kind <> 'interval' OR j.next_run IS NULL THEN j.next_run
        WHEN (CASE j.refusal WHEN 'clock' THEN j.true_last_run IS NOT NULL
                             WHEN 'too_early' THEN j.true_last_run > j.last_run + interval '3 seconds' END)
             AND j.next_run > j.spaced_from + j.every_ms * interval '1 millisecond'
        THEN greatest(j.starts_at, j.spaced_from + j.every_ms * interval '1 millisecond')
        WHEN j.refusal IS NULL AND (j.clock_was_set OR %(occurrence)s > j.now + interval '1 second')
        THEN greatest(j.starts_at, j.now + j.every_ms * interval '1 millisecond') ELSE j.next_run END AS next_run) n
    WHERE t.id = j.id AND j.refusal IS DISTINCT FROM 'stale'
), recorded AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason, token,
        started_at, until, boot, uptime_us, ended_at, created_at, checked_last_run, checked_at, every_ms,
        tolerance_ms, worker, host, pid, job_id)
    SELECT j.id, j.name, j.function, j.owner_type, j.owner_id, 'scheduled', %(occurrence)s,
        CASE WHEN j.refusal IS NULL THEN 'running' ELSE 'ended' END,
        CASE WHEN j.refusal IS NOT NULL THEN 'dropped' END, coalesce(j.refusal, ''),
        CASE WHEN j.refusal IS NULL THEN %(token)s::uuid END,
        CASE WHEN j.refusal IS NULL THEN j.now END, CASE WHEN j.refusal IS NULL THEN j.now + j.hold END,
        CASE WHEN j.refusal IS NULL THEN %(boot)s::text END, CASE WHEN j.refusal IS NULL THEN j.uptime END,
        CASE WHEN j.refusal IS NOT NULL THEN j.now END, j.now,
        j.spaced_from, j.now, j.every_ms, j.tolerance_ms, %(worker)s, %(host)s, %(pid)s, %(job_id)s
    FROM ruled j WHERE j.is_recorded
    RETURNING id
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, words, run_id)
    SELECT j.now, j.id, j.name, j.function, j.owner_type, j.owner_id, 'redelivered',
        format('job %%s reached worker %%s, and its occurrence had a record', %(job_id)s::text, %(worker)s::text), j.record
    FROM ruled j WHERE j.refusal = 'redelivered'
    UNION ALL
    SELECT j.now, 0, '', '', '', '', 'stale', format('job %%s reached worker %%s, and task %%s does not wait for it',
        %(job_id)s::text, %(worker)s::text, %(task_id)s::bigint), NULL
    FROM ruled j WHERE (j.refusal = 'stale' AND %(occurrence)s > coalesce(j.last_occurrence, '-infinity'))
        OR (j.refusal = 'gone' AND j.record IS NULL)
)
SELECT j.refusal, j.now, coalesce(recorded.id, j.record) AS run_id, j.name, j.function, j.kwargs, j.owner_type, j.owner_id, j.cursor,
    j.kind, j.every_ms, j.tolerance_ms, j.box_ms, j.grace_ms, j.spaced_from AS last_run, j.last_occurrence,
    CASE WHEN j.held_since IS NULL THEN j.running_until ELSE j.now + j.hold_left END AS running_until,
    j.spaced_from - j.last_run AS set_by, 'scheduled' AS run_kind, %(occurrence)s::timestamptz AS occurrence, 1 AS attempt,
    NULL::jsonb AS item
FROM ruled j LEFT JOIN recorded ON true

-- name: start_planned
-- The same for a planned run: it obeys enabled and the hold (a manual run also starts while the task is paused; a piece
-- runs next to the others), skips the too-early and duplicate checks, and never touches last_run or last_occurrence. A run
-- that does not exist, or belongs to another task, is `stale`. A retry or a piece has to be dead before the next start may come, so its box shrinks to
-- what is left until then; under a second, or behind a newer occurrence (of a task by times: one that waits may start at
-- any moment), there is no time for it. What a manual run made or left is bounded by the next occurrence, as nobody knows
-- its next start.
WITH locked AS MATERIALIZED (
    SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), plan AS MATERIALIZED (
    SELECT r.* FROM {schema}.runs r, (SELECT count(id) FROM locked) AS after_the_task
    WHERE r.id = %(run_id)s AND r.task_id = %(task_id)s FOR NO KEY UPDATE OF r
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found FROM plan
), bounded AS MATERIALIZED (
    SELECT i.now, l.*, p.id AS run_id, p.kind AS run_kind, p.occurrence, p.attempt, p.item, p.state,
        coalesce(p.kind IN ('retry', 'piece') AND (p.occurrence < l.last_occurrence OR (l.kind <> 'interval'
            AND p.occurrence < (SELECT max(w) FROM unnest(l.waiting) w))), false) AS is_past,
        m.room, least(l.box_ms, m.room) AS box
    FROM instant i LEFT JOIN locked l ON true LEFT JOIN plan p ON true, LATERAL (
        SELECT CASE WHEN p.kind IN ('retry', 'piece') THEN floor(1000 * extract(epoch FROM
            CASE WHEN l.kind = 'interval' AND p.occurrence IS NOT NULL
                 THEN l.last_run + (l.every_ms - l.tolerance_ms - l.grace_ms) * interval '1 millisecond'
                 ELSE l.next_run - (l.tolerance_ms + l.grace_ms) * interval '1 millisecond' END - i.now))::bigint END AS room) m
), judged AS MATERIALIZED (
    SELECT b.*, (b.box + b.grace_ms) * interval '1 millisecond' AS hold,
        coalesce(b.now + h.hold_left, b.running_until) AS held_until,
        coalesce(b.state IN ('planned', 'pushed'), false) AS fresh, CASE
        WHEN b.id IS NULL THEN 'gone'
        WHEN b.run_id IS NULL THEN 'stale'
        WHEN b.state NOT IN ('planned', 'pushed') THEN 'redelivered'
        WHEN b.function <> ALL (%(functions)s::text[]) THEN 'unknown_function'
        WHEN NOT b.enabled OR NOT b.owner_active OR (b.run_kind <> 'manual' AND b.paused_by IS NOT NULL
             AND (b.paused_until IS NULL OR b.now < b.paused_until)) THEN 'paused'
        WHEN b.is_past OR b.room < 1000 THEN 'no_time'
        WHEN b.run_kind <> 'piece' AND b.now < coalesce(b.now + h.hold_left, b.running_until) THEN 'still_running'
        END AS refusal
    FROM bounded b LEFT JOIN LATERAL (
        SELECT r.until - r.started_at - (%(uptime)s::bigint - r.uptime_us) * interval '1 microsecond' AS hold_left
        FROM {schema}.runs r WHERE r.token = b.run_token AND r.state = 'running'
            AND r.boot = %(boot)s::text AND r.uptime_us <= %(uptime)s::bigint) h ON true
), changed AS (
    UPDATE {schema}.tasks t SET
        run_token = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece' THEN %(token)s::uuid ELSE t.run_token END,
        running_until = CASE WHEN j.refusal IS NULL AND j.run_kind <> 'piece' THEN j.now + j.hold ELSE t.running_until END,
        dropped = t.dropped + (j.refusal IS NOT NULL)::int
    FROM judged j WHERE t.id = j.id AND j.fresh AND j.run_kind <> 'piece'
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
        follow_up = j.refusal IS NOT NULL AND j.run_kind = 'retry',
        checked_last_run = j.last_run, checked_at = j.now, every_ms = j.every_ms, tolerance_ms = j.tolerance_ms,
        worker = %(worker)s, host = %(host)s, pid = %(pid)s, job_id = %(job_id)s
    FROM judged j WHERE r.id = j.run_id AND j.fresh
    RETURNING r.id
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, words, run_id)
    SELECT j.now, j.id, j.name, j.function, j.owner_type, j.owner_id, 'redelivered',
        format('job %%s reached worker %%s, and its run had %%s', %(job_id)s::text, %(worker)s::text,
            CASE j.state WHEN 'ended' THEN 'ended' ELSE 'started' END), j.run_id
    FROM judged j WHERE j.refusal = 'redelivered'
    UNION ALL
    SELECT j.now, 0, '', '', '', '', 'stale', format('job %%s reached worker %%s, and task %%s has no run %%s',
        %(job_id)s::text, %(worker)s::text, %(task_id)s::bigint, %(run_id)s::bigint), NULL
    FROM judged j WHERE j.run_id IS NULL
)
SELECT j.refusal, j.now, coalesce(taken.id, j.run_id) AS run_id, j.name, j.function, j.kwargs, j.owner_type,
    j.owner_id, j.cursor, j.kind, j.every_ms, j.tolerance_ms, j.box AS box_ms, j.grace_ms, j.last_run, j.last_occurrence,
    j.held_until AS running_until, j.run_kind, j.occurrence, j.attempt, j.item
FROM judged j LEFT JOIN taken ON true


-- ----------------------------------------------------------------------------------------------- running, and ended

-- name: checkpoint
-- Where the next run goes on; only the run that holds the task may write it.
UPDATE {schema}.tasks SET cursor = %(cursor)s::jsonb
WHERE id = %(task_id)s AND run_token = %(token)s::uuid
RETURNING id

-- name: finish
-- The end, fenced by the token: a run that lost its hold changes nothing (a piece has none to lose). A run whose task is
-- gone still ends. A start that was given up, since its answer came too late, was asked for with an uptime that may be as
-- old: it tells nothing. A tick sees to what follows from a failure, and from a success after some; where a task has
-- retries, it also counts the failures, as one that is retried is none. The run ended `age` seconds before this statement.
WITH held AS MATERIALIZED (
    SELECT id, run_token IS NOT DISTINCT FROM %(token)s::uuid AS mine,
        told <> '' OR stretched_ms IS NOT NULL OR (dead_man IS NOT NULL AND alarm_at IS NULL) AS ailing
    FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) - %(age)s::float8 * interval '1 second' AS ended_at,
        coalesce(bool_and(mine), true) AS mine, %(outcome)s IN ('succeeded', 'partial', 'nothing_to_do') AS good, bool_or(ailing) AS ailing
    FROM held
), ended AS (
    UPDATE {schema}.runs r SET
        state = 'ended', outcome = %(outcome)s, reason = %(reason)s, result = %(result)s::jsonb,
        traceback = %(traceback)s, output = %(output)s, error_output = %(error_output)s,
        ended_at = greatest(r.started_at, i.ended_at),
        pid = coalesce(%(pid)s::integer, r.pid),
        follow_up = coalesce(NOT i.good OR (i.ailing AND r.kind <> 'piece'), false)
    FROM instant i
    WHERE r.token = %(token)s::uuid AND r.state = 'running' AND (i.mine OR r.kind = 'piece')
    RETURNING r.id, r.kind, r.ended_at
), freed AS (
    UPDATE {schema}.tasks t SET
        run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = %(outcome)s, last_ended_at = e.ended_at,
        last_success_at = CASE WHEN i.good THEN e.ended_at ELSE t.last_success_at END,
        last_worked_at = CASE WHEN %(outcome)s IN ('succeeded', 'partial') THEN e.ended_at ELSE t.last_worked_at END,
        last_boot = CASE WHEN %(outcome)s <> 'lost' THEN t.last_boot END,
        last_uptime_us = CASE WHEN %(outcome)s <> 'lost' THEN t.last_uptime_us END,
        failures = CASE WHEN i.good THEN 0 WHEN t.retries > 0 AND e.kind <> 'manual' THEN t.failures
                        ELSE least(t.failures + 1, 1000000) END,
        succeeded = t.succeeded + i.good::int, failed = t.failed + (NOT i.good)::int
    FROM instant i, ended e
    WHERE t.id = %(task_id)s AND t.run_token = %(token)s::uuid
)
SELECT id AS run_id FROM ended

-- name: outcome_of
SELECT outcome FROM {schema}.runs WHERE id = %(run_id)s AND token = %(token)s::uuid

-- name: finish_late
-- The end of a run that the sweep has declared lost. It becomes the record, unless a later run of the task has started, or
-- the next attempt of a piece. A success takes back the failure and its effects: a retry that has not started ends as a
-- `duplicate` (that of a piece counts in no sum of its run). The next tick ends a pause, and what `follow_up` handles (a
-- longer interval, a notice).
WITH held AS MATERIALIZED (
    SELECT * FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), run AS MATERIALIZED (
    SELECT r.* FROM {schema}.runs r, (SELECT count(id) FROM held) AS after_the_task
    WHERE r.id = %(run_id)s AND r.token = %(token)s::uuid AND r.outcome = 'lost' AND r.started_at IS NOT NULL
    FOR NO KEY UPDATE OF r
), next AS MATERIALIZED (
    SELECT n.id FROM run r JOIN {schema}.runs n ON n.parent_id = coalesce(r.parent_id, r.id) AND n.attempt = r.attempt + 1
        AND n.kind = CASE r.kind WHEN 'piece' THEN 'piece' ELSE 'retry' END AND n.item IS NOT DISTINCT FROM r.item
    WHERE n.state IN ('planned', 'pushed')
    ORDER BY n.id LIMIT 1 FOR NO KEY UPDATE OF n
), late AS MATERIALIZED (
    SELECT r.*, i.now, %(outcome)s IN ('succeeded', 'partial', 'nothing_to_do') AS good,
        greatest(r.started_at, coalesce(%(now)s::timestamptz, statement_timestamp()) - %(age)s::float8 * interval '1 second')
            AS true_end, (SELECT count(*) FROM next) AS open,
        h.told <> '' OR h.stretched_ms IS NOT NULL OR (h.dead_man IS NOT NULL AND h.alarm_at IS NULL) AS ailing
    FROM run r LEFT JOIN held h ON true, LATERAL (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
    WHERE %(outcome)s <> 'lost' AND CASE WHEN r.kind = 'piece' THEN (NOT r.retried OR EXISTS (SELECT FROM next))
            AND EXISTS (SELECT FROM {schema}.runs p WHERE p.id = r.parent_id AND p.state = 'processing')
        ELSE h.id IS NULL OR (h.run_token IS NULL AND h.last_run_id = r.id AND NOT EXISTS (
            SELECT FROM {schema}.runs p WHERE p.state = 'processing' AND p.task_id = h.id AND p.started_at > r.started_at)) END
), recorded AS (
    UPDATE {schema}.runs r SET outcome = %(outcome)s, reason = %(reason)s, result = %(result)s::jsonb,
        pid = coalesce(%(pid)s::integer, r.pid), traceback = %(traceback)s, output = %(output)s, error_output = %(error_output)s, ended_at = l.true_end,
        retried = l.retried AND NOT l.good,
        follow_up = CASE WHEN l.good THEN coalesce(l.ailing AND l.kind <> 'piece', false) ELSE l.follow_up END
    FROM late l WHERE r.id = l.id
), cancelled AS (
    UPDATE {schema}.runs n SET state = 'ended', outcome = 'dropped', reason = 'duplicate', ended_at = l.now,
        retried = n.kind = 'piece'
    FROM late l, next WHERE n.id = next.id AND l.good
), noted AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words, run_id)
    SELECT l.now, l.task_id, l.task_name, l.function, l.owner_type, l.owner_id, 'end_recorded_late', 'worker',
        %(outcome)s::text || ' at ' || to_char(l.true_end AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC, recorded at '
            || to_char(l.now AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC', l.id
    FROM late l
), corrected AS (
    UPDATE {schema}.tasks t SET last_outcome = %(outcome)s, last_ended_at = l.true_end,
        last_success_at = CASE WHEN l.good THEN greatest(t.last_success_at, l.true_end) ELSE t.last_success_at END,
        last_worked_at = CASE WHEN %(outcome)s IN ('succeeded', 'partial') THEN greatest(t.last_worked_at, l.true_end)
                         ELSE t.last_worked_at END,
        failures = CASE WHEN l.good THEN 0 ELSE t.failures END,
        succeeded = t.succeeded + l.good::int, failed = greatest(t.failed - l.good::int, 0),
        dropped = t.dropped + CASE WHEN l.good THEN l.open ELSE 0 END,
        paused_until = CASE WHEN l.good AND t.paused_by = 'ticker' AND EXISTS (
            SELECT FROM {schema}.events e WHERE e.task_id = t.id AND e.what = 'auto_paused' AND e.at >= l.started_at)
            THEN l.now ELSE t.paused_until END
    FROM late l WHERE t.id = l.task_id AND l.kind <> 'piece'
)
SELECT id AS run_id FROM late
-- name: add_pieces
-- Records some of the many pieces of a run, while it holds its task. No tick looks at them before all are made.
INSERT INTO {schema}.runs (
    task_id, task_name, function, owner_type, owner_id, kind, parent_id, item, occurrence, state, due_at, created_at)
SELECT p.task_id, p.task_name, p.function, p.owner_type, p.owner_id, 'piece', p.id, e.item, p.occurrence, 'planned', i.now, i.now
FROM {schema}.runs p, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i,
    jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY AS e (item, n)
WHERE p.token = %(token)s::uuid AND p.state = 'running'
  AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = p.task_id AND t.run_token IS DISTINCT FROM %(token)s::uuid)
ORDER BY e.n
RETURNING id

-- name: generated
-- A run has made its pieces of work. The last ones are recorded after the `made` ones that are recorded already. The run then
-- waits for all of them, without a hold.
-- Those of a task that is gone by now, too: they end as those do whose task went a moment later.
WITH held AS MATERIALIZED (
    SELECT id, run_token IS NOT DISTINCT FROM %(token)s::uuid AS mine
    FROM {schema}.tasks WHERE id = %(task_id)s FOR NO KEY UPDATE
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, coalesce(bool_and(mine), true) AS mine FROM held
), parent AS (
    UPDATE {schema}.runs r SET
        state = 'processing', pieces = %(made)s + jsonb_array_length(%(items)s::jsonb),
        output = %(output)s, error_output = %(error_output)s,
        pid = coalesce(%(pid)s::integer, r.pid)
    FROM instant i
    WHERE r.token = %(token)s::uuid AND r.state = 'running' AND i.mine
    RETURNING r.id, r.task_id, r.task_name, r.function, r.owner_type, r.owner_id, r.occurrence
), made AS (
    INSERT INTO {schema}.runs (
        task_id, task_name, function, owner_type, owner_id, kind, parent_id, item, occurrence, state, due_at, created_at)
    SELECT p.task_id, p.task_name, p.function, p.owner_type, p.owner_id, 'piece', p.id, e.item, p.occurrence, 'planned',
        i.now, i.now
    FROM parent p, instant i, jsonb_array_elements(%(items)s::jsonb) WITH ORDINALITY AS e (item, n)
    ORDER BY e.n
), freed AS (
    UPDATE {schema}.tasks t SET run_token = NULL, running_until = NULL
    FROM parent p WHERE t.id = p.task_id AND t.run_token = %(token)s::uuid
)
SELECT id AS run_id FROM parent


-- ------------------------------------------------------------------------------------------------- followed up

-- name: claim_ended
-- Ends that lead to something more, with their tasks; both locked. What nobody has to see to any more is let go first.
WITH orphaned AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE r.follow_up AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    UPDATE {schema}.runs r SET follow_up = false FROM orphaned o WHERE r.id = o.id
)
SELECT r.id AS run_id, r.task_id, r.kind, r.occurrence, r.attempt, r.outcome, r.reason, r.started_at IS NOT NULL AS started,
    r.ended_at, r.pieces IS NOT NULL AS has_pieces, t.kind AS schedule, t.every_ms, t.tolerance_ms, t.grace_ms,
    t.last_run, t.next_run, coalesce(r.occurrence < t.last_occurrence OR (t.kind <> 'interval'
        AND r.occurrence < (SELECT max(w) FROM unnest(t.waiting) w)), false) AS is_past,
    coalesce(t.last_success_at > coalesce(r.started_at, r.ended_at), false) AS made_good,
    t.retries, t.backoff, t.failures, t.told, t.stretch_ms, t.stretched_ms, t.pause_after, t.probe_ms,
    t.paused_by IS NOT NULL AS paused, CASE WHEN t.pause_after IS NULL THEN 0 ELSE (
        SELECT count(*) FROM {schema}.events e WHERE e.task_id = t.id AND e.what = 'auto_paused' AND e.id > coalesce((
            SELECT max(id) FROM {schema}.events WHERE task_id = t.id AND what = 'recovered'), 0)) END AS pauses,
    t.dead_man, t.alarm_at
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id
WHERE r.follow_up AND r.state = 'ended'
ORDER BY r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r, t SKIP LOCKED

-- name: mark_followed
-- These are seen to; where no retry follows, the reason says why.
UPDATE {schema}.runs r SET follow_up = false, retried = f.retried,
    reason = CASE WHEN f.note = '' THEN r.reason ELSE left(concat_ws(' ', nullif(r.reason, ''), '(' || f.note || ')'), 2000) END
FROM unnest(%(ids)s::bigint[], %(retried)s::boolean[], %(notes)s::text[]) AS f (id, retried, note)
WHERE r.id = f.id

-- name: plan_retries
-- A further attempt of each of these runs, or pieces.
INSERT INTO {schema}.runs (
    task_id, task_name, function, owner_type, owner_id, kind, parent_id, item, occurrence, attempt, state, due_at, created_at)
SELECT r.task_id, r.task_name, r.function, r.owner_type, r.owner_id, CASE r.kind WHEN 'piece' THEN 'piece' ELSE 'retry' END,
    coalesce(r.parent_id, r.id), r.item, r.occurrence, r.attempt + 1, 'planned', p.due_at, %(now)s
FROM unnest(%(ids)s::bigint[], %(dues)s::timestamptz[]) AS p (id, due_at) JOIN {schema}.runs r ON r.id = p.id
ORDER BY p.due_at, r.id

-- name: judge_tasks
-- What the ends of their runs make of these tasks.
UPDATE {schema}.tasks t SET
    failures = least(j.failures, 1000000), told = j.told, stretched_ms = j.stretched_ms, next_run = j.next_run,
    alarm_at = j.alarm_at,
    paused_by = CASE WHEN j.pause_until IS NULL THEN t.paused_by ELSE 'ticker' END,
    paused_reason = CASE WHEN j.pause_until IS NULL THEN t.paused_reason ELSE left(j.pause_reason, 2000) END,
    paused_until = CASE WHEN j.pause_until IS NULL THEN t.paused_until ELSE j.pause_until END
FROM unnest(%(ids)s::bigint[], %(failures)s::integer[], %(tolds)s::text[], %(stretched)s::bigint[],
    %(next_runs)s::timestamptz[], %(alarms)s::timestamptz[], %(pause_reasons)s::text[], %(pause_untils)s::timestamptz[])
    AS j (id, failures, told, stretched_ms, next_run, alarm_at, pause_reason, pause_until)
WHERE t.id = j.id

-- name: record_events
-- In this order, which is that of their ids.
INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words, run_id)
SELECT %(now)s, t.id, t.name, t.function, t.owner_type, t.owner_id, e.what, 'ticker', left(e.words, 2000), e.run_id
FROM unnest(%(ids)s::bigint[], %(whats)s::text[], %(words)s::text[], %(run_ids)s::bigint[]) WITH ORDINALITY
    AS e (id, what, words, run_id, n) JOIN {schema}.tasks t ON t.id = e.id
ORDER BY e.n

-- name: sum_up_patience
-- Statements of this transaction get a longer time-out.
SELECT set_config('statement_timeout', '12s', true)

-- name: sum_up
-- Runs whose pieces have all ended, as their last attempts did: the worst of them is the outcome of the run, and of its
-- task; a piece whose row is gone counts as failed. One run of each task at a time. Where a later run of the task has ended
-- before, the task is as that one left it, but for its totals. A run of a task that is gone ends, too. OFFSET 0 makes
-- the check for pieces at work use the index for each run: as a join it might read all runs. Counting a million pieces takes
-- seconds, so the task is locked only after that.
WITH complete AS MATERIALIZED (
    SELECT r.id, r.task_id, r.pieces, r.started_at FROM {schema}.runs r
    WHERE r.state = 'processing'
      AND NOT EXISTS (SELECT FROM {schema}.runs p WHERE p.parent_id = r.id AND p.kind = 'piece'
                      AND (p.state <> 'ended' OR p.follow_up) OFFSET 0)
    ORDER BY r.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT DISTINCT ON (task_id) * FROM complete ORDER BY task_id, id
), summed AS MATERIALIZED (
    SELECT c.id, c.task_id, c.pieces, c.started_at, p.*
    FROM chosen c, LATERAL (
        SELECT count(*) AS count, count(*) FILTER (WHERE p.outcome IN ('failed', 'timed_out', 'killed', 'lost')) AS failed,
            count(*) FILTER (WHERE p.outcome = 'dropped') AS dropped,
            count(*) FILTER (WHERE p.outcome = 'partial') AS partial,
            count(*) FILTER (WHERE p.outcome = 'succeeded') AS succeeded
        FROM {schema}.runs p WHERE p.parent_id = c.id AND p.kind = 'piece' AND NOT p.retried) p
), held AS MATERIALIZED (
    SELECT t.id, t.last_run_id,
        t.told <> '' OR t.stretched_ms IS NOT NULL OR (t.dead_man IS NOT NULL AND t.alarm_at IS NULL) AS ailing
    FROM {schema}.tasks t WHERE t.id IN (SELECT task_id FROM summed) ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT c.id, c.task_id, c.pieces, h.ailing, c.partial, c.succeeded, c.dropped,
        c.failed + greatest(c.pieces - c.count, 0) AS failed,
        NOT EXISTS (SELECT FROM {schema}.runs n WHERE n.id = h.last_run_id AND n.started_at > c.started_at) AS latest
    FROM summed c LEFT JOIN held h ON h.id = c.task_id
    WHERE h.id IS NOT NULL OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = c.task_id)
), judged AS MATERIALIZED (
    SELECT *, CASE WHEN failed + dropped > 0 THEN 'failed' WHEN partial > 0 THEN 'partial'
                   WHEN succeeded > 0 THEN 'succeeded' ELSE 'nothing_to_do' END AS outcome,
        concat_ws(', ', CASE WHEN failed > 0 THEN failed || ' of ' || pieces || ' pieces failed' END,
            CASE WHEN dropped > 0 THEN dropped || ' of ' || pieces || ' pieces dropped' END) AS reason
    FROM counted
), ended AS (
    UPDATE {schema}.runs r SET state = 'ended', outcome = j.outcome, reason = j.reason, ended_at = %(now)s,
        follow_up = j.ailing IS NOT NULL AND (j.outcome = 'failed' OR j.ailing)
    FROM judged j WHERE r.id = j.id
    RETURNING r.id, r.kind
), noted AS (
    UPDATE {schema}.tasks t SET
        last_run_id = CASE WHEN j.latest THEN e.id ELSE t.last_run_id END,
        last_outcome = CASE WHEN j.latest THEN j.outcome ELSE t.last_outcome END,
        last_ended_at = CASE WHEN j.latest THEN %(now)s ELSE t.last_ended_at END,
        last_success_at = CASE WHEN j.outcome <> 'failed' THEN %(now)s ELSE t.last_success_at END,
        last_worked_at = CASE WHEN j.outcome IN ('succeeded', 'partial') THEN %(now)s ELSE t.last_worked_at END,
        failures = CASE WHEN NOT j.latest THEN t.failures WHEN j.outcome <> 'failed' THEN 0
                        WHEN t.retries > 0 AND e.kind <> 'manual' THEN t.failures
                        ELSE least(t.failures + 1, 1000000) END,
        succeeded = t.succeeded + (j.outcome <> 'failed')::int, failed = t.failed + (j.outcome = 'failed')::int
    FROM judged j JOIN ended e ON e.id = j.id
    WHERE t.id = j.task_id
)
SELECT id FROM ended

-- name: claim_alarms
-- Tasks of which to ask whether they have had a success lately; locked. What was never pushed waits for its first time.
SELECT id, kind, expression, zone, every_ms, phase_ms, dead_man, greatest(last_success_at, resumed_at, starts_at, created_at,
        CASE WHEN last_occurrence IS NULL AND waiting = '{}' AND dropped = 0
            AND NOT EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled' OFFSET 0)
        THEN next_run - CASE kind WHEN 'interval' THEN interval '0' ELSE interval '1 microsecond' END END) AS since,
    last_success_at, box_ms + grace_ms AS longest_run,
    next_run IS NULL AND waiting = '{}' AND run_token IS NULL
        AND coalesce(last_outcome IN ('succeeded', 'partial', 'nothing_to_do'), false) AS is_done
FROM {schema}.tasks t
WHERE alarm_at <= %(now)s AND enabled AND owner_active AND paused_by IS NULL
ORDER BY alarm_at
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: set_alarms
-- When to ask again; none: somebody is told now, and the next success asks again.
UPDATE {schema}.tasks t SET alarm_at = a.alarm_at, told = CASE WHEN a.alarm_at IS NULL THEN 'failed' ELSE t.told END
FROM unnest(%(ids)s::bigint[], %(alarms)s::timestamptz[]) AS a (id, alarm_at)
WHERE t.id = a.id


-- --------------------------------------------------------------------------------------------------------- swept

-- name: clamp
-- After the clock was set, brings the tasks' times to the instant that is read after the rows' locks: an older one, of
-- a ticker that was stopped meanwhile, would end holds of living runs. `stepped`: the ticker saw it itself, by its
-- uptime. It looks at so many rows, in the order of their ids, and answers with the last of them. What started on this host is
-- told by its uptime, and due an interval after its true last run (no later than it was, if the two differ by up to 20 s
-- and the ticker saw no step: it may also be that a stopped server read the start late); of the rest, only what lies
-- too far ahead is brought back; so is a back-off, the longest of which is an hour. After an outage, a task with a place in
-- its interval may wait for it up to two intervals. A task that was never pushed keeps
-- its `first`, unless it was itself registered in the future. The planner expects next to
-- nothing behind the list of ids, and so each row is found by its own id from there on: a second list would be gone
-- through for each row, 5,000 times 5,000, behind a step that all rows feel.
WITH measured AS MATERIALIZED (
    SELECT t.id, i.now, CASE WHEN t.last_run IS NOT NULL AND t.last_boot = %(boot)s::text
            AND t.last_uptime_us <= %(uptime)s::bigint
        THEN i.now - (%(uptime)s::bigint - t.last_uptime_us) * interval '1 microsecond' END AS true_last_run,
        greatest(t.every_ms * CASE WHEN t.phase_ms IS NULL THEN 1 ELSE 2 END, t.stretched_ms) * interval '1 millisecond' AS reach
    FROM {schema}.tasks t, (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) i
    WHERE t.id > %(after)s::bigint ORDER BY t.id LIMIT %(limit)s
), ahead AS MATERIALIZED (
    SELECT t.id, m.reach FROM {schema}.tasks t JOIN measured m ON m.id = t.id
    WHERE t.id = ANY (ARRAY(SELECT id FROM measured)) AND (abs(extract(epoch FROM m.true_last_run - t.last_run)) > 3
        OR (m.true_last_run IS NULL AND t.last_run > m.now) OR t.last_occurrence > m.now + interval '1 second'
        OR t.running_until > m.now + coalesce(
            (SELECT greatest(r.until - r.started_at, interval '0') FROM {schema}.runs r
             WHERE r.token = t.run_token AND r.state = 'running'),
            (t.box_ms + t.grace_ms) * interval '1 millisecond')
        OR t.push_after > m.now + CASE WHEN %(stepped)s THEN interval '0' ELSE interval '61 minutes' END
        OR (t.kind = 'interval' AND t.next_run > m.now + m.reach + interval '1 second'
            AND (t.starts_at IS NULL OR t.next_run > t.starts_at)
            AND (t.last_occurrence IS NOT NULL OR t.waiting <> '{}' OR t.created_at > m.now + interval '1 second'
                 OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled')))
        OR (%(stepped)s AND t.kind = 'interval' AND m.true_last_run IS NOT NULL
            AND t.next_run IS DISTINCT FROM t.starts_at
            AND (t.next_run > t.last_run + m.reach + interval '1 second'
                 OR t.next_run < t.last_run + (t.every_ms - t.tolerance_ms) * interval '1 millisecond')))
    ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now, count(id) AS found FROM ahead
), held AS MATERIALIZED (
    SELECT t.id, i.now, a.reach, CASE WHEN t.last_run IS NOT NULL AND t.last_boot = %(boot)s::text
            AND t.last_uptime_us <= %(uptime)s::bigint
            THEN i.now - (%(uptime)s::bigint - t.last_uptime_us) * interval '1 microsecond' END AS true_last_run,
        h.held_since, i.now + coalesce(h.held_for, (t.box_ms + t.grace_ms) * interval '1 millisecond')
            - coalesce(h.held_since, interval '0') AS until
    FROM instant i, ahead a, LATERAL (SELECT * FROM {schema}.tasks o WHERE o.id = a.id OFFSET 0) t LEFT JOIN LATERAL (
        SELECT greatest(r.until - r.started_at, interval '0') AS held_for,
            CASE WHEN r.boot = %(boot)s::text AND r.uptime_us <= %(uptime)s::bigint
                 THEN (%(uptime)s::bigint - r.uptime_us) * interval '1 microsecond' END AS held_since
        FROM {schema}.runs r WHERE r.token = t.run_token AND r.state = 'running') h ON true
), changed AS (
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
            THEN greatest(t.starts_at, CASE WHEN NOT %(stepped)s AND t.next_run <= h.true_last_run + h.reach
                    AND abs(extract(epoch FROM h.true_last_run - t.last_run)) <= 20 THEN t.next_run
                ELSE h.true_last_run + greatest(t.every_ms, t.stretched_ms) * interval '1 millisecond' END)
            WHEN t.kind = 'interval'
            AND (t.last_occurrence IS NOT NULL OR t.waiting <> '{}' OR t.created_at > h.now + interval '1 second'
                 OR EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled'))
            AND t.next_run > h.now + h.reach
            THEN greatest(t.starts_at, h.now + greatest(t.every_ms, t.stretched_ms) * interval '1 millisecond')
            ELSE t.next_run END AS at) due)
    FROM held h WHERE t.id = h.id
)
SELECT id FROM measured ORDER BY id DESC LIMIT 1

-- name: glance
-- Whether a pass might find something to do: each step's question, put as roughly as an index answers it. A pass that is
-- told so for nothing costs some milliseconds; one that is not told would leave something undone. In order and the first
-- alone, since the planner expects an EXISTS to find a row at once, and reads the table.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT i.now, (SELECT id FROM {schema}.tasks WHERE enabled AND owner_active AND paused_by IS NULL
        AND next_run <= i.now + %(look_ahead)s * interval '1 millisecond' AND (push_after IS NULL OR push_after <= i.now)
        ORDER BY next_run LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM {schema}.tasks WHERE waiting <> '{}')
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1) AND due_at <= i.now)
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'planned' AND kind = 'piece' AND attempt = 1)
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'pushed')
    OR EXISTS (SELECT FROM {schema}.runs WHERE follow_up)
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'processing')
    OR EXISTS (SELECT FROM {schema}.runs WHERE state = 'running' AND (until < i.now - interval '1 second'
        OR started_at > i.now + interval '1 second' OR (boot = %(boot)s::text
        AND (%(uptime)s::bigint - uptime_us) * interval '1 microsecond' > until - started_at + interval '1 second')))
    OR (SELECT id FROM {schema}.tasks WHERE alarm_at <= i.now AND enabled AND owner_active AND paused_by IS NULL
        ORDER BY alarm_at LIMIT 1) IS NOT NULL
    OR (SELECT id FROM {schema}.tasks WHERE paused_until <= i.now ORDER BY paused_until LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM {schema}.tasks WHERE kind = 'once' AND remove AND next_run IS NULL AND run_token IS NULL
        AND last_outcome IN ('succeeded', 'partial', 'nothing_to_do'))
    OR EXISTS (SELECT FROM {schema}.tickers WHERE last_tick_at > i.now + interval '1 second') AS busy
FROM instant i

-- name: clock_signs
-- Whether a ticker's heartbeat lies ahead: the clock was set back.
SELECT EXISTS (SELECT FROM {schema}.tickers
    WHERE last_tick_at > coalesce(%(now)s::timestamptz, clock_timestamp()) + interval '1 second') AS set_back

-- name: claim_ahead
-- After the clock was set back: tasks by cron and calendar that wait for a time ahead, and were pushed before, so that it is
-- no `first`; locked. The clamp cannot tell when they are due; a pass can.
SELECT id, next_run AS occurrence, queue, function, kind, expression, zone, every_ms, box_ms, grace_ms, push_errors,
    starts_at, ends_at, catch_up, overlap, false AS busy, phase_ms
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
-- The same for runs that began, or were planned, in the future; each is changed only once. Pieces are claimed anyway.
WITH ahead AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE (state = 'running' AND started_at > %(now)s::timestamptz + interval '1 second')
       OR (state = 'planned' AND (kind <> 'piece' OR attempt > 1) AND (created_at > %(now)s::timestamptz + interval '1 second'
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
-- Runs past B + g without a recorded end. A row that is busy just now, the run's or its task's, is
-- left to the next tick; as nothing is waited for, the run may be locked first here. A run of this host is past it when
-- the uptime says so, whatever the clock was set to; of the others, by the clock as it is read here: the `now` of a pass
-- that was stopped meanwhile may lie ahead of it. What has lost its hold to another run is counted, and no more: that one
-- tells how the task is.
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
        reason = 'no end was recorded by '
            || to_char(r.until AT TIME ZONE 'UTC', 'HH24:MI:SS') || ' UTC, when its box and grace were over',
        follow_up = o.task_id IN (SELECT id FROM held)
    FROM overdue o
    WHERE r.id = o.id AND r.state = 'running'
      AND (o.task_id IN (SELECT id FROM held) OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = o.task_id))
    RETURNING r.id, r.task_id, r.token, r.kind
), counted AS MATERIALIZED (
    SELECT task_id, count(*) AS lost, array_agg(token) AS tokens FROM ended WHERE kind <> 'piece' GROUP BY task_id
), passed_by AS (
    UPDATE {schema}.tasks t SET failed = t.failed + c.lost
    FROM counted c JOIN held h ON h.id = c.task_id AND coalesce(h.run_token <> ALL (c.tokens), true) WHERE t.id = c.task_id
), freed AS (
    UPDATE {schema}.tasks t SET run_token = NULL, running_until = NULL,
        last_run_id = e.id, last_outcome = 'lost', last_ended_at = (SELECT now FROM instant),
        failed = t.failed + (SELECT lost FROM counted c WHERE c.task_id = e.task_id),
        failures = CASE WHEN t.retries > 0 AND e.kind <> 'manual' THEN t.failures ELSE least(t.failures + 1, 1000000) END
    FROM ended e JOIN held h ON h.id = e.task_id AND h.run_token = e.token
    WHERE t.id = e.task_id
)
SELECT id FROM ended

-- name: watched
-- The time since which ticks have come without a gap, in seconds since 1970, according to the tickers that ticked within the
-- last `gap` milliseconds; and the clock.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT extract(epoch FROM i.now)::float8 AS now, min(CASE jsonb_typeof(t.last_report->'watching_since')
    WHEN 'number' THEN (t.last_report->>'watching_since')::float8 ELSE extract(epoch FROM t.started_at)::float8 END) AS since
FROM instant i LEFT JOIN {schema}.tickers t
    ON t.last_tick_at BETWEEN i.now - %(gap)s * interval '1 millisecond' AND i.now + interval '1 second'
GROUP BY i.now

-- name: remove_done
-- Tasks for a single time that have succeeded, and that nobody wants to keep; not while pieces of them are at work.
WITH done AS MATERIALIZED (
    SELECT id FROM {schema}.tasks t
    WHERE kind = 'once' AND remove AND next_run IS NULL AND run_token IS NULL AND waiting = '{}'
      AND last_outcome IN ('succeeded', 'partial', 'nothing_to_do')
      AND NOT EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.state = 'processing' OFFSET 0)
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
DELETE FROM {schema}.tasks t USING done WHERE t.id = done.id AND set_config('ticker.by', 'ticker', true) IS NOT NULL
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
SELECT id, queue, function, every_ms, box_ms, grace_ms, batch_jobs, CASE WHEN cardinality(waiting) <= 100 THEN waiting
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
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, follow_up)
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, 'scheduled', s.occurrence, 'ended', s.outcome,
        s.reason, %(now)s, %(now)s, t.last_run, %(now)s, t.every_ms, t.tolerance_ms, s.outcome = 'lost'
    FROM settled s JOIN {schema}.tasks t ON t.id = s.id
    ON CONFLICT (task_id, occurrence) WHERE kind = 'scheduled' DO NOTHING
    RETURNING task_id, outcome
)
UPDATE {schema}.tasks t SET
    waiting = ARRAY(
        SELECT w FROM unnest(t.waiting) w
        WHERE NOT EXISTS (SELECT FROM settled s WHERE s.id = t.id AND s.occurrence = w) ORDER BY w),
    batch_jobs = nullif(t.batch_jobs - f.keys, '{}'),
    last_outcome = CASE WHEN f.lost > 0 THEN 'lost' ELSE t.last_outcome END,
    last_ended_at = CASE WHEN f.lost > 0 THEN %(now)s ELSE t.last_ended_at END,
    failures = least(t.failures + f.lost, 1000000), failed = t.failed + f.lost, dropped = t.dropped + f.dropped
FROM (SELECT s.id, array_agg({schema}.micros(s.occurrence)) AS keys,
          (SELECT count(*) FROM recorded r WHERE r.task_id = s.id AND r.outcome = 'lost')::int AS lost,
          (SELECT count(*) FROM recorded r WHERE r.task_id = s.id AND r.outcome = 'dropped')::int AS dropped
      FROM settled s GROUP BY s.id) f
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
-- Planned runs whose jobs died before they started. They are locked already: where somebody holds the task, they are left
-- to the next tick.
WITH held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks
    WHERE id IN (SELECT task_id FROM {schema}.runs WHERE id = ANY (%(ids)s::bigint[]))
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), lost AS (
    UPDATE {schema}.runs SET state = 'ended', outcome = 'lost', reason = %(reason)s, ended_at = %(now)s,
        follow_up = kind IN ('retry', 'piece')
    WHERE id = ANY (%(ids)s::bigint[]) AND state = 'pushed' AND task_id IN (SELECT id FROM held)
    RETURNING task_id, kind
)
UPDATE {schema}.tasks t SET failed = t.failed + l.count
FROM (SELECT task_id, count(*) FROM lost WHERE kind <> 'piece' GROUP BY task_id) l WHERE t.id = l.task_id

-- name: announce
-- A worker knows these functions, and how many tasks of each one job may carry.
INSERT INTO {schema}.functions (name, batch, announced_at)
SELECT f.name, f.batch, clock_timestamp() FROM unnest(%(names)s::text[], %(batches)s::integer[]) AS f (name, batch)
ORDER BY f.name
ON CONFLICT (name) DO UPDATE SET batch = excluded.batch, announced_at = excluded.announced_at

-- name: queues
-- The queues of all tasks, which a ticker leases.
SELECT DISTINCT queue FROM {schema}.tasks

-- name: used_queues
-- The queues among these that tasks use. For a queue without a task, the whole table is read.
SELECT q.queue FROM unnest(%(queues)s::text[]) AS q (queue)
WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = q.queue) ORDER BY q.queue

-- name: next_due
-- Seconds from `now`, which a pass has just served, to the next thing that a pass would do; none: there is nothing. What is
-- due already and could not be pushed waits for the rhythm.
SELECT extract(epoch FROM least(
    (SELECT next_run FROM {schema}.tasks
     WHERE enabled AND owner_active AND paused_by IS NULL AND next_run > %(now)s::timestamptz ORDER BY next_run LIMIT 1),
    (SELECT min(paused_until) FROM {schema}.tasks WHERE paused_until > %(now)s::timestamptz),
    (SELECT min(due_at) FROM {schema}.runs
     WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1) AND due_at > %(now)s::timestamptz)
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

-- name: farewell
-- A ticker ends cleanly. Its row stays for the day: a heartbeat ahead of the clock says that the clock was set back.
UPDATE {schema}.tickers SET last_report = last_report || '{"ended": true}' WHERE id = %(id)s::uuid


-- ------------------------------------------------------------------------------------------------- whose they are

-- name: installation
-- The installation of the tables, and whether they are where they were marked. A role that may not read the cluster's
-- identifier compares the other two.
SELECT i.id, i.environment, i.marker_oid = i.tableoid
    AND i.database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND coalesce(i.system_identifier = {schema}.cluster_identifier(), true) AS is_here
FROM {schema}.installation i

-- name: silence
-- Cancels the pending notices and follow-ups of the former installation.
WITH told AS (
    UPDATE {schema}.events SET told = true WHERE NOT told
), untold AS (
    DELETE FROM {schema}.notices
)
UPDATE {schema}.runs SET follow_up = false WHERE follow_up

-- name: adopt_runs
-- Runs whose workers, jobs and pieces belong to another installation: running ones become lost, planned ones are dropped. With
-- `resume`, planned ones stay, and pushed ones are pushed again.
WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.runs WHERE state = 'running'
    UNION ALL
    SELECT id FROM {schema}.runs WHERE state = 'pushed'
    UNION ALL
    SELECT id FROM {schema}.runs WHERE state = 'planned' AND NOT %(resume)s
    UNION ALL
    SELECT id FROM {schema}.runs WHERE state = 'processing' AND NOT %(resume)s
    LIMIT %(limit)s
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), changed AS (
    UPDATE {schema}.runs r SET
        state = CASE WHEN d.outcome IS NULL THEN 'planned' ELSE 'ended' END, outcome = d.outcome,
        reason = CASE d.outcome WHEN 'lost' THEN %(reason)s WHEN 'dropped' THEN 'adopted' ELSE '' END,
        due_at = CASE WHEN d.outcome IS NULL THEN i.now ELSE r.due_at END,
        ended_at = CASE WHEN d.outcome IS NOT NULL THEN i.now END, follow_up = %(resume)s AND coalesce(d.outcome = 'lost', false)
    FROM instant i, {schema}.runs o, LATERAL (SELECT CASE WHEN o.state IN ('running', 'processing') THEN 'lost'
        WHEN NOT %(resume)s THEN 'dropped' END AS outcome) d
    WHERE r.id = ANY (ARRAY(SELECT id FROM chosen)) AND o.id = r.id
    RETURNING r.id, r.task_id, r.kind, r.outcome
), counted AS (
    SELECT task_id, count(*) FILTER (WHERE outcome = 'lost') AS lost, count(*) FILTER (WHERE outcome = 'dropped') AS dropped,
        max(id) FILTER (WHERE outcome = 'lost') AS last
    FROM changed WHERE kind <> 'piece' GROUP BY task_id
), noted AS (
    UPDATE {schema}.tasks t SET failed = t.failed + c.lost, dropped = t.dropped + c.dropped,
        failures = CASE WHEN %(resume)s AND c.lost > 0 AND t.retries = 0 THEN least(t.failures + 1, 1000000) ELSE t.failures END,
        last_run_id = coalesce(c.last, t.last_run_id),
        last_outcome = CASE WHEN c.last IS NULL THEN t.last_outcome ELSE 'lost' END,
        last_ended_at = CASE WHEN c.last IS NULL THEN t.last_ended_at ELSE i.now END
    FROM counted c, instant i WHERE t.id = c.task_id
)
SELECT outcome FROM changed

-- name: adopt_tasks
-- The next tasks by id, whose waiting jobs belong to another installation. The newest waiting occurrence of each is due again,
-- unless a later one has started; the older ones are dropped. Holds end. Without `resume` the tasks are paused. `last`: the id
-- of the last task, NULL at the end.
WITH walked AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE id > %(after)s::bigint ORDER BY id LIMIT %(limit)s
), instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), chosen AS MATERIALIZED (
    SELECT t.*, NOT %(resume)s AND t.paused_by IS NULL AS pauses, w.newest, coalesce(
        w.newest > coalesce(t.last_occurrence, '-infinity') AND t.started < coalesce(t.max_runs, t.started + 1), false) AS again
    FROM {schema}.tasks t, LATERAL (SELECT max(o) AS newest FROM unnest(t.waiting) o) w
    WHERE t.id = ANY (ARRAY(SELECT id FROM walked))
      AND (t.waiting <> '{}' OR t.run_token IS NOT NULL OR (NOT %(resume)s AND t.paused_by IS NULL))
    ORDER BY t.id FOR NO KEY UPDATE OF t
), dropped AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms)
    SELECT c.id, c.name, c.function, c.owner_type, c.owner_id, 'scheduled', o, 'ended', 'dropped',
        'adopted', i.now, i.now, c.last_run, i.now, c.every_ms, c.tolerance_ms
    FROM instant i, chosen c, unnest(c.waiting) o WHERE NOT (c.again AND o = c.newest)
    ON CONFLICT DO NOTHING
    RETURNING task_id
), changed AS (
    UPDATE {schema}.tasks t SET
        waiting = '{}', batch_jobs = NULL, run_token = NULL, running_until = NULL,
        next_run = CASE WHEN c.again THEN c.newest ELSE t.next_run END,
        dropped = t.dropped + cardinality(c.waiting) - c.again::int,
        paused_by = CASE WHEN c.pauses THEN 'adopt' ELSE t.paused_by END,
        paused_reason = CASE WHEN c.pauses THEN %(reason)s ELSE t.paused_reason END
    FROM chosen c WHERE t.id = c.id
    RETURNING c.pauses
)
SELECT (SELECT max(id) FROM walked) AS last, (SELECT count(*) FILTER (WHERE pauses) FROM changed)::int AS paused,
    (SELECT count(*) FROM dropped)::int AS dropped

-- name: adopt
-- The mark of this database, and a new id; no row if another `adopt` was faster.
WITH marked AS (
    INSERT INTO {schema}.installation AS i (system_identifier, database_oid, marker_oid, environment, adopted_at)
    SELECT {schema}.cluster_identifier(), d.oid, '{schema}.installation'::regclass, %(environment)s,
        coalesce(%(now)s::timestamptz, clock_timestamp())
    FROM pg_database d WHERE d.datname = current_database()
    ON CONFLICT (single) DO UPDATE SET id = excluded.id, system_identifier = excluded.system_identifier,
        database_oid = excluded.database_oid, marker_oid = excluded.marker_oid, environment = excluded.environment,
        adopted_at = excluded.adopted_at
    WHERE i.id = %(former)s
    RETURNING i.id
), forgotten AS (
    DELETE FROM {schema}.tickers WHERE EXISTS (SELECT FROM marked)
), noted AS (
    INSERT INTO {schema}.events (task_id, what, by, words) SELECT 0, 'adopted', 'adopt', %(words)s FROM marked
)
SELECT id FROM marked


-- ----------------------------------------------------------------------------------------------------------- told
--
-- Asked by threads beside the ticks (ticker/telling). No lock outlives its statement: who claims a notice moves its time
-- on, by a lease, before it is sent.

-- name: make_notices
-- New events become a notice for each channel, if somebody is to be told of their kind and they are younger than `after`;
-- the others are done with.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), untold AS MATERIALIZED (
    SELECT id, what, at FROM {schema}.events WHERE NOT told
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), made AS (
    INSERT INTO {schema}.notices (event_id, channel, due_at)
    SELECT u.id, c.channel, i.now
    FROM instant i, untold u, unnest(%(channels)s::text[]) AS c (channel)
    WHERE u.what = ANY (%(kinds)s::text[]) AND u.at > i.now - %(after)s::interval
    ON CONFLICT DO NOTHING
)
UPDATE {schema}.events e SET told = true FROM untold u WHERE e.id = u.id
RETURNING e.id

-- name: claim_notice
-- The next notice of a channel that is due, ours for the time of the lease, with what is to be told; none while an older one
-- of its task waits for the same channel. No wait is longer than an hour: what is due in two was dated before the clock was
-- set back.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
    SELECT n.event_id, n.channel FROM {schema}.notices n JOIN {schema}.events e ON e.id = n.event_id
    WHERE n.channel = %(channel)s AND (n.due_at <= (SELECT now FROM instant)
                                       OR n.due_at > (SELECT now FROM instant) + interval '2 hours')
      AND NOT EXISTS (
          SELECT FROM {schema}.events o JOIN {schema}.notices b ON b.event_id = o.id AND b.channel = %(channel)s
          WHERE o.task_id = e.task_id AND o.id < e.id AND o.id >= (SELECT min(event_id) FROM {schema}.notices))
    ORDER BY n.due_at, n.event_id LIMIT 1
    FOR NO KEY UPDATE OF n SKIP LOCKED
), claimed AS (
    UPDATE {schema}.notices n SET due_at = i.now + %(lease)s::interval, tries = n.tries + 1
    FROM due d, instant i WHERE n.event_id = d.event_id AND n.channel = d.channel
    RETURNING n.event_id, n.tries
)
SELECT c.tries, e.id, e.what, e.at, e.task_id, e.task_name, e.function, e.owner_type, e.owner_id,
    coalesce(t.subject, '') AS subject, e.words, t.failures, t.next_run, e.run_id,
    coalesce(concat_ws(': ', nullif(r.outcome, 'failed'), nullif(r.reason, '')), '') AS error,
    CASE WHEN e.what = 'dead_man' THEN CASE WHEN t.last_success_at <= e.at THEN t.last_success_at END
         ELSE (SELECT o.at FROM {schema}.events o
               WHERE o.task_id = e.task_id AND o.id <= e.id AND o.what = 'failed' ORDER BY o.id DESC LIMIT 1) END AS since
FROM claimed c JOIN {schema}.events e ON e.id = c.event_id
    LEFT JOIN {schema}.tasks t ON t.id = e.task_id LEFT JOIN {schema}.runs r ON r.id = e.run_id

-- name: remove_notice
-- It has arrived.
DELETE FROM {schema}.notices WHERE event_id = %(event_id)s AND channel = %(channel)s

-- name: set_back_notice
-- It did not arrive: it waits, and says why.
UPDATE {schema}.notices SET error = %(error)s,
    due_at = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(wait)s::interval
WHERE event_id = %(event_id)s AND channel = %(channel)s

-- name: remove_old_notices
-- Those of events older than `after`, or without an event and due so long ago: whatever they waited for. Only the first
-- ones are looked through, as ids rise with the time.
WITH first AS MATERIALIZED (
    SELECT ctid AS place, event_id, due_at FROM {schema}.notices ORDER BY event_id, channel LIMIT %(limit)s
), old AS MATERIALIZED (
    SELECT f.place FROM first f
    WHERE coalesce((SELECT e.at FROM {schema}.events e WHERE e.id = f.event_id), f.due_at)
          <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp())) - %(after)s::interval
), locked AS MATERIALIZED (
    SELECT ctid AS place FROM {schema}.notices
    WHERE ctid = ANY (ARRAY(SELECT place FROM old)) FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.notices WHERE ctid = ANY (ARRAY(SELECT place FROM locked))
RETURNING event_id, channel, error


-- ----------------------------------------------------------------------------------------------------------- kept
--
-- A record goes by its age, counted from its end; never before 2 hours: the start asks for ends that were recorded
-- (`runs_one_record`), as a job, or a copy of it, may still be in Redis or in a stopped worker's hands.
-- A run stays while a tick has to see to it, and while it has pieces or retries at work; these stay as long as it does.

-- name: prune_patience
-- No statement of this transaction holds its locks for longer than a second.
SELECT set_config('statement_timeout', '1s', true)

-- name: prune_runs
-- One page of a walk through the runs by their ids: deletes what nobody wants to keep, or with `dry` only counts it. Of a
-- task that keeps all, and of one that is gone, what is older than its outcome is kept; of one that keeps problems, the rest
-- at once; of one that keeps none, everything. Pieces and retries go with the `head` of their family, the scheduled or manual
-- run that led to them: with it, by its outcome and age, or behind it, when they find it gone (`dry` has to judge it again).
-- The last 20 heads stay (of problems: the last 20 problems) while there is the task; of a task they are looked for once for
-- a page, among its newest 300,000 heads, and where these have fewer, nothing goes by its age.
-- OFFSET 0 keeps each question to its own row and index: as a join it might read a whole table for each page.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), walked AS MATERIALIZED (
    SELECT r.id, r.kind, r.parent_id, r.outcome, r.created_at BETWEEN i.now - interval '2 hours' AND i.now + interval '1 hour'
            AS is_young, r.state = 'ended' AND NOT r.follow_up AND r.ended_at < i.now - interval '2 hours' AS is_over
    FROM instant i, {schema}.runs r
    WHERE r.id > %(after)s::bigint
    ORDER BY r.id LIMIT %(limit)s
), page AS MATERIALIZED (
    SELECT w.*, coalesce(f.id, p.id, w.id) AS head
    FROM walked w
        LEFT JOIN LATERAL (SELECT p.id, p.kind, p.parent_id FROM {schema}.runs p
                           WHERE w.kind IN ('piece', 'retry') AND p.id = w.parent_id OFFSET 0) p ON true
        LEFT JOIN LATERAL (SELECT f.id FROM {schema}.runs f
                           WHERE p.kind IN ('piece', 'retry') AND f.id = p.parent_id OFFSET 0) f ON true
), heads AS MATERIALIZED (
    SELECT h.id, h.task_id, t.keep, t.id IS NULL OR h.is_orphan OR t.keep = 'none' OR (t.keep = 'problems' AND NOT h.is_problem)
            AS is_free
    FROM instant i, (SELECT DISTINCT head FROM page WHERE is_over AND (id = head OR %(dry)s)) d
        JOIN LATERAL (
            SELECT r.id, r.task_id, r.state = 'ended' AND NOT r.follow_up AND r.ended_at < i.now - interval '2 hours' AS is_over,
                r.kind IN ('piece', 'retry') AND r.parent_id IS NOT NULL AS is_orphan, f.is_failure OR (r.outcome = 'dropped'
                    AND r.reason IN ('unknown_function', 'expired', 'missed', 'no_time')) AS is_problem,
                r.ended_at < i.now - CASE WHEN f.is_failure THEN %(failures_ms)s::bigint ELSE %(successes_ms)s::bigint END
                    * interval '1 millisecond' AS is_old
            FROM {schema}.runs r, LATERAL (
                SELECT coalesce(r.outcome IN ('failed', 'timed_out', 'killed', 'lost'), false) AS is_failure) f
            WHERE r.id = d.head OFFSET 0) h ON h.is_over
        LEFT JOIN LATERAL (SELECT t.id, t.keep FROM {schema}.tasks t WHERE t.id = h.task_id OFFSET 0) t ON true
    WHERE (h.is_old OR h.is_orphan OR t.keep = 'none' OR (t.keep = 'problems' AND NOT h.is_problem))
        AND NOT EXISTS (SELECT FROM {schema}.runs c WHERE c.parent_id = h.id
                        AND (c.state <> 'ended' OR c.follow_up OR c.ended_at >= i.now - interval '2 hours') OFFSET 0)
), lasts AS MATERIALIZED (
    SELECT t.task_id, l.id
    FROM (SELECT DISTINCT task_id, keep FROM heads WHERE NOT is_free) t, LATERAL (
        SELECT n.id FROM (
            SELECT r.id, r.outcome, r.reason FROM {schema}.runs r
            WHERE r.task_id = t.task_id AND r.kind IN ('scheduled', 'manual') ORDER BY r.id DESC LIMIT 300000) n
        WHERE (t.keep <> 'problems' OR n.outcome IN ('failed', 'timed_out', 'killed', 'lost') OR (n.outcome = 'dropped'
                AND n.reason IN ('unknown_function', 'expired', 'missed', 'no_time')))
        ORDER BY n.id DESC OFFSET 19 LIMIT 1) l
), doomed AS MATERIALIZED (
    SELECT p.id FROM page p JOIN heads h ON h.id = p.head LEFT JOIN lasts l ON l.task_id = h.task_id
    WHERE p.is_over AND (h.is_free OR h.id < l.id)
), locked AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE NOT %(dry)s AND id = ANY (ARRAY(SELECT id FROM doomed)) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.runs WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
), counted AS (
    SELECT id FROM gone UNION ALL SELECT id FROM doomed WHERE %(dry)s
)
SELECT max(p.id) AS last, count(*)::int AS seen, coalesce(bool_and(p.is_young), true) AS young,
    count(c.id) FILTER (WHERE p.outcome IN ('succeeded', 'partial', 'nothing_to_do'))::int AS successes,
    count(c.id) FILTER (WHERE p.outcome IN ('failed', 'timed_out', 'killed', 'lost'))::int AS failures,
    count(c.id) FILTER (WHERE p.outcome = 'dropped')::int AS drops, 0 AS events
FROM page p LEFT JOIN counted c ON c.id = p.id

-- name: next_run
-- The first one of a walk: where its page takes too long, the walk goes on behind it.
SELECT min(id) AS id FROM {schema}.runs WHERE id > %(after)s::bigint

-- name: next_event
SELECT min(id) AS id FROM {schema}.events WHERE id > %(after)s::bigint

-- name: prune_events
-- The same walk through the events, which are kept as long as failures, and at least while somebody may still be told.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), page AS MATERIALIZED (
    SELECT e.id, e.task_id, e.at < i.now - greatest(%(failures_ms)s::bigint * interval '1 millisecond',
            CASE WHEN NOT e.told THEN interval '3 days' END) AS is_old,
        e.at BETWEEN i.now - interval '2 hours' AND i.now + interval '1 hour' AS is_young
    FROM instant i, {schema}.events e
    WHERE e.id > %(after)s::bigint
    ORDER BY e.id LIMIT %(limit)s
), doomed AS MATERIALIZED (
    SELECT p.id FROM page p
    WHERE p.is_old
        AND (EXISTS (SELECT FROM {schema}.events n WHERE n.task_id = p.task_id AND n.id > p.id OFFSET 19)
             OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = p.task_id OFFSET 0))
        AND NOT EXISTS (SELECT FROM {schema}.notices n WHERE n.event_id = p.id OFFSET 0)
), locked AS MATERIALIZED (
    SELECT id FROM {schema}.events
    WHERE NOT %(dry)s AND id = ANY (ARRAY(SELECT id FROM doomed)) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.events WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
), counted AS (
    SELECT id FROM gone UNION ALL SELECT id FROM doomed WHERE %(dry)s
)
SELECT max(p.id) AS last, count(*)::int AS seen, coalesce(bool_and(p.is_young), true) AS young,
    0 AS successes, 0 AS failures, 0 AS drops, count(c.id)::int AS events
FROM page p LEFT JOIN counted c ON c.id = p.id


-- -------------------------------------------------------------------------------------------------- read by people

-- name: list_tasks
-- Those that fit what is not null, by id. Where a state is asked for, indexes know who is in it (the sub-select of each other
-- state is never run): the `first` of them, as many as are asked for where nothing else is. A state with a crowd in it is
-- `crowded` instead: the walk by id meets them soon enough. What no index knows is asked for in sub-selects, too: the planner,
-- which shall walk from `after` to `before`, would read the whole table for a value that it takes to be rare. Late ones in
-- order, since it expects a third of all to be late.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
), late AS MATERIALIZED (
    SELECT now - %(late_ms)s::bigint * interval '1 millisecond' AS before FROM instant
), chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'failing' AND failures > 0
    UNION ALL
    (SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'late' AND enabled AND owner_active AND paused_by IS NULL
        AND next_run < (SELECT before FROM late) AND coalesce(resumed_at < (SELECT before FROM late), true) ORDER BY next_run LIMIT %(most)s + 1)
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'paused' AND paused_by IS NOT NULL
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'inactive' AND (NOT enabled OR NOT owner_active)
    UNION ALL
    SELECT id FROM {schema}.tasks WHERE %(state)s::text = 'waiting' AND waiting <> '{}'
    UNION ALL
    SELECT task_id FROM {schema}.runs WHERE %(state)s::text = 'running' AND state = 'running'
)
SELECT * FROM {schema}.tasks
WHERE (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
  AND (%(owner_id)s::text IS NULL OR owner_id = %(owner_id)s)
  AND (%(name)s::text IS NULL OR name = (SELECT %(name)s::text))
  AND (%(function)s::text IS NULL OR function = (SELECT %(function)s::text))
  AND (%(queue)s::text IS NULL OR queue = (SELECT %(queue)s::text))
  AND (%(group)s::text IS NULL OR group_name = (SELECT %(group)s::text))
  AND (%(submitter)s::text IS NULL OR submitter = (SELECT %(submitter)s::text))
  AND (%(search)s::text IS NULL
       OR position(lower(%(search)s) IN lower(concat_ws(' ', name, function, owner_type || ':' || owner_id, subject))) > 0)
  AND (%(state)s::text IS NULL OR id = ANY (ARRAY(SELECT id FROM chosen WHERE id > %(after)s ORDER BY id LIMIT %(first)s::bigint)))
  AND (%(crowded)s::text IS NULL OR CASE (SELECT %(crowded)s::text) WHEN 'failing' THEN failures > 0
       WHEN 'late' THEN enabled AND owner_active AND paused_by IS NULL AND next_run < (SELECT before FROM late) AND coalesce(resumed_at < (SELECT before FROM late), true)
       WHEN 'paused' THEN paused_by IS NOT NULL WHEN 'inactive' THEN NOT enabled OR NOT owner_active ELSE waiting <> '{}' END)
  AND id > %(after)s AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id
LIMIT %(limit)s

-- name: is_crowded
-- Whether more than so many tasks are in a state.
WITH late AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond' AS before
)
SELECT count(*) > %(most)s AS is_crowded FROM (
    SELECT FROM {schema}.tasks WHERE %(state)s::text = 'failing' AND failures > 0
    UNION ALL
    (SELECT FROM {schema}.tasks WHERE %(state)s::text = 'late' AND enabled AND owner_active AND paused_by IS NULL
        AND next_run < (SELECT before FROM late) AND coalesce(resumed_at < (SELECT before FROM late), true) ORDER BY next_run LIMIT %(most)s + 1)
    UNION ALL
    SELECT FROM {schema}.tasks WHERE %(state)s::text = 'paused' AND paused_by IS NOT NULL
    UNION ALL
    SELECT FROM {schema}.tasks WHERE %(state)s::text = 'inactive' AND (NOT enabled OR NOT owner_active)
    UNION ALL
    SELECT FROM {schema}.tasks WHERE %(state)s::text = 'waiting' AND waiting <> '{}'
    LIMIT %(most)s + 1) t

-- name: task_behind
-- The first task that a look through so many does not reach any more.
SELECT id FROM {schema}.tasks WHERE id > %(after)s ORDER BY id OFFSET %(count)s LIMIT 1

-- name: last_occurrences_of
-- What became of the last occurrences of these tasks, the newest first: of one that was attempted again, its last attempt.
SELECT l.* FROM unnest(%(ids)s::bigint[]) AS t (id), LATERAL (
    SELECT r.task_id, a.id, a.state, a.outcome, a.reason, coalesce(r.occurrence, r.started_at, r.created_at) AS due
    FROM (SELECT * FROM {schema}.runs WHERE task_id = t.id AND kind = 'scheduled' ORDER BY id DESC LIMIT %(limit)s) r,
        LATERAL (SELECT r.id, r.state, r.outcome, r.reason, 0 AS attempt
            UNION ALL
            SELECT a.id, a.state, a.outcome, a.reason, a.attempt FROM {schema}.runs a
            WHERE r.retried AND a.parent_id = r.id AND a.kind = 'retry'
            ORDER BY attempt DESC LIMIT 1) a
    ORDER BY r.id DESC) l

-- name: next_tasks
-- What runs next, nearest first; also what is due, and not late yet.
SELECT * FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_by IS NULL
  AND next_run >= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond')
ORDER BY next_run
LIMIT %(limit)s

-- name: late_tasks
-- What should have been pushed by now, the oldest first.
SELECT * FROM {schema}.tasks
WHERE enabled AND owner_active AND paused_by IS NULL
  AND next_run < (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond')
  AND coalesce(resumed_at < (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond'), true)
ORDER BY next_run
LIMIT %(limit)s

-- name: failing_tasks
-- Those that fail, those that failed most often in a row first.
SELECT * FROM {schema}.tasks WHERE failures > 0 ORDER BY failures DESC, id LIMIT %(limit)s

-- name: running_runs
-- What is at work, for the longest first.
SELECT id FROM {schema}.runs WHERE state = 'running' ORDER BY started_at, id LIMIT %(limit)s

-- name: counts
-- How many there are, in all and of each state; nobody is counted beyond %(most)s, and a table above that is estimated.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond' AS late
)
SELECT (SELECT CASE WHEN c.reltuples > %(most)s THEN c.reltuples::bigint
            ELSE (SELECT count(*) FROM (SELECT FROM {schema}.tasks LIMIT %(most)s + 1) t) END
        FROM pg_class c WHERE c.oid = '{schema}.tasks'::regclass) AS tasks,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE enabled AND owner_active AND paused_by IS NULL
        AND next_run < (SELECT late FROM instant) AND coalesce(resumed_at < (SELECT late FROM instant), true) ORDER BY next_run LIMIT %(most)s) t) AS late,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE failures > 0 LIMIT %(most)s) t) AS failing,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE paused_by IS NOT NULL LIMIT %(most)s) t) AS paused,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE NOT enabled OR NOT owner_active LIMIT %(most)s) t) AS inactive,
    (SELECT count(*) FROM (SELECT FROM {schema}.tasks WHERE waiting <> '{}' LIMIT %(most)s) t) AS waiting,
    (SELECT count(*) FROM (SELECT FROM {schema}.runs WHERE state = 'running' LIMIT %(most)s) r) AS running,
    (SELECT count(*) FROM (
        SELECT FROM {schema}.runs WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1)
        UNION ALL SELECT FROM {schema}.runs WHERE state = 'planned' AND kind = 'piece' AND attempt = 1
        LIMIT %(most)s) r) AS planned

-- name: functions
-- What workers have announced.
SELECT name, batch, announced_at FROM {schema}.functions ORDER BY name

-- name: waiting_queues
-- In which of these queues jobs of tasks wait. Where a million wait, one of them is found at once; OFFSET 0 keeps each question
-- to the index of those that wait.
SELECT q.queue FROM unnest(%(queues)s::text[]) AS q (queue)
WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.waiting <> '{}' AND t.queue = q.queue OFFSET 0) ORDER BY q.queue

-- name: read_task
SELECT * FROM {schema}.tasks WHERE id = %(id)s

-- name: list_owners
-- Owners and their tasks, counted: those in trouble (failing, or late) first, then the others, each by type and id. With
-- `failing`, `late` or `paused` those with such tasks only. What is looked for is found by the indexes of such tasks; where
-- these have a `crowd` in them, and the others, by the tasks' key, which is in that order. The others are not looked for where
-- the first half fills the page. A walk asks of whole owners (HAVING), so that the planner does not sort what it can walk.
WITH instant AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(late_ms)s::bigint * interval '1 millisecond' AS late
), asked AS MATERIALIZED (
    SELECT %(failing)s OR NOT (%(late)s OR %(paused)s) AS failing, %(late)s OR NOT (%(failing)s OR %(paused)s) AS late,
        %(paused)s::boolean AS paused
), suspects AS MATERIALIZED (
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE failures > 0 AND (SELECT failing FROM asked) ORDER BY failures DESC, id LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE enabled AND owner_active AND paused_by IS NULL AND next_run < (SELECT late FROM instant) AND coalesce(resumed_at < (SELECT late FROM instant), true)
       AND (SELECT late FROM asked) ORDER BY next_run LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE paused_by IS NOT NULL AND (SELECT paused FROM asked) ORDER BY id LIMIT %(crowd)s)
    UNION ALL
    (SELECT owner_type, owner_id FROM {schema}.tasks
     WHERE (NOT enabled OR NOT owner_active) AND (SELECT paused FROM asked) ORDER BY id LIMIT %(crowd)s)
), crowded AS MATERIALIZED (
    SELECT count(*) >= %(crowd)s AS yes FROM suspects
), few AS MATERIALIZED (
    SELECT DISTINCT owner_type, owner_id FROM suspects
    WHERE NOT (SELECT yes FROM crowded) AND owner_type <> ''
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
      AND %(after_rank)s::int = 0 AND (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text)
    ORDER BY owner_type, owner_id LIMIT %(limit)s
), many AS MATERIALIZED (
    SELECT owner_type, owner_id FROM {schema}.tasks
    WHERE (SELECT yes FROM crowded) AND owner_type <> ''
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
      AND %(after_rank)s::int = 0 AND (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text)
    GROUP BY owner_type, owner_id
    HAVING bool_or((failures > 0 AND (SELECT failing FROM asked))
        OR (enabled AND owner_active AND paused_by IS NULL AND coalesce(next_run < (SELECT late FROM instant) AND coalesce(resumed_at < (SELECT late FROM instant), true), false)
            AND (SELECT late FROM asked))
        OR ((paused_by IS NOT NULL OR NOT enabled OR NOT owner_active) AND (SELECT paused FROM asked)))
    ORDER BY owner_type, owner_id LIMIT %(limit)s
), first AS MATERIALIZED (
    SELECT 0 AS rank, * FROM few UNION ALL SELECT 0 AS rank, * FROM many
), others AS MATERIALIZED (
    SELECT 1 AS rank, owner_type, owner_id FROM {schema}.tasks
    WHERE NOT (%(failing)s OR %(late)s OR %(paused)s) AND (SELECT count(*) FROM first) < %(limit)s
      AND owner_type <> '' AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s::text)
      AND (%(after_rank)s::int = 0 OR (owner_type, owner_id) > (%(after_type)s::text, %(after_id)s::text))
    GROUP BY owner_type, owner_id
    HAVING NOT bool_or(failures > 0 OR (enabled AND owner_active AND paused_by IS NULL
                                        AND coalesce(next_run < (SELECT late FROM instant) AND coalesce(resumed_at < (SELECT late FROM instant), true), false)))
    ORDER BY owner_type, owner_id LIMIT %(limit)s
)
SELECT c.* FROM (SELECT * FROM first UNION ALL SELECT * FROM others ORDER BY rank, owner_type, owner_id LIMIT %(limit)s) o,
    LATERAL (
        SELECT t.owner_type, t.owner_id, count(*)::int AS tasks, count(*) FILTER (WHERE failures > 0)::int AS failing,
            count(*) FILTER (WHERE enabled AND owner_active AND paused_by IS NULL AND next_run < i.late AND coalesce(resumed_at < i.late, true))::int AS late,
            count(*) FILTER (WHERE paused_by IS NOT NULL)::int AS paused,
            count(*) FILTER (WHERE NOT owner_active OR NOT enabled)::int AS inactive,
            max(last_success_at) AS last_success,
            min(next_run) FILTER (WHERE enabled AND owner_active AND paused_by IS NULL) AS next_run
        FROM {schema}.tasks t, instant i
        WHERE t.owner_type = o.owner_type AND t.owner_id = o.owner_id
        GROUP BY t.owner_type, t.owner_id) c
ORDER BY o.rank, o.owner_type, o.owner_id

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
-- Without what they printed, which is up to 64 kB each.
SELECT id, task_id, task_name, function, owner_type, owner_id, kind, parent_id, item, occurrence, attempt, retried, pieces,
    state, outcome, reason, due_at, pushed_at, started_at, until, ended_at, created_at, checked_last_run, checked_at,
    every_ms, tolerance_ms, result, traceback, worker, host, pid, job_id
FROM {schema}.runs
WHERE (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
ORDER BY id DESC
LIMIT %(limit)s

-- name: runs_of_task
-- The same of one task, by their ids alone: its scheduled and manual runs, and its retries and pieces, as two indexes have
-- them. (Which task it is, the planner shall not see: see `last_occurrences`.)
SELECT id FROM (
    (SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual')
        AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
     ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('retry', 'piece')
        AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s) AND (%(before)s::bigint IS NULL OR id < %(before)s)
     ORDER BY id DESC LIMIT %(limit)s)) r
ORDER BY id DESC LIMIT %(limit)s

-- name: runs_by_id
SELECT id, task_id, task_name, function, owner_type, owner_id, kind, parent_id, item, occurrence, attempt, retried, pieces,
    state, outcome, reason, due_at, pushed_at, started_at, until, ended_at, created_at, checked_last_run, checked_at,
    every_ms, tolerance_ms, result, traceback, worker, host, pid, job_id
FROM {schema}.runs WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id

-- name: read_run
SELECT * FROM {schema}.runs WHERE id = %(id)s

-- name: runs_of_parents
-- The retries of these runs, or their pieces, as they were made, behind an id.
SELECT id FROM {schema}.runs
WHERE parent_id = ANY (%(parents)s::bigint[]) AND kind = %(kind)s AND id > %(after)s ORDER BY id LIMIT %(limit)s

-- name: attempts_of_piece
-- Of a piece: all attempts, itself included, as they were made.
SELECT a.id FROM {schema}.runs p JOIN {schema}.runs a ON a.parent_id = p.parent_id AND a.kind = 'piece'
WHERE p.id = %(id)s AND a.item IS NOT DISTINCT FROM p.item ORDER BY a.id LIMIT %(limit)s

-- name: waiting_notices
-- What has not arrived yet, the oldest first.
SELECT n.event_id, n.channel, n.tries, n.due_at, n.error, e.at, e.what, e.task_id, coalesce(e.task_name, '') AS task_name,
    coalesce(e.owner_type, '') AS owner_type, coalesce(e.owner_id, '') AS owner_id
FROM {schema}.notices n LEFT JOIN {schema}.events e ON e.id = n.event_id
ORDER BY n.event_id, n.channel LIMIT %(limit)s

-- name: tickers
SELECT id, host, pid, started_at, last_tick_at, last_report,
    extract(epoch FROM clock_timestamp() - last_tick_at)::float8 AS age
FROM {schema}.tickers ORDER BY last_tick_at DESC NULLS LAST

-- name: pieces_of
-- How far the pieces of these runs have come; one that is attempted again counts by its last attempt.
SELECT parent_id, count(*) FILTER (WHERE outcome IN ('succeeded', 'partial', 'nothing_to_do')) AS done,
    count(*) FILTER (WHERE outcome IN ('failed', 'timed_out', 'killed', 'lost', 'dropped') AND NOT retried) AS failed,
    count(*) FILTER (WHERE state <> 'ended') AS open
FROM {schema}.runs WHERE parent_id = ANY (%(parents)s::bigint[]) AND kind = 'piece'
GROUP BY parent_id

-- name: last_occurrences
-- Of a task: the newest runs and drops that are no retries and no pieces. Here and below, a sub-select keeps to itself which
-- task it is: of one that has many runs, the planner would go through those of all tasks to find its newest.
SELECT id FROM {schema}.runs
WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual')
ORDER BY id DESC LIMIT %(limit)s

-- name: occurrences_around
-- Of a task: those that were due last at that time, and the first one behind it. Starts that were due `late` before and
-- after it bound the walk through the task's runs: what was due at the time got its record in between.
WITH bounds AS MATERIALIZED (
    SELECT coalesce((
        SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'scheduled' AND started_at IS NOT NULL
            AND occurrence < %(at)s::timestamptz - %(late)s * interval '1 millisecond'
        ORDER BY occurrence DESC LIMIT 1), 0) AS first, coalesce((
        SELECT id FROM {schema}.runs WHERE task_id = (SELECT %(task_id)s::bigint) AND kind = 'scheduled' AND started_at IS NOT NULL
            AND occurrence > %(at)s::timestamptz + %(late)s * interval '1 millisecond'
        ORDER BY occurrence LIMIT 1), 9223372036854775807) AS last
), before AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual') AND id <= (SELECT last FROM bounds)
      AND coalesce(occurrence, due_at, created_at) <= %(at)s::timestamptz
    ORDER BY id DESC LIMIT %(limit)s
), after AS MATERIALIZED (
    SELECT id, coalesce(occurrence, due_at, created_at) AS due FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual')
      AND id BETWEEN (SELECT first FROM bounds) AND (SELECT last FROM bounds)
      AND coalesce(occurrence, due_at, created_at) > %(at)s::timestamptz
)
SELECT id FROM before UNION ALL (SELECT id FROM after ORDER BY due, id LIMIT 1)

-- name: last_events
SELECT * FROM {schema}.events WHERE task_id = %(task_id)s ORDER BY id DESC LIMIT %(limit)s

-- name: events_by_id
SELECT * FROM {schema}.events WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id

-- name: owner_types
-- The types of owners (none: '') in the record, each found behind the one before: there are few, of many rows.
WITH RECURSIVE ended AS (
    SELECT min(owner_type) AS owner_type FROM {schema}.runs WHERE outcome <> 'dropped'
    UNION ALL
    SELECT (SELECT min(r.owner_type) FROM {schema}.runs r WHERE r.outcome <> 'dropped' AND r.owner_type > e.owner_type)
    FROM ended e WHERE e.owner_type IS NOT NULL
), dropped AS (
    SELECT min(owner_type) AS owner_type FROM {schema}.runs WHERE outcome = 'dropped'
    UNION ALL
    SELECT (SELECT min(r.owner_type) FROM {schema}.runs r WHERE r.outcome = 'dropped' AND r.owner_type > d.owner_type)
    FROM dropped d WHERE d.owner_type IS NOT NULL
)
SELECT owner_type FROM ended WHERE owner_type IS NOT NULL UNION SELECT owner_type FROM dropped WHERE owner_type IS NOT NULL

-- name: journal
-- The runs and drops that ended last, of owners of these types: the newest of each type and outcome, or reason of a drop;
-- of these, the newest. `before` is where a page ends.
SELECT f.id, f.ended_at AS at FROM (
    SELECT r.id, r.ended_at
    FROM unnest(%(owner_types)s::text[]) AS t (owner_type), unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
        SELECT id, ended_at FROM {schema}.runs
        WHERE owner_type = t.owner_type AND outcome = o.outcome AND outcome <> 'dropped'
          AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
          AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
          AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
        ORDER BY ended_at DESC, id DESC LIMIT %(limit)s) r
    UNION ALL
    SELECT d.id, d.ended_at
    FROM unnest(%(owner_types)s::text[]) AS t (owner_type), unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
        SELECT id, ended_at FROM {schema}.runs
        WHERE owner_type = t.owner_type AND reason = o.reason AND outcome = 'dropped'
          AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
          AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
          AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
        ORDER BY ended_at DESC, id DESC LIMIT %(limit)s) d
) f ORDER BY f.ended_at DESC, f.id DESC LIMIT %(limit)s

-- name: journal_of_task
-- The same of one task: of those of its runs that were made last, as an end comes soon after; and so of its retries and
-- pieces. A run ends behind its pieces, however many there are: so what these belong to is among them, too.
WITH heads AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('scheduled', 'manual') AND state = 'ended'
      AND (outcome = ANY (%(outcomes)s::text[]) OR (outcome = 'dropped' AND reason = ANY (%(reasons)s::text[])))
      AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
      AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
      AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
    ORDER BY id DESC LIMIT %(limit)s + 1000
), further AS MATERIALIZED (
    SELECT id, parent_id FROM {schema}.runs
    WHERE task_id = (SELECT %(task_id)s::bigint) AND kind IN ('retry', 'piece') AND state = 'ended'
      AND (outcome = ANY (%(outcomes)s::text[]) OR (outcome = 'dropped' AND reason = ANY (%(reasons)s::text[])))
      AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
      AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
      AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
    ORDER BY id DESC LIMIT %(limit)s + 1000
)
SELECT id, ended_at AS at FROM {schema}.runs
WHERE id = ANY (ARRAY(SELECT id FROM heads UNION SELECT id FROM further UNION SELECT parent_id FROM further))
  AND (outcome = ANY (%(outcomes)s::text[]) OR (outcome = 'dropped' AND reason = ANY (%(reasons)s::text[])))
  AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
  AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
ORDER BY ended_at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_owner
-- The same of one owner, its deleted tasks included.
SELECT id, ended_at AS at FROM {schema}.runs
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND owner_type <> '' AND ended_at IS NOT NULL
  AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND ended_at <= coalesce(%(before)s::timestamptz, 'infinity')
  AND (ended_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_run)s::bigint)
  AND (outcome = ANY (%(outcomes)s::text[]) OR (outcome = 'dropped' AND reason = ANY (%(reasons)s::text[])))
ORDER BY ended_at DESC, id DESC LIMIT %(limit)s

-- name: journal_of_events
SELECT id, at FROM {schema}.events
WHERE at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND at <= coalesce(%(before)s::timestamptz, 'infinity')
  AND (at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_event)s::bigint)
  AND (%(task_id)s::bigint IS NULL OR task_id = %(task_id)s)
  AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
  AND (%(owner_id)s::text IS NULL OR owner_id = %(owner_id)s)
ORDER BY at DESC, id DESC LIMIT %(limit)s

-- name: drops
-- How many since then, by what they have in common; the newest of each as an example. The types of owners and the reasons
-- that there are come first, each pair found behind the one before: so the index is read from `since` on for each.
WITH RECURSIVE pairs AS (
    (SELECT owner_type, reason FROM {schema}.runs WHERE outcome = 'dropped' ORDER BY owner_type, reason LIMIT 1)
    UNION ALL
    SELECT n.owner_type, n.reason FROM pairs p, LATERAL (
        SELECT owner_type, reason FROM {schema}.runs
        WHERE outcome = 'dropped' AND (owner_type, reason) > (p.owner_type, p.reason)
        ORDER BY owner_type, reason LIMIT 1) n
)
SELECT key, count(*) AS count, max(ended_at) AS newest, max(id) AS run_id
FROM pairs p, LATERAL (
    SELECT id, task_id, function, owner_id, ended_at FROM {schema}.runs
    WHERE outcome = 'dropped' AND owner_type = p.owner_type AND reason = p.reason
      AND ended_at >= coalesce(%(since)s::timestamptz, '-infinity') OFFSET 0) r, LATERAL (
    SELECT CASE %(by)s WHEN 'reason' THEN p.reason WHEN 'function' THEN r.function WHEN 'task' THEN r.task_id::text
        ELSE concat_ws(':', nullif(p.owner_type, ''), nullif(r.owner_id, '')) END AS key) k
GROUP BY key ORDER BY count(*) DESC, max(ended_at) DESC, key LIMIT %(limit)s OFFSET %(after)s

-- name: deleted_tasks
-- The deleted ones of these tasks, named as in their newest record (those of `gone` may lack it) or their last event.
SELECT i.id, coalesce(r.task_name, e.task_name, '') AS task_name, coalesce(r.owner_type, e.owner_type, '') AS owner_type,
    coalesce(r.owner_id, e.owner_id, '') AS owner_id
FROM unnest(%(ids)s::bigint[]) AS i (id) LEFT JOIN LATERAL (
    SELECT task_name, owner_type, owner_id FROM {schema}.runs
    WHERE task_id = i.id AND kind IN ('scheduled', 'manual') AND task_name <> '' ORDER BY id DESC LIMIT 1) r ON true
    LEFT JOIN LATERAL (
    SELECT task_name, owner_type, owner_id FROM {schema}.events WHERE task_id = i.id ORDER BY id DESC LIMIT 1) e ON true
WHERE NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = i.id)

-- name: last_ends
-- Of each of these tasks the record of its last end, where it is kept: of its last run, or of an occurrence that was lost
-- later, before it began, and so is none. OFFSET 0 keeps that question to the index of what was given up.
SELECT t.id AS task_id, coalesce(
    (SELECT r.id FROM {schema}.runs r WHERE r.id = t.last_run_id AND r.ended_at = t.last_ended_at),
    (SELECT max(l.id) FROM (
        SELECT r.id FROM {schema}.runs r
        WHERE r.task_id = t.id AND r.started_at IS NULL AND r.outcome = 'lost' AND r.ended_at = t.last_ended_at OFFSET 0) l)
    ) AS run_id
FROM {schema}.tasks t WHERE t.id = ANY (%(ids)s::bigint[])

-- name: server_version
SELECT current_setting('server_version') AS version


-- ------------------------------------------------------------------------------------------------ counted for metrics
--
-- Asked by a thread beside the ticks, when somebody scrapes (ticker/metrics). Every record lives for two hours at least,
-- whatever its task keeps, so that none goes uncounted.

-- name: count_ended
-- What ended from `since` to before `until`: runs by function and outcome, drops by function and reason; and how many runs
-- of a function took how long for what, in buckets, with the sum. The bounds of the buckets come negated, the largest first:
-- so a value that is equal to one belongs to it. A run in pieces lasts as long as these do, and when a lost one ended nobody
-- knows: neither has a duration. `until` of a run is the end of its grace, which the record does not have by itself. OFFSET
-- 0 keeps the question to the range of one type of owners and one outcome in the index, however many rows there are.
WITH ended AS MATERIALIZED (
    SELECT r.* FROM unnest(%(owner_types)s::text[]) AS t (owner_type), unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
        SELECT function, outcome, pushed_at, started_at, until, ended_at,
            CASE kind WHEN 'scheduled' THEN occurrence ELSE due_at END AS due,
            pieces IS NULL AND outcome <> 'lost' AS is_timed,
            CASE WHEN every_ms BETWEEN 1 AND 9999 THEN every_ms / 10 ELSE 1000 END * interval '1 millisecond' AS grace
        FROM {schema}.runs
        WHERE owner_type = t.owner_type AND outcome = o.outcome AND outcome <> 'dropped'
          AND ended_at >= %(since)s::timestamptz AND ended_at < %(until)s::timestamptz OFFSET 0) r
), dropped AS MATERIALIZED (
    SELECT d.* FROM unnest(%(owner_types)s::text[]) AS t (owner_type), unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
        SELECT function, reason FROM {schema}.runs
        WHERE owner_type = t.owner_type AND reason = o.reason AND outcome = 'dropped'
          AND ended_at >= %(since)s::timestamptz AND ended_at < %(until)s::timestamptz OFFSET 0) d
), spans AS (
    SELECT function, started_at - due AS start_delay, started_at - pushed_at AS queue_delay,
        CASE WHEN is_timed THEN ended_at - started_at END AS duration,
        CASE WHEN is_timed AND until > started_at + grace THEN until - started_at - grace END AS box
    FROM ended WHERE started_at IS NOT NULL
), measured AS (
    SELECT s.function, m.family, m.bounds, greatest(m.value, 0) AS value
    FROM spans s, LATERAL (VALUES
        ('ticker_start_delay_seconds', extract(epoch FROM s.start_delay)::float8, %(delays)s::float8[]),
        ('ticker_queue_delay_seconds', extract(epoch FROM s.queue_delay)::float8, %(delays)s::float8[]),
        ('ticker_run_duration_seconds', extract(epoch FROM s.duration)::float8, %(durations)s::float8[]),
        ('ticker_run_quota_used_ratio', (extract(epoch FROM s.duration) / extract(epoch FROM s.box))::float8,
            %(shares)s::float8[])
    ) AS m (family, value, bounds)
    WHERE m.value IS NOT NULL
)
SELECT 'ticker_runs_total' AS family, function, outcome AS word, NULL::int AS bound, count(*), 0::float8 AS sum
FROM ended GROUP BY function, outcome
UNION ALL
SELECT 'ticker_drops_total', function, reason, NULL, count(*), 0 FROM dropped GROUP BY function, reason
UNION ALL
SELECT family, function, NULL, cardinality(bounds) - width_bucket(-value, bounds) AS bound, count(*), sum(value)
FROM measured GROUP BY family, function, bounds, bound

-- name: oldest_due
-- The seconds for which the longest overdue task has been due, among the first 1,000 by time; 0 if no task is due. The time
-- in which a task was disabled or paused does not count.
WITH instant AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT greatest((SELECT extract(epoch FROM (SELECT now FROM instant) - min(greatest(t.next_run, t.resumed_at))) FROM (
    SELECT next_run, resumed_at FROM {schema}.tasks
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run <= (SELECT now FROM instant)
    ORDER BY next_run LIMIT 1000) t), 0)::float8 AS seconds

-- name: waiting_in_queues
-- Of each queue in which jobs of tasks wait: how many seconds ago its oldest occurrence was due.
SELECT queue, greatest(extract(epoch FROM coalesce(%(now)s::timestamptz, clock_timestamp()) - min(waiting[1])), 0)::float8
    AS seconds
FROM {schema}.tasks WHERE waiting <> '{}' GROUP BY queue ORDER BY queue
