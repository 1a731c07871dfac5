-- name: ended_pauses
-- Locks the tasks whose own pauses have ended, and returns what their first times depend on (`kinds.first_by_default`).
SELECT id, paused_by, kind, expression, zone, phase_ms, starts_at, ends_at FROM {schema}.tasks WHERE paused_until <= %(now)s
ORDER BY paused_until LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED

-- name: claim_due
-- Claims the due tasks, oldest first, with locks. Skips rows that another ticker holds. (The coalesce hides the queues from the
-- planner: without their values, it would expect hardly any row, and sort what the index has in order.)
SELECT {claimed t}
FROM {schema}.tasks t {announced t}
WHERE {unlimited t} AND {due t} AND NOT {covered t} AND NOT {waits_for_turn t} AND coalesce(queue <> ALL (%(without)s::text[]), false)
ORDER BY next_run
LIMIT %(limit)s
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: claim_in_turn
-- Claims tasks of a queue that has room for `limit` of them: one of each owner, then the second of each, and so on. A
-- task without an owner counts as its own owner. Within an owner, the priority decides, then the age.
WITH due AS MATERIALIZED (
    SELECT id, next_run, row_number() OVER (PARTITION BY owner_type, CASE owner_type WHEN '' THEN id::text ELSE owner_id END
        ORDER BY priority DESC, next_run, id) AS turn
    FROM {schema}.tasks t
    WHERE {unlimited t} AND {due t} AND NOT {covered t} AND NOT {waits_for_turn t} AND queue = %(queue)s
), chosen AS MATERIALIZED (
    SELECT * FROM due ORDER BY turn, next_run LIMIT %(limit)s
)
SELECT {claimed t}
FROM {schema}.tasks t JOIN chosen c ON c.id = t.id {announced t}
WHERE {unlimited} AND t.next_run = c.next_run AND queue = %(queue)s
ORDER BY c.turn, c.next_run
FOR NO KEY UPDATE OF t SKIP LOCKED

-- rule: with_jobs
-- The tasks with limits whose jobs wait: those with waiting occurrences, and, without ids, those of planned runs.
SELECT t.id, t.limits FROM {schema}.tasks t WHERE t.waiting <> '{}' AND t.limits IS NOT NULL
        UNION ALL SELECT NULL, t.limits FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id WHERE r.state = 'pushed'

