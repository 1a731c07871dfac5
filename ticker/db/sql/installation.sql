-- name: installation
-- Returns the installation of the tables, and whether they are where they were marked. A role that may not read the
-- cluster's identifier compares the other two.
SELECT i.id, i.environment, i.marker_oid = i.tableoid
    AND i.database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND coalesce(i.system_identifier = {schema}.cluster_identifier(), true) AS is_here, i.taken_from
FROM {schema}.installation i

-- name: signs_of_life
-- Returns the last action of a ticker or a worker on these tables, how many seconds ago it was, and for how many more seconds
-- that process may be at work. Runs that `adopt_runs` ended do not count. Runs have no index on their times, so this reads
-- those that are running, and the newest 10,000.
SELECT s.what, floor(extract(epoch FROM i.now - s.at))::int AS ago, ceil(extract(epoch FROM s.until - i.now))::int AS wait
FROM (SELECT {now} AS now) i, (
    SELECT 'a ticker was at work' AS what, greatest(t.last_tick_at, t.seen_at) AS at, {silent_at t} AS until
    FROM {schema}.tickers t WHERE t.last_report->>'ended' IS NULL
    UNION ALL
    SELECT 'a run started', r.started_at, r.until FROM {schema}.runs r WHERE r.state = 'running'
    UNION ALL
    SELECT w.what, w.at, w.at + interval '90 s' FROM (
        SELECT 'a worker started' AS what, f.announced_at AS at FROM {schema}.functions f
        UNION ALL
        SELECT 'a run started', r.started_at FROM {schema}.runs r WHERE {recent r}
        UNION ALL
        SELECT 'a run ended', r.ended_at FROM {schema}.runs r WHERE {recent r} AND r.started_at IS NOT NULL AND r.outcome <> 'lost') w) s
WHERE s.until > i.now ORDER BY s.until DESC LIMIT 1

-- rule: recent
(t.state = 'running' OR t.id > (SELECT max(n.id) - 10000 FROM {schema}.runs n))

-- name: silence
-- Cancels the pending notices and follow-ups of the former installation.
WITH told AS (
    UPDATE {schema}.events SET told = true WHERE NOT told
), untold AS (
    DELETE FROM {schema}.notices
), unnamed AS (
    UPDATE {schema}.tasks SET cause = '' WHERE cause <> ''
)
UPDATE {schema}.runs SET follow_up = false WHERE follow_up

-- name: adopt_runs
-- Ends runs whose workers, jobs and pieces belong to another installation: running ones become lost, planned ones are
-- dropped. With `resume`, planned ones stay, and pushed ones are pushed again.
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
    SELECT {now} AS now
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
-- Adopts the next tasks by id, whose waiting jobs belong to another installation. The newest waiting occurrence of each
-- is due again, unless a later one has started; the older ones are dropped. Holds end. Returns the id of the last task as
-- `last`, which is NULL at the end.
WITH walked AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE id > %(after)s::bigint ORDER BY id LIMIT %(limit)s
), instant AS MATERIALIZED (
    SELECT {now} AS now
), chosen AS MATERIALIZED (
    SELECT t.*, w.newest, coalesce(
        w.newest > coalesce(t.last_occurrence, '-infinity') AND t.started < coalesce(t.max_runs, t.started + 1), false) AS again
    FROM {schema}.tasks t, LATERAL (SELECT max(o) AS newest FROM unnest(t.waiting) o) w
    WHERE t.id = ANY (ARRAY(SELECT id FROM walked)) AND (t.waiting <> '{}' OR t.run_token IS NOT NULL)
    ORDER BY t.id FOR NO KEY UPDATE OF t
), dropped AS (
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, queue)
    SELECT c.id, c.name, c.function, c.owner_type, c.owner_id, 'scheduled', o, 'ended', 'dropped',
        'adopted', i.now, i.now, c.last_run, i.now, c.every_ms, c.tolerance_ms, c.queue
    FROM instant i, chosen c, unnest(c.waiting) o WHERE NOT (c.again AND o = c.newest)
    ON CONFLICT DO NOTHING
    RETURNING task_id
), changed AS (
    UPDATE {schema}.tasks t SET
        waiting = '{}', batch_jobs = NULL, run_token = NULL, running_until = NULL,
        next_run = CASE WHEN c.again THEN c.newest ELSE t.next_run END,
        dropped = t.dropped + cardinality(c.waiting) - c.again::int
    FROM chosen c WHERE t.id = c.id
)
SELECT (SELECT max(id) FROM walked) AS last, (SELECT count(*) FROM dropped)::int AS dropped

-- name: adopt
-- Writes the mark of this database and a new id, and pauses all tasks, unless `resume`. A pause of all tasks that is in force
-- remains, but no longer ends by itself. Returns no row if another `adopt` was faster.
WITH marked AS (
    INSERT INTO {schema}.installation AS i (system_identifier, database_oid, marker_oid, environment, adopted_at)
    SELECT {schema}.cluster_identifier(), d.oid, '{schema}.installation'::regclass, %(environment)s,
        {now}
    FROM pg_database d WHERE d.datname = current_database()
    ON CONFLICT (single) DO UPDATE SET id = excluded.id, system_identifier = excluded.system_identifier,
        database_oid = excluded.database_oid, marker_oid = excluded.marker_oid, environment = excluded.environment,
        adopted_at = excluded.adopted_at
    WHERE i.id = %(former)s
    RETURNING i.id
), paused AS (
    INSERT INTO {schema}.pauses AS p (scope, by, reason, paused_at) SELECT 'all', 'adopt', %(reason)s, {now} FROM marked WHERE NOT %(resume)s
    ON CONFLICT (scope, value, of_queue) WHERE resumed_at IS NULL DO UPDATE SET until = NULL WHERE p.until IS NOT NULL
), forgotten AS (
    DELETE FROM {schema}.tickers WHERE EXISTS (SELECT FROM marked)
), noted AS (
    INSERT INTO {schema}.events (task_id, what, by, words) SELECT 0, 'adopted', 'adopt', %(words)s FROM marked
)
SELECT id FROM marked
