-- name: claim_ended
-- Locks and returns the ends that need a follow-up, with their tasks. First releases the ends whose task is gone, which
-- need none.
WITH orphaned AS MATERIALIZED (
    SELECT r.id FROM {schema}.runs r
    WHERE r.follow_up AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = r.task_id)
    ORDER BY r.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    UPDATE {schema}.runs r SET follow_up = false FROM orphaned o WHERE r.id = o.id
)
SELECT r.id AS run_id, r.task_id, r.kind, r.occurrence, r.attempt, r.outcome, r.reason, r.started_at IS NOT NULL AS started,
    r.ended_at, r.pieces IS NOT NULL AS has_pieces, t.kind AS schedule, t.every_ms, t.pace_ms, t.next_run IS NOT DISTINCT FROM t.again_at AS is_asked, t.tolerance_ms, t.grace_ms,
    t.last_run, t.next_run, coalesce(r.occurrence < t.last_occurrence OR (t.kind <> 'interval'
        AND r.occurrence < (SELECT max(w) FROM unnest(t.waiting) w)), false) AS is_past,
    coalesce(t.last_success_at > coalesce(r.started_at, r.ended_at), false) AS made_good,
    {lost_with_host r} AS with_host,
    r.kind = 'retry' AND (r.outcome IN ('interrupted', 'slowed_down', 'dropped') OR {lost_with_host r}) AND EXISTS (
        SELECT FROM {schema}.runs p WHERE p.id = r.parent_id AND p.outcome IN {bad_outcomes} AND NOT {lost_with_host p}
        UNION ALL
        SELECT FROM {schema}.runs p WHERE p.parent_id = r.parent_id AND p.kind = 'retry' AND p.attempt < r.attempt
            AND p.outcome IN {bad_outcomes} AND NOT {lost_with_host p}) AS failed_before,
    CASE WHEN (r.outcome = 'interrupted' OR {lost_with_host r}) AND t.retries = 0 AND {repeatable t} THEN 1 ELSE t.retries END AS retries,
    r.stop_requested_by IS NOT NULL AS stopped, t.backoff, t.failures, t.told, t.stretch_ms, t.stretched_ms, t.pause_after, t.probe_ms,
    t.paused_by IS NOT NULL AS paused, CASE WHEN t.pause_after IS NULL THEN 0 ELSE (
        SELECT count(*) FROM {schema}.events e WHERE e.task_id = t.id AND e.what = 'auto_paused' AND e.id > coalesce((
            SELECT max(id) FROM {schema}.events WHERE task_id = t.id AND what = 'recovered'), 0)) END AS pauses,
    t.dead_man, t.alarm_at, t.cause
FROM {schema}.runs r JOIN {schema}.tasks t ON t.id = r.task_id
WHERE r.follow_up AND r.state = 'ended'
ORDER BY r.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF r, t SKIP LOCKED

-- name: mark_followed
-- Marks these runs as followed up. If no retry follows, the reason explains why.
UPDATE {schema}.runs r SET follow_up = false, retried = f.retried,
    reason = CASE WHEN f.note = '' THEN r.reason ELSE left(concat_ws(' ', nullif(r.reason, ''), '(' || f.note || ')'), 2000) END
FROM unnest(%(ids)s::bigint[], %(retried)s::boolean[], %(notes)s::text[]) AS f (id, retried, note)
WHERE r.id = f.id

-- name: plan_retries
-- Plans a further attempt of each of these runs or pieces.
INSERT INTO {schema}.runs (
    task_id, task_name, function, owner_type, owner_id, queue, kind, parent_id, item, occurrence, attempt, state, due_at, created_at,
    traceparent)
SELECT r.task_id, r.task_name, r.function, r.owner_type, r.owner_id, r.queue, CASE r.kind WHEN 'piece' THEN 'piece' ELSE 'retry' END,
    coalesce(r.parent_id, r.id), r.item, r.occurrence, r.attempt + 1, 'planned', p.due_at, %(now)s,
    r.traceparent
FROM unnest(%(ids)s::bigint[], %(dues)s::timestamptz[]) AS p (id, due_at) JOIN {schema}.runs r ON r.id = p.id
ORDER BY p.due_at, r.id