-- rule: with_rooms
-- The room of each key of what is `due` is what its tightest limit leaves free, minus what waiting jobs will take. Tokens that
-- are free within `ahead` milliseconds count, because it takes a while until a job starts. So do runs that will have ended by
-- then, if they take as long as earlier runs. In a queue with a delay there is also room for what the limit lets start within
-- that delay. It is given out at the pace of the limit since the last tick: jobs that were pushed at once would also arrive at
-- once, and the start would send most of them back. Full joins are never nested loops: where the planner expects few rows, a left
-- join would compare each task with each key.
), rooms AS MATERIALIZED (
    SELECT k.key, f.free + least(ceil(f.pace * p.delay), greatest(-f.free, 0) + floor(f.pace * l.now) - floor(f.pace * l.looked)) AS room,
        CASE WHEN k.closed_until > %(now)s THEN k.closed_until
             WHEN p.jobs > 0 AND f.pace > 0 AND p.delay < {longest_delay} THEN %(now)s + least(0.5 / f.pace, 5) * interval '1 second'
             WHEN s.starts <= p.jobs THEN s.token_ends END AS free_at
    FROM (SELECT key, least(max(delay), {longest_delay}) AS delay, count(*) FILTER (WHERE delay IS NULL) AS jobs FROM (
            SELECT u.key, coalesce((%(delays)s::jsonb ->> d.queue)::float8, 0) AS delay FROM due d, unnest(d.limits) AS u (key)
            UNION ALL SELECT u.key, NULL FROM ({with_jobs t}) pushed, unnest(limits) AS u (key)) named
          GROUP BY key HAVING max(delay) IS NOT NULL) p
        CROSS JOIN (SELECT extract(epoch FROM %(now)s::timestamptz)::float8 AS now,
            extract(epoch FROM greatest(max(last_tick_at), %(now)s::timestamptz - interval '1 second'))::float8 AS looked
            FROM {schema}.tickers WHERE last_tick_at <= %(now)s) l
        JOIN {schema}.limited_keys k ON k.key = p.key, LATERAL (
            SELECT {places k} - count(*) FILTER (WHERE kind = 'run' AND until > %(now)s) AS runs, (avg(took_ms) + 10) / 1000 AS took,
                least(coalesce(floor(%(ahead)s * count(*) FILTER (WHERE kind = 'run' AND until > %(now)s)
                    / (avg(took_ms) + 10)), 0), {places k})::integer AS ending,
                k.burst - count(*) FILTER (WHERE kind = 'start' AND until > a.ahead) AS starts,
                min(until) FILTER (WHERE kind = 'start' AND until > a.ahead) - %(ahead)s * interval '1 millisecond' AS token_ends
            FROM {schema}.slots, (SELECT %(now)s::timestamptz + %(ahead)s * interval '1 millisecond' AS ahead) a
            WHERE key = k.key AND n <= CASE kind WHEN 'run' THEN {places k} ELSE k.burst END) s, LATERAL (
            SELECT CASE WHEN k.closed_until > %(now)s THEN 0 ELSE
                    least(CASE WHEN {places k} > 0 THEN s.runs + s.ending END, CASE WHEN k.burst > 0 THEN s.starts END) END - p.jobs AS free,
                CASE WHEN k.closed_until > %(now)s THEN 0 ELSE coalesce(least({places k} / s.took, 1e6 * k.burst / k.token_us), 0) END::float8 AS pace) f
)
SELECT d.id, d.next_run, d.queue, d.limits[1] AS one, d.limits[2] AS two, a.room AS room_one, b.room AS room_two, d.owner_type,
    d.owner_id, d.priority, greatest(a.free_at, b.free_at) AS free_at, d.is_planned, d.has_job, d.more
FROM due d FULL JOIN rooms a ON a.key = d.limits[1] FULL JOIN rooms b ON b.key = d.limits[2]
WHERE coalesce(d.id, 0) > 0
ORDER BY d.next_run, d.id

-- rule: longest_delay
-- Jobs that wait for longer get no further room, in seconds: they would all arrive together when workers are back.
30

