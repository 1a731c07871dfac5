-- name: instant
-- Returns the time of the only clock that decides.
SELECT {now} AS now

-- name: look_up_task
-- Reads the row for a registration without a lock. If nothing has changed, a long deploy blocks no start. Restores the caller's
-- search_path, because this is usually the last statement.
SELECT {task}, {restored} AS restored FROM {schema}.tasks
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND name = %(name)s

-- name: find_task
-- Reads the same row and locks it until the transaction ends.
SELECT {task} FROM {schema}.tasks
WHERE owner_type = %(owner_type)s AND owner_id = %(owner_id)s AND name = %(name)s
FOR NO KEY UPDATE

-- name: actor
-- Returns the author of the events of this transaction; empty means the database user. Statements with `by` set it, and
-- `act_as` restores it.
SELECT coalesce(current_setting('ticker.by', true), '') AS by

-- name: act_as
SELECT set_config('ticker.by', %(by)s, true)

-- rule: as_author
-- Sets the author of the events that the statement causes, if there is a `by`. Always true.
set_config('ticker.by', coalesce(%(by)s, current_setting('ticker.by', true), ''), true) IS NOT NULL

-- name: name_keys
-- Names the keys of all tasks that this transaction is about to write (`use_keys`).
SELECT set_config('ticker.keys', array_to_string(%(keys)s::text[], ','), true)

-- name: look_up_tasks
-- Reads the same of many rows, as far as a registration compares it. `number` is the place in the lists.
SELECT w.number::int AS number, t.id, t.registered::text AS registered, t.kind, t.during
FROM unnest(%(owner_types)s::text[], %(owner_ids)s::text[], %(names)s::text[])
    WITH ORDINALITY AS w (owner_type, owner_id, name, number)
JOIN {schema}.tasks t ON t.owner_type = w.owner_type AND t.owner_id = w.owner_id AND t.name = w.name

-- rule: inserted
-- Inserts tasks, due at once unless `firsts` says otherwise, and with `in_phase` in their phase from then on. Leaves
-- out those that another process has inserted, and those whose owner is gone. Many tasks share a definition
-- (`definitions`, `registrations`) but for the few columns in `owns`. `{settings}` stands for a list of columns
-- (`ticker.tasks.rows`).
definitions AS MATERIALIZED (
    SELECT d.number, d.registered::jsonb AS said, n.* FROM unnest(%(definitions)s::text[], %(registrations)s::text[])
        WITH ORDINALITY AS d (settings, registered, number), jsonb_populate_record(NULL::{schema}.tasks, d.settings::jsonb) n
), inserted AS (
    INSERT INTO {schema}.tasks (owner_type, owner_id, name, registered, declared_in, {settings}, grace_ms, alarm_at, next_run)
    SELECT w.owner_type, w.owner_id, w.name, n.said || w.own, %(declared_in)s, {settings_of_each}, n.grace_ms,
        CASE WHEN n.dead_man IS NOT NULL THEN i.soonest END, CASE WHEN p.phase_ms IS NULL THEN i.soonest ELSE {in_phase p} END
    FROM ROWS FROM (unnest(%(owner_types)s::text[], %(owner_ids)s::text[], %(names)s::text[], %(which)s::int[],
            %(firsts)s::timestamptz[], %(in_phase)s::boolean[]), jsonb_array_elements(%(owns)s::text::jsonb))
            WITH ORDINALITY AS w (owner_type, owner_id, name, which, first, in_phase, own, number)
        JOIN definitions n ON n.number = w.which,
        jsonb_to_record(w.own) o ({own_columns}), LATERAL (SELECT coalesce(w.first, {now}) AS soonest OFFSET 0) i,
        LATERAL (SELECT i.soonest, n.ends_at, k.every_ms, CASE WHEN w.in_phase THEN {phase k} END AS phase_ms FROM (SELECT
            w.owner_type, w.owner_id, w.name, n.spread, n.kind, n.every_ms, n.within_ms) k OFFSET 0) p
    ORDER BY w.number
    ON CONFLICT (owner_type, owner_id, name) DO NOTHING
    RETURNING *
)

-- name: insert_task
WITH {inserted} SELECT {task t}, {unknown_queue t} AS unknown_queue FROM inserted t