-- name: judge_tasks
-- Writes the changes in these tasks that follow from the ends of their runs.
UPDATE {schema}.tasks t SET
    failures = least(j.failures, 1000000), told = j.told, stretched_ms = j.stretched_ms, next_run = j.next_run,
    alarm_at = j.alarm_at, cause = j.cause,
    paused_by = CASE WHEN j.pause_until IS NULL THEN t.paused_by ELSE 'ticker' END,
    paused_reason = CASE WHEN j.pause_until IS NULL THEN t.paused_reason ELSE left(j.pause_reason, 2000) END,
    paused_until = CASE WHEN j.pause_until IS NULL THEN t.paused_until ELSE j.pause_until END
FROM unnest(%(ids)s::bigint[], %(failures)s::integer[], %(tolds)s::text[], %(stretched)s::bigint[],
    %(next_runs)s::timestamptz[], %(alarms)s::timestamptz[], %(pause_reasons)s::text[], %(pause_untils)s::timestamptz[], %(causes)s::text[])
    AS j (id, failures, told, stretched_ms, next_run, alarm_at, pause_reason, pause_until, cause)
WHERE t.id = j.id

-- name: record_events
-- Records events in this order, which is the order of their ids.
INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, words, run_id)
SELECT %(now)s, t.id, t.name, t.function, t.owner_type, t.owner_id, e.what, 'ticker', left(e.words, 2000), e.run_id
FROM unnest(%(ids)s::bigint[], %(whats)s::text[], %(words)s::text[], %(run_ids)s::bigint[]) WITH ORDINALITY
    AS e (id, what, words, run_id, n) JOIN {schema}.tasks t ON t.id = e.id
ORDER BY e.n
ON CONFLICT (function) WHERE what = 'unknown_function' DO NOTHING

-- name: set_patience
-- Sets the timeout of each further statement of this transaction, such as `12s`.
SELECT set_config('statement_timeout', %(timeout)s, true)

-- name: sum_up
-- Ends runs whose pieces have all ended, with the outcomes of their last attempts. The worst outcome is the outcome of
-- the run, and of its task. A piece whose row is gone counts as failed. One run of each task is summed up at a time. If
-- a later run of the task has already ended, it has set the task's state, and only the totals change. A run of a
-- deleted task ends, too.
-- OFFSET 0 makes the check for pieces at work use the index for each run: as a join it might read all runs. Counting a
-- million pieces takes seconds, so the task is locked only after that.
WITH complete AS MATERIALIZED (
    SELECT r.id, r.task_id, r.pieces, r.started_at, r.stop_requested_by FROM {schema}.runs r
    WHERE r.state = 'processing'
      AND NOT EXISTS (SELECT FROM {schema}.runs p WHERE p.parent_id = r.id AND p.kind = 'piece'
                      AND (p.state <> 'ended' OR p.follow_up) OFFSET 0)
    ORDER BY r.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT DISTINCT ON (task_id) * FROM complete ORDER BY task_id, id
), summed AS MATERIALIZED (
    SELECT c.id, c.task_id, c.pieces, c.started_at, c.stop_requested_by, p.*
    FROM chosen c, LATERAL (
        SELECT count(*) AS count, count(*) FILTER (WHERE p.outcome IN {bad_outcomes}) AS failed,
            count(*) FILTER (WHERE p.outcome = 'dropped') AS dropped,
            count(*) FILTER (WHERE p.outcome IN ('interrupted', 'dropped') AND p.stop_requested_by IS NOT NULL) AS stopped,
            count(*) FILTER (WHERE p.outcome IN ('partial', 'slowed_down')) AS partial,
            count(*) FILTER (WHERE p.outcome = 'succeeded') AS succeeded
        FROM {schema}.runs p WHERE p.parent_id = c.id AND p.kind = 'piece' AND NOT p.retried) p
), held AS MATERIALIZED (
    SELECT t.id, t.last_run_id,
        {needs_follow_up t} AS needs_follow_up
    FROM {schema}.tasks t WHERE t.id IN (SELECT task_id FROM summed) ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT c.id, c.task_id, c.pieces, h.needs_follow_up, c.partial, c.succeeded, c.dropped,
        CASE WHEN c.stopped > 0 THEN 'stopped by ' || c.stop_requested_by END AS stopped,
        c.failed + greatest(c.pieces - c.count, 0) AS failed,
        NOT EXISTS (SELECT FROM {schema}.runs n WHERE n.id = h.last_run_id AND n.started_at > c.started_at) AS latest
    FROM summed c LEFT JOIN held h ON h.id = c.task_id
    WHERE h.id IS NOT NULL OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = c.task_id)
), judged AS MATERIALIZED (
    SELECT *, CASE WHEN stopped IS NOT NULL THEN 'interrupted' WHEN failed + dropped > 0 THEN 'failed' WHEN partial > 0 THEN 'partial'
                   WHEN succeeded > 0 THEN 'succeeded' ELSE 'nothing_to_do' END AS outcome,
        concat_ws(', ', stopped, CASE WHEN failed > 0 THEN failed || ' of ' || pieces || ' pieces failed' END,
            CASE WHEN dropped > 0 THEN dropped || ' of ' || pieces || ' pieces dropped' END) AS reason
    FROM counted
), ended AS (
    UPDATE {schema}.runs r SET state = 'ended', outcome = j.outcome, reason = j.reason, ended_at = %(now)s,
        follow_up = j.needs_follow_up IS NOT NULL AND (j.outcome = 'failed' OR (j.outcome IN {good_outcomes} AND j.needs_follow_up))
    FROM judged j WHERE r.id = j.id
    RETURNING r.id, r.kind, r.outcome, r.ended_at
), noted AS (
    UPDATE {schema}.tasks t SET
        last_run_id = CASE WHEN j.latest THEN e.id ELSE t.last_run_id END,
        last_outcome = CASE WHEN j.latest THEN j.outcome ELSE t.last_outcome END,
        last_ended_at = CASE WHEN j.latest THEN %(now)s ELSE t.last_ended_at END,
        last_success_at = CASE WHEN j.outcome IN {good_outcomes} THEN %(now)s ELSE t.last_success_at END,
        last_worked_at = CASE WHEN j.outcome IN {work_outcomes} THEN %(now)s ELSE t.last_worked_at END,
        failures = CASE WHEN NOT j.latest OR j.outcome = 'interrupted' THEN t.failures WHEN j.outcome <> 'failed' THEN 0
                        ELSE {one_more_failure t} END,
        succeeded = t.succeeded + (j.outcome IN {good_outcomes})::int, failed = t.failed + (j.outcome = 'failed')::int,
        pace_ms = {pace t}, next_run = {paced t}
    FROM judged j JOIN ended e ON e.id = j.id
    WHERE t.id = j.task_id
)
SELECT id FROM ended