-- name: limited_due
-- Lists due tasks with limits, oldest first, and the room of their keys. Nothing is locked. Continues after a task that was
-- listed before, and leaves out tasks of keys that are known to be full.
WITH due AS MATERIALIZED (
    SELECT t.id, t.next_run, t.queue, t.limits, t.owner_type, t.owner_id, t.priority, false AS is_planned,
        t.waiting <> '{}' AS has_job, count(*) OVER () >= %(limit)s AS more
    FROM (SELECT * FROM {schema}.tasks t WHERE {limited t} AND {due t} AND {offered t} AND NOT {waits_for_turn t}
            AND (t.next_run, t.id) > (%(after_run)s::timestamptz, %(after_id)s::bigint)
          ORDER BY t.next_run, t.id LIMIT %(limit)s) t
{with_rooms t}

-- name: limited_planned
-- Lists planned runs of tasks with limits in the same way: retries and manual runs, and pieces of each run that has
-- made all its pieces.
{with_parents}, plans AS MATERIALIZED (
    (SELECT r.id, r.task_id, r.due_at, count(*) OVER () >= %(limit)s AS more
     FROM (SELECT r.* FROM {schema}.runs r {its_task}
           WHERE {planned r} AND r.due_at <= %(now)s AND {offered t} AND {may_be_pushed t} AND {has_turn t} ORDER BY r.due_at, r.id LIMIT %(limit)s) r)
    UNION ALL
    SELECT f.* FROM (SELECT m.id, greatest(%(limit)s / count(*) OVER (), 20) AS share
                     FROM parents m JOIN {schema}.runs r ON r.id = m.id {its_task}
                     WHERE r.state = 'processing' AND {offered t} AND {not_at_gate t}) m, LATERAL (
        SELECT r.id, r.task_id, r.due_at, count(*) OVER () >= m.share FROM (
            SELECT r.* FROM {schema}.runs r WHERE {due_piece r} ORDER BY r.id LIMIT m.share) r) f
), due AS MATERIALIZED (
    SELECT r.id, r.due_at AS next_run, t.queue, t.limits, t.owner_type, t.owner_id, t.priority, true AS is_planned,
        false AS has_job, r.more
    FROM plans r {its_task} ORDER BY r.due_at, r.id LIMIT 5 * %(limit)s
{with_rooms t}

-- rule: offered
t.limits IS NOT NULL AND t.limits[1] <> ALL (%(full)s::text[]) AND coalesce(t.limits[2], '') <> ALL (%(full)s::text[]) AND t.queue <> ALL (%(without)s::text[])

-- name: claim_chosen
-- Claims these tasks, in this order, unless another ticker has them, or they are not due any more. The rule does not name
-- their limits: an index of limited tasks would be read for all of them.
SELECT {claimed t}
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY AS c (id, n) JOIN {schema}.tasks t ON t.id = c.id {announced t}
WHERE {runnable t} AND {due t} AND NOT {covered t} AND NOT {waits_for_turn t}
ORDER BY c.n
FOR NO KEY UPDATE OF t SKIP LOCKED

-- name: count_due
-- Counts the due tasks of a queue, whether their keys have room or not. Each half has its own index.
SELECT (SELECT count(*) FROM {schema}.tasks WHERE {unlimited} AND {due} AND queue = %(queue)s)
    + (SELECT count(*) FROM {schema}.tasks WHERE {limited} AND {due} AND queue = %(queue)s) AS count

-- name: advance
-- Marks the occurrences of these locked rows as waiting once Redis has taken their jobs, unless they have started
-- meanwhile, and sets the next run. If the job also carries other tasks, its id is stored. If nothing waited, earlier ids
-- are removed here: a start that removed the last one would write more of the row to the log. The newest 10,000 are kept:
-- otherwise a row that was filled by hand would fail the tables' CHECK, and all other rows here would fail with it.
UPDATE {schema}.tasks t SET
    next_run = a.next_run,
    waiting = CASE WHEN t.next_run = ANY (t.waiting) OR (t.next_run <= t.last_occurrence AND EXISTS (
                       SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.occurrence = t.next_run
                       AND r.kind = 'scheduled' AND r.started_at IS NOT NULL)) THEN t.waiting
                   ELSE t.waiting[greatest(cardinality(t.waiting) - 9998, 1):] || t.next_run END,
    batch_jobs = nullif(coalesce(CASE WHEN t.waiting <> '{}' THEN t.batch_jobs END, '{}')
        || CASE WHEN a.batch_job IS NULL THEN '{}' ELSE jsonb_build_object({schema}.micros(t.next_run), a.batch_job) END, '{}'),
    push_errors = 0, push_error = '', push_after = NULL, enough_jobs_event = NULL
FROM unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[], %(batch_jobs)s::text[]) AS a (id, next_run, batch_job)
WHERE t.id = a.id

-- name: note_jobs
-- Notes the jobs in which these occurrences of different tasks were pushed again. The id is NULL if it is derived from the
-- job's only task.
UPDATE {schema}.tasks t SET batch_jobs = nullif(coalesce(t.batch_jobs, '{}') - {schema}.micros(a.occurrence)
    || CASE WHEN a.batch_job IS NULL THEN '{}' ELSE jsonb_build_object({schema}.micros(a.occurrence), a.batch_job) END, '{}')
FROM unnest(%(ids)s::bigint[], %(occurrences)s::timestamptz[], %(batch_jobs)s::text[]) AS a (id, occurrence, batch_job)
WHERE t.id = a.id AND (t.batch_jobs IS NOT NULL OR a.batch_job IS NOT NULL)

-- name: skip_for_enough_jobs
-- Counts the occurrences of these locked tasks, of which enough jobs wait, or one waits or runs and the task skips overlaps. They
-- leave no record: one event of each task counts them until one of its occurrences is pushed again.
WITH given AS MATERIALIZED (
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, t.enough_jobs_event, t.next_run AS occurrence,
        CASE t.overlap WHEN 'skip' THEN 'a job of the task waits or runs (overlap skip)' ELSE %(words)s END AS words
    FROM {schema}.tasks t WHERE t.id = ANY (%(ids)s::bigint[])
), counted AS (
    UPDATE {schema}.events e SET count = e.count + 1, until = g.occurrence FROM given g WHERE e.id = g.enough_jobs_event
), first AS (
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, count, until, words)
    SELECT g.occurrence, g.id, g.name, g.function, g.owner_type, g.owner_id, 'enough_jobs', 'ticker', 1, g.occurrence, g.words
    FROM given g WHERE NOT EXISTS (SELECT FROM {schema}.events e WHERE e.id = g.enough_jobs_event)
    RETURNING id, task_id
)
UPDATE {schema}.tasks t SET enough_jobs_event = e.id FROM first e WHERE t.id = e.task_id

