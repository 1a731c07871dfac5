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
    SELECT {now} AS now
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
    count(c.id) FILTER (WHERE p.outcome IN {good_outcomes})::int AS successes,
    count(c.id) FILTER (WHERE p.outcome IN {bad_outcomes})::int AS failures,
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
    0 AS successes, 0 AS failures, 0 AS drops, count(c.id)::int AS events
FROM page p LEFT JOIN counted c ON c.id = p.id
