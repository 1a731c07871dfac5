-- Removes pauses of many tasks, which end, and hours of the day.
DO $$
DECLARE columns text := 'function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs,
    catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name,
    priority, spread, subject, description, metadata, within_ms, limits, every_most_ms';
BEGIN
    EXECUTE replace(pg_get_functiondef('note_edit'::regproc), '''every_most_ms'', ''during''', '''every_most_ms''');
    EXECUTE format('CREATE OR REPLACE TRIGGER tasks_note_edit AFTER UPDATE OF %s ON tasks FOR EACH ROW'
        ' WHEN (ROW(%s) IS DISTINCT FROM ROW(%s)) EXECUTE FUNCTION note_edit()',
        columns, regexp_replace(columns, '(\w+)', 'OLD.\1', 'g'), regexp_replace(columns, '(\w+)', 'NEW.\1', 'g'));
END $$;
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('note_deletion'::regproc),
        'unnest(waiting || array_remove(ARRAY[returned]::timestamptz[], NULL)) AS occurrence', 'unnest(waiting) AS occurrence');
END $$;
DROP TRIGGER tasks_leave_pause ON tasks;
DROP TRIGGER tasks_note_return ON tasks;
DROP INDEX tasks_paused;
DROP INDEX tasks_due;
DROP INDEX tasks_due_limited;
ALTER TABLE tasks DROP COLUMN pause_id, DROP COLUMN returned, DROP COLUMN wait_reason, DROP COLUMN during;
CREATE INDEX tasks_paused ON tasks (id) WHERE paused_by IS NOT NULL;
CREATE INDEX tasks_due ON tasks (next_run)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL AND limits IS NULL;
CREATE INDEX tasks_due_limited ON tasks (next_run, id)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL AND limits IS NOT NULL;
DROP DOMAIN ticker_during, ticker_returned;
DROP TABLE pauses;
DROP FUNCTION note_pause(), guard_pause(), leave_pause(), note_return(), words_of_pause(text, text);