-- name: try_later
-- Sets back tasks that could not be pushed: they stay due, wait a while, and store the reason. (Counts stop at the
-- limit of the tables' CHECK.)
UPDATE {schema}.tasks t SET
    push_errors = least(t.push_errors + 1, 1000000), push_error = left(b.error, 500), push_after = b.after
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE t.id = b.id

-- rule: may_be_pushed
-- No pause keeps the planned run r of the task from its job, and no run at work, except from a piece. A manual run of a paused task
-- runs, unless all tasks are paused. A retry of a task that waits for its turn after a pause waits with it.
NOT {all_paused} AND (r.kind = 'manual' OR {not_at_gate t})
    AND (r.kind = 'piece' OR coalesce(t.running_until <= %(now)s::timestamptz, true))

-- rule: has_turn
-- Manual runs of suspected tasks wait for no turn.
(r.kind = 'manual' OR NOT {waits_for_turn t})

-- rule: not_at_gate
-- No pause keeps the task waiting. Planned runs look for a worker that knows their function by themselves.
((t.pause_id IS NULL OR {waits_for_worker t}) AND NOT {kept_waiting t})

-- rule: its_task
-- Looks up the task t of each run r by itself. In a plain join, the planner reads all tasks, and sorts all runs that are due.
CROSS JOIN LATERAL (SELECT * FROM {schema}.tasks t WHERE t.id = r.task_id OFFSET 0) t

-- name: claim_planned
-- Claims due retries (also of pieces) and manual runs of tasks without limits, with the columns of the task that their push
-- needs. With `queue`, claims only those of this queue; otherwise those of all queues except `without`.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms, {in_groups t}
FROM {schema}.runs r {its_task} {announced t}
WHERE {planned r} AND r.due_at <= %(now)s AND t.limits IS NULL AND {may_be_pushed t} AND {has_turn t}
  AND CASE WHEN %(queue)s::text IS NULL THEN t.queue <> ALL (%(without)s::text[]) ELSE t.queue = %(queue)s END
ORDER BY r.due_at, r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: claim_pieces
-- Claims pieces in the same way: a share of each run that has made all its pieces. Each run is found after the
-- previous one.
{with_parents}, made AS MATERIALIZED (
    SELECT p.id, p.task_id, t.queue, t.function, t.box_ms, t.grace_ms
    FROM parents m JOIN {schema}.runs p ON p.id = m.id JOIN {schema}.tasks t ON t.id = p.task_id
    WHERE p.state = 'processing' AND t.limits IS NULL AND {not_at_gate t}
      AND CASE WHEN %(queue)s::text IS NULL THEN t.queue <> ALL (%(without)s::text[]) ELSE t.queue = %(queue)s END
), chosen AS MATERIALIZED (
    SELECT c.id, c.turn FROM made m, LATERAL (
        SELECT f.id, row_number() OVER (ORDER BY f.id) AS turn FROM (
            SELECT r.id FROM {schema}.runs r
            WHERE {due_piece r} ORDER BY r.id LIMIT %(limit)s) f) c
    ORDER BY c.turn, c.id LIMIT %(limit)s
)
SELECT r.id, r.task_id, m.queue, m.function, m.box_ms, m.grace_ms
FROM chosen c JOIN {schema}.runs r ON r.id = c.id JOIN made m ON m.id = r.parent_id
WHERE r.state = 'planned'
ORDER BY c.turn, r.id
FOR NO KEY UPDATE OF r SKIP LOCKED

-- rule: due_piece
-- A piece that was made before the clock was set back is due.
t.parent_id = m.id AND {planned_piece t} AND (t.due_at <= %(now)s OR t.created_at > %(now)s::timestamptz + interval '1 second')

-- name: claim_chosen_planned
-- Claims these planned runs, unless another ticker has them, or a pause was committed since they were chosen.
SELECT r.id, r.task_id, t.queue, t.function, t.box_ms, t.grace_ms, {in_groups t}
FROM {schema}.runs r {its_task} {announced t}
WHERE r.id = ANY (%(ids)s::bigint[]) AND r.state = 'planned' AND {may_be_pushed t} AND {has_turn t}
ORDER BY r.due_at, r.id
FOR NO KEY UPDATE OF r SKIP LOCKED

-- name: mark_pushed
-- Notes that these planned runs were pushed, and in which jobs.
UPDATE {schema}.runs r SET state = 'pushed', pushed_at = %(now)s, reason = '', job_id = p.job_id
FROM unnest(%(ids)s::bigint[], %(job_ids)s::text[]) AS p (id, job_id) WHERE r.id = p.id

-- name: try_planned_later
-- Sets back a planned run that could not be pushed, to try again later, and stores the reason.
UPDATE {schema}.runs r SET due_at = b.after, reason = left(b.error, 500)
FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::timestamptz[]) AS b (id, error, after)
WHERE r.id = b.id

