-- Removes elastic intervals. The tasks keep their lower bounds.
DO $$
DECLARE columns text := 'function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs,
    catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name,
    priority, spread, subject, description, metadata, within_ms, limits';
BEGIN
    EXECUTE replace(pg_get_functiondef('note_edit'::regproc), '''limits'', ''every_most_ms''', '''limits''');
    EXECUTE format('CREATE OR REPLACE TRIGGER tasks_note_edit AFTER UPDATE OF %s ON tasks FOR EACH ROW'
        ' WHEN (ROW(%s) IS DISTINCT FROM ROW(%s)) EXECUTE FUNCTION note_edit()',
        columns, regexp_replace(columns, '(\w+)', 'OLD.\1', 'g'), regexp_replace(columns, '(\w+)', 'NEW.\1', 'g'));
END $$;
UPDATE tasks SET next_run = least(next_run, clock_timestamp() + every_ms * interval '1 millisecond') WHERE pace_ms IS NOT NULL;
ALTER TABLE tasks DROP COLUMN every_most_ms, DROP COLUMN pace_ms, DROP COLUMN again_at;
DROP DOMAIN ticker_pace;
DROP DOMAIN ticker_again;