-- name: insert_tasks
WITH {inserted} SELECT owner_type, owner_id, name, id FROM inserted

-- name: tasks_with_ids
SELECT {task}, {unknown_queue} AS unknown_queue FROM {schema}.tasks t WHERE id = ANY (%(ids)s::bigint[])

-- rule: kept_pace
-- The interval in force of the task t within its new bounds n.
CASE WHEN n.every_most_ms IS NOT NULL AND t.pace_ms > n.every_ms THEN least(t.pace_ms, n.every_most_ms) END

-- rule: nearer
-- When an interval task t is due after its interval has changed at i.now: never later than before, and within one new interval. It
-- moves by whole intervals, so that tasks that were due one after the other stay apart, but keeps an interval from its last start
-- and its last job.
(SELECT least(t.next_run, i.now + p.long, greatest(greatest(t.last_run, (SELECT max(w) FROM unnest(t.waiting) w)) + p.long,
        t.next_run - ceil(extract(epoch FROM t.next_run - i.now) / extract(epoch FROM p.long) - 1)::float8 * p.long))
    FROM (SELECT coalesce({kept_pace t}, n.every_ms) * interval '1 millisecond' AS long) p)

-- name: change_tasks
-- Writes new values of the columns that people define. A changed interval may bring the next run nearer, but never
-- delays it (`nearer`). An interval task that is enabled again is due as after a pause. With `agains`, more of the schedule has
-- changed, and `next_runs` has the new due times. The next push decides whether an earlier push error is mended.
UPDATE {schema}.tasks t SET
    ({settings}) = ROW ({settings n}), grace_ms = n.grace_ms,
    registered = coalesce(c.registered::jsonb, t.registered), declared_in = coalesce(%(declared_in)s, t.declared_in),
    stretched_ms = CASE WHEN n.stretch_ms IS NOT NULL THEN t.stretched_ms END,
    pace_ms = {kept_pace t},
    alarm_at = CASE WHEN n.dead_man IS NULL THEN NULL WHEN t.dead_man = n.dead_man THEN t.alarm_at ELSE i.now END,
    next_run = CASE WHEN c.again THEN c.next_run
        WHEN n.enabled AND NOT t.enabled AND t.every_ms = n.every_ms THEN {resumed t}
        WHEN t.every_ms = n.every_ms AND t.pace_ms IS NOT DISTINCT FROM {kept_pace t} OR t.next_run IS NULL THEN t.next_run
        ELSE greatest(n.starts_at, {nearer t}) END,
    push_errors = 0, push_error = '', push_after = NULL,
    updated_at = i.now
FROM (SELECT {now} AS now) i, unnest(%(ids)s::bigint[], %(definitions)s::text[], %(registrations)s::text[], %(agains)s::boolean[],
        %(next_runs)s::timestamptz[]) AS c (id, definition, registered, again, next_run),
    LATERAL jsonb_populate_record(NULL::{schema}.tasks, c.definition::jsonb) n
WHERE t.id = c.id AND {as_author}
RETURNING {task t}, {unknown_queue t} AS unknown_queue

-- name: next_in_phase
-- Locks spread tasks, and returns for each the first point in its phase at which it may start.
SELECT t.id, {in_phase p} AS next_run
FROM {schema}.tasks t, LATERAL (SELECT greatest(t.starts_at, {now}, {soonest_due t}) AS soonest, t.ends_at, t.phase_ms, t.every_ms) p
WHERE t.id = ANY (%(ids)s::bigint[]) AND t.next_run IS NOT NULL AND t.phase_ms IS NOT NULL
FOR NO KEY UPDATE OF t

