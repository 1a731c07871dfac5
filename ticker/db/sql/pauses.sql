-- Pauses of many tasks: one row of `pauses` for all tasks, or for those of a group, a function, a queue, a type of owner, or a
-- limit. A pause is in force after its commit. A due task waits for it in the table (`pause_id`), and so does what meets it at its
-- start. When the pause is over, ticks let the tasks go, oldest first, within a budget. No `next_run` is written.

-- name: pause_many
-- Pauses the tasks of a scope. A pause of the same scope that is in force gets the new reason and end. A trigger records the event,
-- and that of the end.
INSERT INTO {schema}.pauses AS p (scope, value, by, reason, paused_at, until)
VALUES (%(scope)s, %(value)s, coalesce(%(by)s, {author}), %(reason)s, {now}, %(until)s::timestamptz)
ON CONFLICT (scope, value) WHERE resumed_at IS NULL DO UPDATE SET by = excluded.by, reason = excluded.reason,
    until = excluded.until, paused_at = CASE WHEN {in_force p} THEN p.paused_at ELSE excluded.paused_at END
RETURNING {pause p}

-- name: resume_many
-- Ends the pause of a scope. Ticks let the tasks that wait for it go.
UPDATE {schema}.pauses p SET resumed_at = {now}, resumed_by = coalesce(%(by)s, {author})
WHERE scope = %(scope)s AND value = %(value)s AND {in_force p}
RETURNING {pause p}

-- name: list_pauses
-- Lists the pauses that are in force, and those that are over and for which tasks still wait, oldest first.
SELECT {pause p} FROM {schema}.pauses p
WHERE done_at IS NULL AND ({in_force p} OR EXISTS (SELECT FROM {schema}.tasks t WHERE t.pause_id = p.id)) ORDER BY id

-- name: has_paused_tasks
SELECT EXISTS (SELECT FROM {schema}.tasks t WHERE {covers t}) AS has_tasks FROM {schema}.pauses p WHERE id = %(id)s

-- name: pauses_at
-- Lists the pauses that were in force for a task at a time in the past, oldest first.
SELECT {pause p} FROM {schema}.tasks t, {schema}.pauses p
WHERE t.id = %(task_id)s AND {covers t} AND p.paused_at <= %(at)s
    AND coalesce(p.resumed_at > %(at)s, true) AND coalesce(p.until > %(at)s, true) ORDER BY p.id

-- rule: author
left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200)

-- rule: pause
-- The columns of a pause that people read. Counting stops at 100,000.
t.id, t.scope, t.value, t.by, t.reason, t.paused_at, t.until, t.resumed_at, t.resumed_by, t.budget, {pause_words t} AS words,
    {in_force t} AS in_force, (SELECT count(*) FROM (SELECT FROM {schema}.tasks w WHERE w.pause_id = t.id LIMIT 100000) n)::integer AS waiting

-- rule: pause_words
{schema}.words_of_pause(t.scope, t.value)

-- rule: note_of_pause
-- Describes the pause for which the task waits, or that is for it. Here, a pause is over when a tick has ended it: statements that
-- read tasks do not know the time.
(SELECT concat_ws(': ', {pause_words p} || ' by ' || p.by || coalesce(', over since ' || to_char(p.resumed_at AT TIME ZONE 'UTC', {second}),
        ' until ' || to_char(p.until AT TIME ZONE 'UTC', {second}), ''), nullif(p.reason, ''))
    FROM {schema}.pauses p WHERE p.id = coalesce(t.pause_id,
        (SELECT min(p.id) FROM {schema}.pauses p WHERE p.resumed_at IS NULL AND {covers t})))

-- rule: second
'YYYY-MM-DD HH24:MI:SSZ'

-- rule: is_resuming
-- The task waits for a pause that is over.
coalesce((SELECT p.resumed_at IS NOT NULL FROM {schema}.pauses p WHERE p.id = t.pause_id), false)

-- rule: covering
-- The first pause that is in force for the task, or NULL.
(SELECT min(p.id) FROM {schema}.pauses p WHERE {in_force p} AND {covers t})

