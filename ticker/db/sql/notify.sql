--
-- Threads next to the ticks run these statements (ticker/notify). No lock outlives its statement: a claim moves the time
-- of a notice by a lease before the notice is sent.

-- name: make_notices
-- Makes a notice for each channel from each new event whose kind is sent and that is younger than `after`. Marks all
-- new events as done. A channel with notices by cause (`note_causes`) gets none of an existing task's health.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), untold AS MATERIALIZED (
    SELECT id, what, at, task_id FROM {schema}.events WHERE NOT told
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), made AS (
    INSERT INTO {schema}.notices (event_id, channel, due_at)
    SELECT u.id, c.channel, i.now
    FROM instant i, untold u, unnest(%(channels)s::text[]) AS c (channel)
    WHERE u.what = ANY (%(kinds)s::text[]) AND u.at > i.now - %(after)s::interval
      AND NOT (c.channel = ANY (%(by_cause)s::text[]) AND u.what IN ('failed', 'recovered', 'auto_paused', 'dead_man')
          AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = u.task_id))
    ON CONFLICT DO NOTHING
)
UPDATE {schema}.events e SET told = true FROM untold u WHERE e.id = u.id
RETURNING e.id

-- name: claim_notice
-- Claims the next due notice of a channel for the time of the lease, and returns its content. Skips a notice while an
-- older one of its task waits for the same channel. No wait is longer than an hour: a notice that is due later was
-- dated before the clock was set back.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), due AS MATERIALIZED (
    SELECT n.event_id, n.channel FROM {schema}.notices n JOIN {schema}.events e ON e.id = n.event_id
    WHERE n.channel = %(channel)s AND n.cause = '' AND (n.due_at <= (SELECT now FROM instant)
                                       OR n.due_at > (SELECT now FROM instant) + interval '2 hours')
      AND NOT EXISTS (
          SELECT FROM {schema}.events o JOIN {schema}.notices b ON b.event_id = o.id AND b.channel = %(channel)s AND b.cause = ''
          WHERE o.task_id = e.task_id AND o.id < e.id AND o.id >= (SELECT min(event_id) FROM {schema}.notices WHERE cause = ''))
    ORDER BY n.due_at, n.event_id LIMIT 1
    FOR NO KEY UPDATE OF n SKIP LOCKED
), claimed AS (
    UPDATE {schema}.notices n SET due_at = i.now + %(lease)s::interval, tries = n.tries + 1
    FROM due d, instant i WHERE n.event_id = d.event_id AND n.channel = d.channel AND n.cause = ''
    RETURNING n.event_id, n.tries
)
SELECT c.tries, e.id, e.what, e.at, e.task_id, e.task_name, e.function, e.owner_type, e.owner_id,
    coalesce(t.subject, '') AS subject, e.words, t.failures,
    CASE WHEN {runnable t} THEN t.next_run END AS next_run, e.run_id,
    coalesce(concat_ws(': ', nullif(r.outcome, 'failed'), nullif(r.reason, '')), '') AS error,
    CASE WHEN e.what = 'dead_man' THEN CASE WHEN t.last_success_at <= e.at THEN t.last_success_at END
         ELSE (SELECT o.at FROM {schema}.events o
               WHERE o.task_id = e.task_id AND o.id <= e.id AND o.what = 'failed' ORDER BY o.id DESC LIMIT 1) END AS since
FROM claimed c JOIN {schema}.events e ON e.id = c.event_id
    LEFT JOIN {schema}.tasks t ON t.id = e.task_id LEFT JOIN {schema}.runs r ON r.id = e.run_id

-- name: remove_notice
-- Removes a notice that was delivered.
DELETE FROM {schema}.notices WHERE event_id = %(event_id)s AND channel = %(channel)s AND cause = ''