-- name: drop_orphaned_plans
-- Drops planned runs whose task was deleted: pieces, which a deletion leaves to ticks, and runs that a deletion under
-- REPEATABLE READ did not see. Pieces of a run that ended before it had made all of them never counted: they are
-- deleted.
{with_parents}, made AS MATERIALIZED (
    SELECT m.id, coalesce(p.state = 'ended', false) AS is_over, EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = p.task_id) AS is_wanted
    FROM parents m LEFT JOIN {schema}.runs p ON p.id = m.id WHERE m.id IS NOT NULL
), pieces AS MATERIALIZED (
    SELECT r.id, m.is_over FROM made m, LATERAL (
        SELECT r.id FROM {schema}.runs r
        WHERE r.parent_id = m.id AND {planned_piece r}
        ORDER BY r.id LIMIT 20 * %(limit)s FOR NO KEY UPDATE SKIP LOCKED) r
    WHERE m.is_over OR NOT m.is_wanted
), unmade AS (
    DELETE FROM {schema}.runs r USING pieces p WHERE p.is_over AND r.id = p.id
), planned AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE {planned r} AND r.due_at <= %(now)s
      AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.due_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.runs r SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = %(now)s
WHERE r.id IN (SELECT id FROM planned UNION ALL SELECT id FROM pieces WHERE NOT is_over) RETURNING r.id