-- name: withhold
-- Makes due tasks wait for a pause that is in force for them. They leave the indexes of what is due, so that they delay nothing
-- else. (The index of the tasks without limits and that of the others are read one after the other.)
WITH due AS MATERIALIZED (
    (SELECT id FROM {schema}.tasks t WHERE {unlimited t} AND {due t} AND {covered t} ORDER BY next_run LIMIT %(limit)s)
    UNION ALL
    (SELECT id FROM {schema}.tasks t WHERE {limited t} AND {due t} AND {covered t} ORDER BY next_run LIMIT %(limit)s)
), held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE id = ANY (ARRAY(SELECT id FROM due LIMIT %(limit)s)) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks t SET pause_id = {covering t} FROM held h WHERE t.id = h.id
RETURNING t.id

-- name: end_pauses_of_many
-- Ends the pauses whose time has passed. Those that are over and for which no task waits any more are done. A row that people
-- are changing is left to the next tick.
WITH free AS MATERIALIZED (
    SELECT id FROM {schema}.pauses WHERE done_at IS NULL AND (resumed_at IS NOT NULL OR until <= %(now)s) FOR NO KEY UPDATE SKIP LOCKED
), over AS (
    UPDATE {schema}.pauses p SET resumed_at = greatest(until, paused_at), resumed_by = 'ticker'
    FROM free f WHERE f.id = p.id AND resumed_at IS NULL
)
UPDATE {schema}.pauses p SET done_at = %(now)s FROM free f
WHERE f.id = p.id AND resumed_at IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.tasks WHERE pause_id = p.id)

-- rule: least_budget
1000

-- rule: budget
-- How many tasks of the pause p one tick may let go: 1.2 times the number of runs that the intervals of its tasks require per tick,
-- by a sample of some 20,000 tasks.
greatest({least_budget}, (SELECT ceil(1.2 * %(tick_ms)s * sum(1.0 / coalesce(t.stretched_ms, t.pace_ms, t.every_ms))
        / (SELECT {share_sampled}))
    FROM {schema}.tasks t TABLESAMPLE SYSTEM (100 * (SELECT {share_sampled}))
    WHERE t.kind = 'interval' AND t.next_run IS NOT NULL AND NOT {inactive t} AND t.paused_by IS NULL AND {covers t}))::integer

-- rule: share_sampled
least(1, 20000 / greatest(c.reltuples, 1)) FROM pg_class c WHERE c.oid = '{schema}.tasks'::regclass

-- rule: waited_for
-- The pauses for which tasks wait. Each is looked up after the previous one.
waited_for AS (
    (SELECT pause_id AS id FROM {schema}.tasks WHERE pause_id IS NOT NULL ORDER BY pause_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.pause_id FROM {schema}.tasks o WHERE o.pause_id > w.id ORDER BY o.pause_id LIMIT 1)
    FROM waited_for w WHERE w.id IS NOT NULL
)

-- name: grant_budgets
-- Lists the pauses that are over and for which tasks still wait, each with the number of tasks that this tick may let go. Within
-- `period_ms`, one tick gets the budget of a pause. Tasks of the pause that are due without waiting count. If the row of the
-- pause was deleted, the budget is the smallest one.
WITH RECURSIVE {waited_for}, over AS MATERIALIZED (
    SELECT p.id FROM {schema}.pauses p WHERE p.id IN (SELECT id FROM waited_for) AND NOT ({in_force p})
        AND coalesce(p.granted_at NOT BETWEEN %(now)s - 0.9 * %(period_ms)s * interval '1 millisecond' AND %(now)s, true)
    FOR NO KEY UPDATE SKIP LOCKED
), granted AS (
    UPDATE {schema}.pauses p SET granted_at = %(now)s, budget = coalesce(p.budget, {budget})
    FROM over WHERE p.id = over.id
    RETURNING p.id, p.budget, p.scope, p.value
)
SELECT p.id, greatest(p.budget - (SELECT count(*) FROM {schema}.tasks t WHERE {unlimited t} AND {due t} AND {covers t}),
    p.budget / 50, 1)::integer AS budget
FROM granted p
UNION ALL
SELECT w.id, {least_budget} FROM waited_for w WHERE w.id IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.id = w.id)

-- name: let_go
-- Lets the tasks go that have waited for longest for a pause that is over, unless another pause is in force for them.
WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE pause_id = %(pause_id)s ORDER BY next_run LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks t SET pause_id = {covering t}, resumed_at = %(now)s FROM chosen c WHERE t.id = c.id
RETURNING t.id
