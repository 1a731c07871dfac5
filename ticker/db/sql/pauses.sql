-- Pauses of many tasks: one row of `pauses` for all tasks, or for those of a group, a function, a queue, a type of owner, or a
-- limit. A pause is in force after its commit. A due task waits for it in the table (`pause_id`), and so does what meets it at its
-- start. When the pause is over, ticks let the tasks go, oldest first, within a budget. No `next_run` is written.

-- name: pause_many
-- Pauses the tasks of a scope. A pause of the same scope that is in force gets the new reason and end. A trigger records the event,
-- and that of the end.
INSERT INTO {schema}.pauses AS p (scope, value, by, reason, paused_at, until)
VALUES (%(scope)s, %(value)s, coalesce(%(by)s, {author}), %(reason)s, {now}, %(until)s::timestamptz)
ON CONFLICT (scope, value, of_queue) WHERE resumed_at IS NULL DO UPDATE SET by = excluded.by, reason = excluded.reason,
    until = excluded.until, paused_at = CASE WHEN {in_force p} AND p.by = excluded.by THEN p.paused_at ELSE excluded.paused_at END
RETURNING {pause p}

-- name: resume_many
-- Ends the pause of a scope. Ticks let the tasks that wait for it go.
UPDATE {schema}.pauses p SET resumed_at = {now}, resumed_by = coalesce(%(by)s, {author})
WHERE scope = %(scope)s AND value = %(value)s AND {in_force p}
RETURNING {pause p}

-- name: list_pauses
-- Lists the pauses that are in force, and those that are over and for which tasks still wait, oldest first.
SELECT {pause p} FROM {schema}.pauses p
WHERE done_at IS NULL AND scope <> 'unknown' AND ({in_force p} OR {waits_for p}) ORDER BY id

-- name: covered
-- Counts the tasks that a pause of many tasks would be for, up to `most`.
SELECT count(*)::int AS tasks FROM (
    SELECT FROM {schema}.tasks t, (SELECT concat_ws(' ', s, nullif(v, '')) AS mark, s AS scope, v AS value
        FROM (SELECT %(scope)s::text AS s, %(value)s::text AS v) g) p WHERE {covers t} LIMIT %(most)s) c

-- name: has_paused_tasks
SELECT EXISTS (SELECT FROM {schema}.tasks t WHERE {covers t}) AS has_tasks FROM {schema}.pauses p WHERE id = %(id)s

-- name: pauses_at
-- Lists the pauses that were in force at a time in the past for a task as it is today, and the wait for a worker that knows its
-- function, oldest first.
SELECT {pause p} FROM {schema}.tasks t, {schema}.pauses p
WHERE t.id = %(task_id)s AND {keeps t} AND p.paused_at <= %(at)s
    AND coalesce(p.resumed_at > %(at)s, true) AND coalesce(p.until > %(at)s, true) ORDER BY p.id

-- rule: author
left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200)

-- rule: pause
-- The columns of a pause that people read. Counting stops at 10,000.
t.id, t.scope, t.value, t.by, t.reason, t.paused_at, t.until, t.resumed_at, t.resumed_by, t.budget, {pause_words t} AS words,
    {in_force t} AS in_force, (SELECT count(*) FROM (SELECT FROM {schema}.tasks w WHERE w.pause_id = t.id LIMIT 10000) n)::integer AS waiting

-- rule: waits_for
-- A task waits for the pause. (The planner expects an EXISTS to find a row at once, and would read the table.)
(SELECT w.id FROM {schema}.tasks w WHERE w.pause_id = t.id ORDER BY w.next_run LIMIT 1) IS NOT NULL

-- rule: pause_words
{schema}.words_of_pause(t.scope, t.value)

-- rule: note_of_pause
-- Describes the pause that is for the task, or else the one that is over and for which it waits. Here, a pause is over when a tick
-- has ended it: statements that read tasks do not know the time.
(SELECT concat_ws(': ', {pause_words p} || ' by ' || p.by || coalesce(', over since ' || to_char(p.resumed_at AT TIME ZONE 'UTC', {second}),
        ' until ' || to_char(p.until AT TIME ZONE 'UTC', {second}), ''), nullif(p.reason, ''))
    FROM {schema}.pauses p WHERE p.id = coalesce({unended_pause t}, t.pause_id) AND (p.scope <> 'unknown' OR p.resumed_at IS NOT NULL))

-- rule: second
'YYYY-MM-DD HH24:MI:SSZ'

-- rule: unended_pause
(SELECT min(p.id) FROM {schema}.pauses p WHERE p.resumed_at IS NULL AND {covers t})