-- name: claim_alarms
-- Locks and returns the tasks whose last success must be checked now. A task that was never pushed waits for its first
-- time. A time to check that was set by hand, without an alert, is ignored. While a task is paused, no success is expected.
SELECT id, kind, expression, zone, every_ms, phase_ms, pace_ms, during, dead_man, greatest(last_success_at, resumed_at, starts_at, created_at,
        CASE WHEN last_occurrence IS NULL AND waiting = '{}' AND dropped = 0
            AND NOT EXISTS (SELECT FROM {schema}.runs r WHERE r.task_id = t.id AND r.kind = 'scheduled' OFFSET 0)
        THEN next_run - CASE kind WHEN 'interval' THEN interval '0' ELSE interval '1 microsecond' END END,
        (SELECT max(p.resumed_at) FROM {schema}.pauses p WHERE {covers t})) AS since,
    last_success_at, box_ms + grace_ms AS longest_run,
    next_run IS NULL AND waiting = '{}' AND run_token IS NULL
        AND coalesce(last_outcome IN {good_outcomes}, false) AS is_done
FROM {schema}.tasks t
WHERE alarm_at <= %(now)s AND dead_man IS NOT NULL AND {wanted t} AND NOT {covered t}
ORDER BY alarm_at
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED

-- name: set_alarms
-- Sets the times of the next checks. NULL means that a notice is due now, and the next success sets the time.
UPDATE {schema}.tasks t SET alarm_at = a.alarm_at, told = CASE WHEN a.alarm_at IS NULL THEN 'failed' ELSE t.told END,
    cause = CASE WHEN a.alarm_at IS NULL AND t.cause = '' THEN {late_cause} ELSE t.cause END
FROM unnest(%(ids)s::bigint[], %(alarms)s::timestamptz[]) AS a (id, alarm_at)
WHERE t.id = a.id