-- name: note_causes
-- Begins a notice for each cause with which tasks fail and that the channel does not know. A recovery is due at once. If no
-- more tasks fail than an hour ago, the next check is in a minute. A cause is forgotten an hour after its last notice of
-- tasks that fail. The causes are read from the index, one after the other, however many tasks fail.
WITH RECURSIVE instant AS MATERIALIZED (
    SELECT {now} AS now
), {causes t}, begun AS (
    INSERT INTO {schema}.notices (event_id, channel, cause, due_at)
    SELECT 0, %(channel)s, c.cause, i.now FROM instant i, causes c
    WHERE c.cause IS NOT NULL AND NOT EXISTS (
        SELECT FROM {schema}.notices n WHERE n.channel = %(channel)s AND n.cause = c.cause AND n.cause <> '')
    ON CONFLICT DO NOTHING
), chosen AS MATERIALIZED (
    SELECT n.event_id, n.channel, n.cause, n.tasks, f.fails
    FROM instant i, {schema}.notices n, LATERAL (SELECT {still_fails n} AS fails OFFSET 0) f
    WHERE n.channel = %(channel)s AND n.cause <> '' AND n.tries = 0
      AND CASE WHEN f.fails THEN n.due_at <= i.now AND NOT {has_grown n} WHEN n.tasks > 0 THEN n.due_at > i.now
               ELSE coalesce(n.sent_at <= i.now - interval '1 hour', true) END
    ORDER BY n.cause FOR NO KEY UPDATE OF n SKIP LOCKED
), moved AS (
    UPDATE {schema}.notices n SET due_at = i.now + CASE WHEN c.fails THEN interval '1 minute' ELSE interval '0' END
    FROM chosen c, instant i
    WHERE (n.event_id, n.channel, n.cause) = (c.event_id, c.channel, c.cause) AND (c.fails OR c.tasks > 0)
)
DELETE FROM {schema}.notices n USING chosen c
WHERE (n.event_id, n.channel, n.cause) = (c.event_id, c.channel, c.cause) AND NOT c.fails AND c.tasks = 0

-- name: claim_cause
-- Claims the next due notice of a cause for the time of the lease: more tasks fail with it, or none any more. A delivery
-- that failed is repeated with what is true now. Returns the content, with one of the tasks as an example. `series` is the
-- same for each try of a notice, and different for the next notice of the cause.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), due AS MATERIALIZED (
    SELECT n.event_id, n.channel, n.cause, n.tasks FROM {schema}.notices n, instant i
    WHERE n.channel = %(channel)s AND n.cause <> '' AND (n.due_at <= i.now OR n.due_at > i.now + interval '2 hours')
      AND (n.tries > 0 OR {has_grown n} OR n.tasks > 0 AND NOT {still_fails n})
    ORDER BY n.due_at, n.cause LIMIT 1
    FOR NO KEY UPDATE OF n SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT d.*, f.*, CASE WHEN d.tasks > 0 OR f.failing = 0 THEN d.event_id ELSE coalesce((SELECT e.id FROM {schema}.events e
        WHERE e.task_id = f.first AND e.what IN ('failed', 'dead_man') ORDER BY e.id DESC LIMIT 1), 0) END AS first_event
    FROM due d, LATERAL (
        SELECT count(*)::int AS failing, (count(*) FILTER (WHERE x.paused_by = 'ticker'))::int AS paused, min(x.id) AS first,
            (array_agg(x.id ORDER BY x.id))[:3] AS ids
        FROM {schema}.tasks x WHERE {failing x} AND x.cause = d.cause) f
), claimed AS (
    UPDATE {schema}.notices n SET due_at = i.now + %(lease)s::interval, tries = n.tries + 1, event_id = d.first_event,
        tasks = greatest(n.tasks, d.failing), paused = greatest(n.paused, d.paused)
    FROM counted d, instant i WHERE (n.event_id, n.channel, n.cause) = (d.event_id, d.channel, d.cause)
    RETURNING n.event_id, n.tries, n.cause, n.tasks, n.sent_at, d.failing, d.paused, d.first, d.ids
)
SELECT c.tries, c.event_id AS id, i.now AS at, coalesce(t.id, e.task_id, 0) AS task_id, coalesce(t.name, e.task_name, '') AS task_name,
    coalesce(t.function, e.function, '') AS function, coalesce(t.owner_type, e.owner_type, '') AS owner_type,
    coalesce(t.owner_id, e.owner_id, '') AS owner_id, coalesce(t.subject, '') AS subject, t.failures, e.at AS since,
    CASE WHEN c.failing = 0 THEN 'recovered' WHEN c.cause = {late_cause} THEN 'dead_man' ELSE 'failed' END AS what,
    CASE WHEN c.failing = 0 THEN '' ELSE coalesce(e.words, c.cause) END AS words,
    CASE WHEN {runnable t} THEN t.next_run END AS next_run, r.id AS run_id,
    coalesce(concat_ws(': ', nullif(r.outcome, 'failed'), nullif(r.reason, '')), '') AS error,
    c.cause, CASE WHEN c.failing = 0 THEN c.tasks ELSE c.failing END AS tasks, c.paused,
    left(md5(concat(c.cause, extract(epoch FROM c.sent_at))), 12) AS series,
    coalesce((SELECT jsonb_agg(jsonb_build_array(x.name, x.owner_type, x.owner_id, x.subject) ORDER BY x.id)
        FROM {schema}.tasks x WHERE x.id = ANY (c.ids)), '[]') AS examples
