-- Removes limits. Runs that were held off become `interrupted`.
UPDATE runs SET outcome = 'interrupted' WHERE outcome = 'held_off';
UPDATE tasks SET last_outcome = 'interrupted' WHERE last_outcome = 'held_off';
DO $$
DECLARE columns text := 'function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs,
    catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name,
    priority, spread, subject, description, metadata, within_ms';
BEGIN
    EXECUTE replace(pg_get_functiondef('note_edit'::regproc), '''within_ms'', ''limits''', '''within_ms''');
    EXECUTE format('CREATE OR REPLACE TRIGGER tasks_note_edit AFTER UPDATE OF %s ON tasks FOR EACH ROW'
        ' WHEN (ROW(%s) IS DISTINCT FROM ROW(%s)) EXECUTE FUNCTION note_edit()',
        columns, regexp_replace(columns, '(\w+)', 'OLD.\1', 'g'), regexp_replace(columns, '(\w+)', 'NEW.\1', 'g'));
END $$;
DROP TRIGGER tasks_use_keys ON tasks;
DROP INDEX tasks_due;
ALTER TABLE tasks DROP COLUMN limits;
CREATE INDEX tasks_due ON tasks (next_run)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL;
DROP FUNCTION use_keys(), limit_keys(text[]);
DROP TABLE slots, limits, limited_keys;
DROP FUNCTION apply_limit(), is_limit_of(text, text);
DROP DOMAIN ticker_keys, ticker_key, ticker_limited;
ALTER DOMAIN ticker_outcome DROP CONSTRAINT ticker_outcome_check;
ALTER DOMAIN ticker_outcome ADD CONSTRAINT ticker_outcome_check CHECK (VALUE IN (
    'succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'interrupted', 'dropped')) NOT VALID;
