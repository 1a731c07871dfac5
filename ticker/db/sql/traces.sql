--
-- Traces: a thread of each ticker exports the runs and drops that have ended (ticker/daemon/traces.py).

-- name: claim_ends
-- Claims the next span of time whose ends are to be exported, for this ticker only: at most `step` long, and up to `late` before
-- now, as an end becomes visible at its commit. Begins an hour ago at the earliest, or now if the clock was set back. Returns no row if
-- another ticker is claiming one, or if there is none.
WITH held AS MATERIALIZED (
    SELECT traced_until FROM {schema}.installation FOR NO KEY UPDATE SKIP LOCKED
), next AS (
    SELECT CASE WHEN h.traced_until <= i.now THEN greatest(h.traced_until, i.now - interval '1 hour') ELSE i.newest END AS since, i.newest
    FROM held h, (SELECT n.now, n.now - %(late)s::interval AS newest FROM (SELECT {now} AS now) n) i
)
UPDATE {schema}.installation SET traced_until = least(n.since + %(step)s::interval, n.newest)
FROM next n WHERE n.since <= n.newest
RETURNING n.since, traced_until AS until

-- rule: traced
-- What a trace contains of the run or drop t. The reason of a run may quote its function: only that of a drop is a word of ours.
t.id, t.task_id, t.function, t.queue, t.kind, t.occurrence, t.attempt, t.outcome, CASE t.outcome WHEN 'dropped' THEN t.reason END AS reason,
    coalesce(t.due_at, t.occurrence) AS due_at, t.pushed_at, t.started_at, t.ended_at, t.job_id, t.parent_id, t.traceparent

-- rule: ended_then
-- The ends t of an owner type, in their range of the index.
SELECT {traced r} FROM {schema}.runs r WHERE r.owner_type = t.owner_type
            AND r.ended_at >= %(since)s::timestamptz AND r.ended_at < %(until)s::timestamptz

-- name: ended_between
-- Returns the runs and drops that ended at or after `since` and before `until`.
{types_of_owners}
SELECT e.* FROM types_of_runs t, unnest(%(outcomes)s::text[]) AS o (outcome), LATERAL (
        {ended_then t} AND r.outcome = o.outcome AND r.outcome <> 'dropped' OFFSET 0) e
UNION ALL
SELECT e.* FROM types_of_drops t, unnest(%(reasons)s::text[]) AS o (reason), LATERAL (
        {ended_then t} AND r.reason = o.reason AND r.outcome = 'dropped' OFFSET 0) e
ORDER BY ended_at, id