-- rule: is_resuming
-- The task waits for a pause that is over, and no other is for it.
(t.pause_id IS NOT NULL AND {unended_pause t} IS NULL AND NOT {waits_for_worker t})

-- rule: covering
-- The first pause that is in force for the task, or NULL.
(SELECT min(p.id) FROM {schema}.pauses p WHERE {in_force p} AND {keeps t})

-- rule: backlog
-- The first pause that is over and not done, and before whose end the task was due, or NULL. A task that was let go since is not part
-- of it.
(SELECT min(p.id) FROM {schema}.pauses p WHERE {over p} AND t.next_run < p.resumed_at
        AND coalesce(t.resumed_at < p.resumed_at, true) AND {keeps t})

-- rule: over
t.resumed_at IS NOT NULL AND t.done_at IS NULL

-- rule: waited_for
-- The pauses for which tasks wait. Each is looked up after the previous one.
waited_for AS (
    (SELECT pause_id AS id FROM {schema}.tasks WHERE pause_id IS NOT NULL ORDER BY pause_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.pause_id FROM {schema}.tasks o WHERE o.pause_id > w.id ORDER BY o.pause_id LIMIT 1)
    FROM waited_for w WHERE w.id IS NOT NULL
)

-- rule: waits_in_vain
-- A task waits for a pause that is done, or whose row is gone: another ticker has not seen the task.
EXISTS (SELECT FROM waited_for w WHERE w.id IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.id = w.id AND p.done_at IS NULL))

-- name: open_pauses
-- Ends the pauses whose time has passed, and the waits for a worker for which nothing waits. Counts those in force, and those that are
-- over and not done. A row that people are changing is left to the next tick. After the clock was set back, an end does not lie ahead,
-- nor the begin of a wait for a worker, except by less than a minute: the `now` of a tick that stood still is as old.
WITH RECURSIVE {waited_for}, ended AS (
    UPDATE {schema}.pauses p SET resumed_by = 'ticker', done_at = CASE p.scope WHEN 'unknown' THEN %(now)s::timestamptz END,
        resumed_at = least(greatest(coalesce(p.until, %(now)s), p.paused_at), %(now)s) FROM (
        SELECT id FROM {schema}.pauses p WHERE resumed_at IS NULL AND (until <= %(now)s OR {has_no_work p}) FOR NO KEY UPDATE SKIP LOCKED) o
    WHERE o.id = p.id
    RETURNING p.id
), moved AS (
    UPDATE {schema}.pauses p SET paused_at = least(p.paused_at, %(now)s),
        resumed_at = CASE WHEN p.resumed_at IS NOT NULL THEN %(now)s::timestamptz END FROM (
        SELECT id FROM {schema}.pauses WHERE done_at IS NULL AND (resumed_at > %(now)s + interval '1 minute'
            OR scope = 'unknown' AND paused_at > %(now)s + interval '1 minute') FOR NO KEY UPDATE SKIP LOCKED) o
    WHERE o.id = p.id
)
SELECT (SELECT count(*) FROM {schema}.pauses p WHERE {in_force p}) AS in_force,
    (SELECT count(*) FROM {schema}.pauses p WHERE {over p}) + (SELECT count(*) FROM ended) + {waits_in_vain}::int AS over

-- rule: has_no_work
-- It is a wait for a worker for which no task that is due waits, nor a planned run, and for ten minutes none was tried.
(t.scope = 'unknown' AND greatest(t.paused_at, t.granted_at) <= %(now)s::timestamptz - {longest_unknown}
    AND (SELECT w.id FROM {schema}.tasks w WHERE w.pause_id = t.id AND {only_unknown w} AND NOT {covered w} ORDER BY w.next_run LIMIT 1) IS NULL
    AND NOT EXISTS (SELECT FROM {schema}.runs r JOIN {schema}.tasks w ON w.id = r.task_id
        WHERE r.function = t.value AND w.queue = t.of_queue AND (r.state = 'pushed' OR {planned r} AND r.reason = 'unknown_here')))

-- name: wait_for_gate
-- Examines the next tasks that are due, after one that was examined before. Those for which a pause is in force wait for it from now
-- on, and so do those that were due before the end of a pause. They leave the indexes of what is due, so that they delay nothing
-- else. Returns the last task, if more may follow. (A back-off after errors does not matter here: the task is due.)
WITH examined AS MATERIALIZED (
    SELECT * FROM (
        (SELECT id, next_run FROM {schema}.tasks t WHERE {unlimited t} AND {examinable t} ORDER BY next_run, id LIMIT %(limit)s)
        UNION ALL
        (SELECT id, next_run FROM {schema}.tasks t WHERE {limited t} AND {examinable t} ORDER BY next_run, id LIMIT %(limit)s)) d
    ORDER BY next_run, id LIMIT %(limit)s
), held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks t WHERE id = ANY (ARRAY(SELECT id FROM examined)) AND {runnable t}
        AND ({covered t} OR {gated t} OR (SELECT EXISTS (SELECT FROM {schema}.pauses p WHERE {over p})) AND {backlog t} IS NOT NULL)
    FOR NO KEY UPDATE SKIP LOCKED
), at_gate AS (
    UPDATE {schema}.tasks t SET pause_id = coalesce({covering t}, {backlog t}) FROM held h WHERE t.id = h.id
)
SELECT next_run, id FROM examined
WHERE (SELECT count(*) FROM examined) = %(limit)s ORDER BY next_run DESC, id DESC LIMIT 1