-- name: spread_plan
-- Returns the number of the chosen interval tasks, and how many of them already have a phase. Also returns the largest
-- number that is due within one tick, now and after each has its phase.
WITH instant AS MATERIALIZED (
    SELECT 1000 * extract(epoch FROM {now})::float8 AS now
), ticks AS MATERIALIZED (
    SELECT b.now, b.later, count(*) AS tasks, count(*) FILTER (WHERE spread) AS placed
    FROM instant i, {schema}.tasks t, LATERAL (
        SELECT {phase s} AS phase FROM (SELECT t.kind, t.owner_type, t.owner_id, t.name, t.every_ms, t.within_ms, true AS spread) s
        OFFSET 0) p, LATERAL (  -- once a row
        SELECT floor(greatest(1000 * extract(epoch FROM next_run)::float8, i.now) / %(tick_ms)s) AS now,
            floor((ceil((i.now - phase) / every_ms) * every_ms + phase) / %(tick_ms)s) AS later) b
    WHERE kind = 'interval' AND next_run IS NOT NULL
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
      AND (%(function)s::text IS NULL OR function = %(function)s)
    GROUP BY b.now, b.later
)
SELECT coalesce(sum(tasks), 0)::int AS tasks, coalesce(sum(placed), 0)::int AS placed,
    (SELECT coalesce(max(n), 0) FROM (SELECT sum(tasks) AS n FROM ticks GROUP BY now) s)::int AS most_now,
    (SELECT coalesce(max(n), 0) FROM (SELECT sum(tasks) AS n FROM ticks GROUP BY later) s)::int AS most_then
FROM ticks

-- name: spread
-- Gives a phase to the next chosen tasks, by id, that have none yet.
WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks
    WHERE kind = 'interval' AND NOT spread AND id > %(after)s::bigint
      AND (%(owner_type)s::text IS NULL OR owner_type = %(owner_type)s)
      AND (%(function)s::text IS NULL OR function = %(function)s)
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE
)
UPDATE {schema}.tasks t SET spread = true FROM chosen c WHERE t.id = c.id
RETURNING t.id

-- name: former_templates
-- Returns the registrations that each default task of a type of owner has had, the newest last.
SELECT name, (coalesce(task -> 'former', '[]') || jsonb_build_array(task -> 'registered'))::text AS registered
FROM {schema}.templates WHERE owner_type = %(owner_type)s

-- name: write_templates
-- Replaces the default tasks of a type of owner.
WITH gone AS (
    DELETE FROM {schema}.templates WHERE owner_type = %(owner_type)s AND name <> ALL (%(names)s::text[]))
INSERT INTO {schema}.templates AS t (owner_type, name, task)
SELECT %(owner_type)s, w.name, w.task::jsonb FROM unnest(%(names)s::text[], %(tasks)s::text[]) AS w (name, task)
ORDER BY w.name
ON CONFLICT (owner_type, name) DO UPDATE SET task = excluded.task WHERE t.task <> excluded.task

-- name: declared_tasks
-- Locks and returns the tasks that `ticker sync` compares: tasks without an owner that were declared, or that have one of
-- these names.
SELECT {task} FROM {schema}.tasks
WHERE owner_type = '' AND (declared_in <> '' OR name = ANY (%(names)s::text[]))
ORDER BY id
FOR NO KEY UPDATE

-- name: select_tasks
-- Selects and locks tasks by id, by name and owner, or by owner, in the order of their ids.
SELECT {task} FROM {schema}.tasks
WHERE CASE WHEN %(id)s::bigint IS NOT NULL THEN id = %(id)s::bigint
      ELSE owner_type = %(owner_type)s AND owner_id = %(owner_id)s
           AND (%(name)s::text IS NULL OR name = %(name)s::text) END
  AND {seen}
ORDER BY id
FOR NO KEY UPDATE

-- name: lock_tasks
SELECT id FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: delete_tasks
-- Deletes tasks. The trigger tasks_note_deletion ends their planned runs and waiting occurrences, as in any other
-- deletion.
WITH gone AS (DELETE FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[])
    AND {as_author} RETURNING *)
SELECT {task} FROM gone ORDER BY id

-- name: pause_tasks
-- Pauses tasks: nothing is pushed and nothing starts until they are resumed, or `until` passes. The pause replaces that of a
-- trigger (see the next statement), so that a new owner's tasks need their first time now.
UPDATE {schema}.tasks t SET paused_by = coalesce(%(by)s, {author}),
    paused_reason = %(reason)s, paused_until = %(until)s::timestamptz, next_run = coalesce(r.first, t.next_run)
FROM unnest(%(ids)s::bigint[], %(firsts)s::timestamptz[]) AS r (id, first)
WHERE t.id = r.id
RETURNING {task t}