FROM instant i, claimed c LEFT JOIN {schema}.events e ON e.id = c.event_id
    LEFT JOIN {schema}.tasks t ON t.id = coalesce(c.first, e.task_id)
    LEFT JOIN {schema}.runs r ON r.id = t.last_run_id AND r.outcome IN {bad_outcomes}

-- name: keep_cause
-- Keeps the state of a cause whose notice was delivered. Tasks that fail are notified again after an hour at the earliest.
UPDATE {schema}.notices SET tries = 0, error = '',
    tasks = CASE WHEN %(fails)s THEN tasks ELSE 0 END, paused = CASE WHEN %(fails)s THEN paused ELSE 0 END,
    sent_at = CASE WHEN %(fails)s THEN {now} ELSE sent_at END,
    due_at = CASE WHEN %(fails)s THEN {now} + interval '1 hour' ELSE coalesce(sent_at + interval '1 hour', {now}) END
WHERE event_id = %(event_id)s AND channel = %(channel)s AND cause = %(cause)s AND cause <> ''

-- name: try_notice_later
-- Delays a notice that was not delivered, and stores the reason.
UPDATE {schema}.notices SET error = %(error)s,
    due_at = {now} + %(wait)s::interval
WHERE event_id = %(event_id)s AND channel = %(channel)s AND cause = %(cause)s

-- name: remove_old_notices
-- Removes notices of events older than `after`, and those without an event that were due as long ago, whatever their
-- state. Only the first ones are checked, because ids increase over time. A cause was due as long ago if no ticker uses
-- its channel.
WITH first AS MATERIALIZED (
    SELECT ctid AS place, event_id, due_at, cause FROM {schema}.notices
    WHERE cause = '' OR due_at <= (SELECT {now}) - %(after)s::interval ORDER BY event_id, channel LIMIT %(limit)s
), old AS MATERIALIZED (
    SELECT f.place FROM first f
    WHERE coalesce((SELECT e.at FROM {schema}.events e WHERE e.id = f.event_id AND f.cause = ''), f.due_at)
          <= (SELECT {now}) - %(after)s::interval
), locked AS MATERIALIZED (
    SELECT ctid AS place FROM {schema}.notices
    WHERE ctid = ANY (ARRAY(SELECT place FROM old)) FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {schema}.notices WHERE ctid = ANY (ARRAY(SELECT place FROM locked))
    RETURNING event_id, channel, error, cause, tries
)
SELECT event_id, channel, error FROM removed WHERE cause = '' OR tries > 0
