--
-- Threads next to the ticks run these statements (ticker/notify). No lock outlives its statement: a claim moves the time
-- of a notice by a lease before the notice is sent.

-- name: make_notices
-- Makes a notice for each channel from each new event whose kind is sent and that is younger than `after`. Marks all
-- new events as done.
WITH instant AS MATERIALIZED (
    SELECT {now} AS now
), untold AS MATERIALIZED (
    SELECT id, what, at FROM {schema}.events WHERE NOT told
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), made AS (
    INSERT INTO {schema}.notices (event_id, channel, due_at)
    SELECT u.id, c.channel, i.now
    FROM instant i, untold u, unnest(%(channels)s::text[]) AS c (channel)
    WHERE u.what = ANY (%(kinds)s::text[]) AND u.at > i.now - %(after)s::interval
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
    WHERE n.channel = %(channel)s AND (n.due_at <= (SELECT now FROM instant)
                                       OR n.due_at > (SELECT now FROM instant) + interval '2 hours')
      AND NOT EXISTS (
          SELECT FROM {schema}.events o JOIN {schema}.notices b ON b.event_id = o.id AND b.channel = %(channel)s
          WHERE o.task_id = e.task_id AND o.id < e.id AND o.id >= (SELECT min(event_id) FROM {schema}.notices))
    ORDER BY n.due_at, n.event_id LIMIT 1
    FOR NO KEY UPDATE OF n SKIP LOCKED
), claimed AS (
    UPDATE {schema}.notices n SET due_at = i.now + %(lease)s::interval, tries = n.tries + 1
    FROM due d, instant i WHERE n.event_id = d.event_id AND n.channel = d.channel
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
DELETE FROM {schema}.notices WHERE event_id = %(event_id)s AND channel = %(channel)s

-- name: set_back_notice
-- Delays a notice that was not delivered, and stores the reason.
UPDATE {schema}.notices SET error = %(error)s,
    due_at = {now} + %(wait)s::interval
WHERE event_id = %(event_id)s AND channel = %(channel)s

-- name: remove_old_notices
-- Removes notices of events older than `after`, and those without an event that were due as long ago, whatever their
-- state. Only the first ones are checked, because ids increase over time.
WITH first AS MATERIALIZED (
    SELECT ctid AS place, event_id, due_at FROM {schema}.notices ORDER BY event_id, channel LIMIT %(limit)s
), old AS MATERIALIZED (
    SELECT f.place FROM first f
    WHERE coalesce((SELECT e.at FROM {schema}.events e WHERE e.id = f.event_id), f.due_at)
          <= (SELECT {now}) - %(after)s::interval
), locked AS MATERIALIZED (
    SELECT ctid AS place FROM {schema}.notices
    WHERE ctid = ANY (ARRAY(SELECT place FROM old)) FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.notices WHERE ctid = ANY (ARRAY(SELECT place FROM locked))
RETURNING event_id, channel, error
