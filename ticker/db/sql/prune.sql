--
-- A record is deleted by its age, counted from its end, but never in the first 2 hours. The start looks up ends that
-- were recorded (`runs_one_record`), because a job, or a copy of it, may still be in Redis or in a stopped worker.
-- A run stays until a tick has followed it up, and while it has pieces or retries at work. Its pieces and retries stay
-- as long as it does.

-- constant: problem_drops
-- The reasons of drops that are problems.
('unknown_function', 'expired', 'missed', 'no_time')

-- name: prune_runs
-- Walks one page of the runs by their ids, and deletes those that are not kept, or with `dry` only counts them. A task
-- that keeps all, and a deleted task, lose records older than their outcome's limit. A task that keeps problems loses
-- the others at once; one that keeps none loses all of them. Pieces and retries are deleted with the `head` of their
-- family, the scheduled or manual run that led to them, by its outcome and age. They may also follow later, when the
-- walk finds their head gone (`dry` has to judge it again).
-- The last 20 heads stay while the task exists (for problems: the last 20 problems). A task's heads are looked up once
-- per page, among its newest 300,000. If these contain fewer than 20, nothing is deleted by age.
-- Nothing is deleted before its minute was counted twice.
-- OFFSET 0 keeps each query to its own row and index: as a join it might read a whole table for each page.
WITH instant AS MATERIALIZED (
    SELECT n.now, least(n.now - interval '2 hours', (SELECT counted_twice_until FROM {schema}.installation)) AS over
    FROM (SELECT {now} AS now) n
), walked AS MATERIALIZED (
    SELECT r.id, r.kind, r.parent_id, r.outcome, r.ended_at, r.created_at BETWEEN i.now - interval '2 hours' AND i.now + interval '1 hour'
            AS is_young, r.state = 'ended' AND NOT r.follow_up AND r.ended_at < i.over AS is_over
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
            SELECT r.id, r.task_id, r.state = 'ended' AND NOT r.follow_up AND r.ended_at < i.over AS is_over,
                r.kind IN ('piece', 'retry') AND r.parent_id IS NOT NULL AS is_orphan, f.is_failure OR (r.outcome = 'dropped'
                    AND r.reason IN {problem_drops}) AS is_problem,
                r.ended_at < i.now - CASE WHEN f.is_failure THEN %(failures_ms)s::bigint ELSE %(successes_ms)s::bigint END
                    * interval '1 millisecond' AS is_old
            FROM {schema}.runs r, LATERAL (
                SELECT coalesce(r.outcome IN {bad_outcomes}, false) AS is_failure) f
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
        WHERE (t.keep <> 'problems' OR n.outcome IN {bad_outcomes} OR (n.outcome = 'dropped'
                AND n.reason IN {problem_drops}))
        ORDER BY n.id DESC OFFSET 19 LIMIT 1) l
), doomed AS MATERIALIZED (
    SELECT p.id, h.is_free AND h.keep <> 'all' AS is_unwanted
    FROM page p JOIN heads h ON h.id = p.head LEFT JOIN lasts l ON l.task_id = h.task_id
    WHERE p.is_over AND (h.is_free OR h.id < l.id)
), locked AS MATERIALIZED (
    SELECT id FROM {schema}.runs
    WHERE NOT %(dry)s AND id = ANY (ARRAY(SELECT id FROM doomed)) FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}.runs WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
), counted AS (
    SELECT id, is_unwanted FROM doomed WHERE %(dry)s OR id IN (SELECT id FROM gone)
)
SELECT max(p.id) AS last, count(*)::int AS seen, coalesce(bool_and(p.is_young), true) AS young,
    count(c.id) FILTER (WHERE p.outcome IN {good_outcomes})::int AS successes,
    count(c.id) FILTER (WHERE p.outcome IN {bad_outcomes})::int AS failures,
    count(c.id) FILTER (WHERE p.outcome = 'dropped')::int AS drops, 0 AS events,
    greatest(max(extract(epoch FROM i.now - p.ended_at) * 1000 - CASE WHEN c.is_unwanted THEN 7200000
        WHEN p.outcome IN {bad_outcomes} THEN %(failures_ms)s::bigint ELSE %(successes_ms)s::bigint END)
        FILTER (WHERE c.id IS NOT NULL), 0)::bigint AS overdue_ms
FROM instant i, page p LEFT JOIN counted c ON c.id = p.id

-- rule: unused
-- No task has the key t, no run or start takes a slot of it, and it is not closed.
coalesce(t.closed_until <= {now}, true)
    AND NOT EXISTS (SELECT FROM {schema}.tasks o, unnest(o.limits) AS u (key) WHERE u.key = t.key)
    AND NOT EXISTS (SELECT FROM {schema}.slots s WHERE s.key = t.key AND s.until > {now})

-- name: lock_unused_keys
-- Locks keys that no task uses. A task that is about to use one waits.
SELECT key FROM {schema}.limited_keys k WHERE {unused k} LIMIT %(limit)s FOR UPDATE SKIP LOCKED

-- name: prune_keys
-- Deletes those of the locked keys that are still unused: this statement sees the tasks that were committed before the lock.
WITH gone AS (
    DELETE FROM {schema}.limited_keys k WHERE key = ANY (%(keys)s::text[]) AND {unused k} RETURNING key
)
DELETE FROM {schema}.slots WHERE key IN (SELECT key FROM gone)

-- name: prune_pauses
-- Deletes pauses of many tasks that were done so long ago. People make them: they are few. Workers make others.
DELETE FROM {schema}.pauses WHERE done_at < {now} - CASE scope WHEN 'unknown' THEN interval '1 hour' ELSE %(keep_ms)s::bigint * interval '1 millisecond' END

-- name: next_run
-- Returns the first run of a walk. If its page takes too long, the walk continues after it.
SELECT min(id) AS id FROM {schema}.runs WHERE id > %(after)s::bigint

-- name: next_event
SELECT min(id) AS id FROM {schema}.events WHERE id > %(after)s::bigint

-- name: prune_events
-- Walks the events in the same way. Events are kept as long as failures, and at least while a notice may still be sent.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
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
    0 AS successes, 0 AS failures, 0 AS drops, count(c.id)::int AS events, 0 AS overdue_ms
FROM page p LEFT JOIN counted c ON c.id = p.id