-- name: resume_tasks
-- Ends the own pauses of these locked tasks. A trigger has paused the cron and calendar tasks of a new owner: they need their
-- first time.
UPDATE {schema}.tasks t SET
    paused_by = NULL, paused_reason = '', paused_until = NULL,
    next_run = coalesce(r.first, {resumed})
FROM (SELECT {now} AS now) i, unnest(%(ids)s::bigint[], %(firsts)s::timestamptz[]) AS r (id, first)
WHERE t.id = r.id AND paused_by IS NOT NULL
    AND {as_author}
RETURNING t.id

-- name: set_next_runs
-- Sets when these tasks are due. The caller has computed their times. Push errors concerned the earlier times.
UPDATE {schema}.tasks t SET next_run = b.next_run, push_errors = 0, push_error = '', push_after = NULL
FROM unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[]) AS b (id, next_run)
WHERE t.id = b.id

-- name: plan_runs
-- Plans one manual run of each of these locked tasks, due in `delay_ms`, or joins the one that has not started. With `within_ms`, it is not due before
-- that time after the last one was (after now, if that lies ahead because the clock was set back). Reads the last 100 runs only: a
-- task that ran more often in that time loses nothing by one more run. An elastic interval then returns to its lower bound. A call
-- without it brings the run forward. If the caller is a run of an interval task itself, `asking`, which began at `asking_since`,
-- the new run keeps the spacing from it: otherwise the two would follow each other without end.
WITH shortened AS (
    UPDATE {schema}.tasks t SET pace_ms = {pace t}, next_run = {paced t}
    FROM (SELECT 'succeeded' AS outcome, 'manual' AS kind, {now} AS ended_at) e
    WHERE t.id = ANY (%(ids)s::bigint[]) AND t.pace_ms IS NOT NULL AND %(within_ms)s::bigint IS NOT NULL
), asked AS MATERIALIZED (
    SELECT t.id, t.name, t.function, t.owner_type, t.owner_id, t.queue, i.now, greatest(i.now + %(delay_ms)s::bigint * interval '1 millisecond', w.spaced, (
            SELECT max(least(r.due_at, i.now)) + %(within_ms)s::bigint * interval '1 millisecond' FROM (
                SELECT r.kind, r.due_at FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind IN ('scheduled', 'manual') ORDER BY r.id DESC LIMIT 100) r
            WHERE r.kind = 'manual')) AS due_at,
        CASE WHEN w.spaced > i.now THEN 'too_early' WHEN t.running_until > i.now THEN 'still_running' ELSE '' END AS reason,
        (SELECT max(r.id) FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'manual' AND r.state IN ('planned', 'pushed')
            AND r.stop_requested_by IS NULL) AS joined
    FROM {schema}.tasks t, (SELECT {now} AS now) i, LATERAL (SELECT CASE WHEN t.id = %(asking)s::bigint AND t.kind = 'interval'
        THEN %(asking_since)s::timestamptz + {spacing t} END AS spaced) w
    WHERE t.id = ANY (%(ids)s::bigint[])
), brought_forward AS (
    UPDATE {schema}.runs r SET due_at = a.due_at FROM asked a
    WHERE r.id = a.joined AND r.state = 'planned' AND r.due_at > a.due_at
), planned AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, queue, kind, state, reason, due_at, created_at, traceparent)
    SELECT id, name, function, owner_type, owner_id, queue, 'manual', 'planned', reason, due_at, now, %(traceparent)s::text
    FROM asked WHERE joined IS NULL ORDER BY id
    RETURNING id, reason
)
SELECT id, false AS has_joined, reason FROM planned UNION ALL SELECT joined, true, '' FROM asked WHERE joined IS NOT NULL ORDER BY id

-- name: request_stop
-- Asks to stop a run that has not ended. The first request stays. Returns the run as it was, or no row if there is no such run.
WITH requested AS (
    UPDATE {schema}.runs SET stop_requested_at = coalesce(stop_requested_at, {now}), stop_requested_by = coalesce(stop_requested_by, %(by)s, {author})
    WHERE id = %(id)s AND state <> 'ended' AND {seen}
)
SELECT state, outcome FROM {schema}.runs WHERE id = %(id)s AND {seen}