-- rule: examinable
t.next_run <= %(now)s::timestamptz + %(look_ahead)s::bigint * interval '1 millisecond'
  AND (t.next_run, t.id) > (%(after_run)s::timestamptz, %(after_id)s::bigint)

-- name: probe
-- Lets one due task of each function and queue go for which tasks wait for a worker, once in a period: its start shows that there is
-- one. It is one of the 100 oldest, at random: a limit may keep the oldest one from its push.
WITH chosen AS MATERIALIZED (
    SELECT p.id, o.task_id FROM {schema}.pauses p, LATERAL (
        SELECT t.id AS task_id FROM {schema}.tasks t WHERE t.id = (SELECT d.id FROM (
            SELECT t.id FROM {schema}.tasks t
            WHERE t.pause_id = p.id AND {only_unknown t} AND NOT {covered t} AND NOT {unknown_for_long t}
            ORDER BY t.next_run LIMIT 100) d ORDER BY random() LIMIT 1)
        FOR NO KEY UPDATE SKIP LOCKED) o
    WHERE p.scope = 'unknown' AND p.resumed_at IS NULL AND NOT {just_granted p} FOR NO KEY UPDATE OF p SKIP LOCKED
), granted AS (
    UPDATE {schema}.pauses p SET granted_at = %(now)s FROM chosen c WHERE p.id = c.id
)
UPDATE {schema}.tasks t SET pause_id = NULL FROM chosen c WHERE t.id = c.task_id

-- rule: only_unknown
-- The task is due, active and not paused itself, and its last push did not just fail.
t.next_run <= %(now)s AND NOT {inactive t} AND t.paused_by IS NULL AND (t.push_after IS NULL OR t.push_after <= %(now)s)

-- constant: longest_unknown
-- After so long without a start, what waits for a worker that knows its function is dropped.
interval '10 minutes'

-- rule: unknown_for_long
-- The task t, with its pause p, has waited for so long, and for nothing else meanwhile: not for a pause of people.
(t.next_run <= %(now)s::timestamptz - {longest_unknown} AND p.paused_at <= %(now)s::timestamptz - {longest_unknown}
    AND coalesce(t.resumed_at NOT BETWEEN %(now)s::timestamptz - {longest_unknown} AND %(now)s, true)
    AND NOT {marks t} && ARRAY(SELECT p.mark FROM {schema}.pauses p WHERE {lately p})
    AND NOT (t.limits IS NOT NULL AND EXISTS (SELECT FROM {schema}.pauses p WHERE p.scope = 'limit' AND {lately p} AND {covers t})))

-- rule: lately
-- The pause is in force, or was within that time.
(coalesce(t.resumed_at > %(now)s::timestamptz - {longest_unknown}, true))

-- name: claim_unknown
-- Claims tasks whose occurrences have waited for a worker that knows their function for too long. (Each gate is read in the order
-- of its index: a join of all would read and sort what waits.)
SELECT {claimed t}
FROM {schema}.tasks t {announced t}
WHERE t.pause_id IS NOT NULL AND t.next_run <= %(now)s::timestamptz - {longest_unknown} AND t.id = ANY (ARRAY(
    SELECT o.id FROM {schema}.pauses p, LATERAL (
        SELECT t.id FROM {schema}.tasks t
        WHERE t.pause_id = p.id AND {unknown_for_long t} AND {only_unknown t}
        ORDER BY t.next_run LIMIT %(limit)s) o
    WHERE p.scope = 'unknown' AND p.resumed_at IS NULL LIMIT %(limit)s))
FOR NO KEY UPDATE OF t SKIP LOCKED

-- rule: least_budget
1000

-- rule: share_sampled
least(1, 20000 / greatest(c.reltuples, 1)) FROM pg_class c WHERE c.oid = '{schema}.tasks'::regclass

-- rule: budget_per_ms
-- 1.2 times the number of runs that the schedules of these tasks require per millisecond.
1.2 * sum(1.0 / greatest(1, CASE t.kind WHEN 'interval' THEN {interval_ms t} ELSE 2 * t.box_ms END))

