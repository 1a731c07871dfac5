-- name: mark_taken
-- Notes that entries of a source were taken over.
UPDATE {schema}.installation SET taken_from = array_append(taken_from, %(source)s) WHERE NOT %(source)s = ANY (taken_from)

-- name: unmark_taken
UPDATE {schema}.installation SET taken_from = array_remove(taken_from, %(source)s)

-- name: tasks_taken
-- Returns the tasks without an owner that have these names, and the sources from which they were taken.
SELECT id, name, metadata->'taken_from'->>'source' AS source, enabled AND paused_by IS NULL AS runs, next_run IS NULL AS is_done
FROM {schema}.tasks WHERE owner_type = '' AND owner_id = '' AND name = ANY (%(names)s::text[])

-- name: give_back_tasks
-- Deletes tasks, which drops their waiting jobs. Returns when each is next due: an occurrence that waited is due still, but an
-- interval task not before its last start plus its interval.
WITH gone AS (DELETE FROM {schema}.tasks WHERE id = ANY (%(ids)s::bigint[])
    AND {as_author} RETURNING *)
SELECT name, greatest(least(next_run, (SELECT min(o) FROM unnest(waiting) o)),
    CASE WHEN kind = 'interval' THEN last_run + every_ms * interval '1 ms' END) AS due
FROM gone