-- rule: requires_runs
(t.next_run IS NOT NULL AND t.kind <> 'once' AND NOT {inactive t} AND t.paused_by IS NULL)

-- name: budget_of_all
-- Returns the budget after a pause of all tasks.
SELECT greatest(ceil(%(tick_ms)s * (SELECT {budget_per_ms t} / (SELECT {share_sampled})
    FROM {schema}.tasks t TABLESAMPLE SYSTEM (100 * (SELECT {share_sampled})) WHERE {requires_runs t})), {least_budget})::bigint AS budget

-- name: grant_budget
-- Returns how many of the tasks that wait for pauses that are over this tick may let go. Within `period_ms`, one tick gets the
-- budget, even if one of the pauses has just ended. (A statement that waited for a row sees what its own row says now, but not the
-- other rows, so each row has its own condition, too.) The budget is 1.2 times the number of runs that the schedules of all tasks of these pauses require per tick (by a sample of some
-- 20,000 tasks), and at least 1,000. Their tasks that are due without waiting count, unless their queue is full. If the row of the
-- pause was deleted, the budget is the smallest one. The gap between two times of a cron or calendar task is at least twice its
-- usual box.
WITH RECURSIVE {waited_for}, free AS MATERIALIZED (
    SELECT p.id FROM {schema}.pauses p
    WHERE {over p} AND NOT {just_granted p} AND NOT EXISTS (SELECT FROM {schema}.pauses o WHERE {over o} AND {just_granted o})
    FOR NO KEY UPDATE SKIP LOCKED
), required AS MATERIALIZED (
    SELECT least(greatest(ceil(%(tick_ms)s * (SELECT {budget_per_ms t} / (SELECT {share_sampled})
        FROM {schema}.tasks t TABLESAMPLE SYSTEM (100 * (SELECT {share_sampled})) WHERE {requires_runs t} AND {of_an_ended_pause t})),
        {least_budget}), 10000000)::integer AS budget
    WHERE EXISTS (SELECT FROM free)
), granted AS (
    UPDATE {schema}.pauses p SET granted_at = %(now)s, budget = r.budget FROM free f, required r WHERE p.id = f.id
)
SELECT greatest(budget / 10, 1, budget
    - (SELECT count(*) FROM {schema}.tasks t WHERE {unlimited t} AND {due t} AND queue <> ALL (%(full)s::text[]) AND {of_an_ended_pause t})
    - (SELECT count(*) FROM {schema}.tasks t WHERE {limited t} AND {due t} AND queue <> ALL (%(full)s::text[]) AND {of_an_ended_pause t}
        AND next_run > %(now)s - %(tick_ms)s * interval '1 millisecond'))::integer AS budget
FROM required
UNION ALL
SELECT {least_budget} WHERE {waits_in_vain} AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE {over p})

-- rule: just_granted
coalesce(t.granted_at BETWEEN %(now)s::timestamptz - 0.9 * %(period_ms)s * interval '1 millisecond' AND %(now)s, false)

-- rule: of_an_ended_pause
EXISTS (SELECT FROM {schema}.pauses p WHERE {over p} AND {keeps t})

-- name: let_go
-- Lets tasks go that have waited for longest for pauses that are over. A task for which another pause is in force waits for that
-- one, and a task that is not active needs no budget. Returns how many tasks were found, and how many of them go.
WITH RECURSIVE {waited_for}, chosen AS MATERIALIZED (
    SELECT o.id FROM waited_for w, LATERAL (
        SELECT t.id, t.next_run FROM {schema}.tasks t WHERE t.pause_id = w.id ORDER BY t.next_run LIMIT %(limit)s) o
    WHERE NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.id = w.id AND {in_force p})
    ORDER BY o.next_run LIMIT %(limit)s
), held AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE id = ANY (ARRAY(SELECT id FROM chosen)) FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE {schema}.tasks t SET pause_id = {covering t}, resumed_at = %(now)s FROM held h WHERE t.id = h.id
    RETURNING t.pause_id IS NULL AND NOT {inactive t} AND t.paused_by IS NULL AS goes
)
SELECT (SELECT count(*) FROM chosen) AS found, count(*) FILTER (WHERE goes) AS gone FROM moved

-- name: close_pauses
-- Pauses that are over, and for which no task waits any more, are done.
UPDATE {schema}.pauses p SET done_at = %(now)s FROM (
    SELECT id FROM {schema}.pauses p WHERE {over p} AND NOT {waits_for p} FOR NO KEY UPDATE SKIP LOCKED) o
WHERE o.id = p.id
