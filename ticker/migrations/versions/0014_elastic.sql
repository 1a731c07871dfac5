-- Elastic intervals: an interval that grows while runs find nothing to do.

-- The domains get their CHECKs after the columns exist. Otherwise, PostgreSQL would rewrite the whole table.
CREATE DOMAIN ticker_pace AS bigint;
CREATE DOMAIN ticker_again AS timestamptz;
-- The upper bound of an elastic interval, whose lower bound is `every_ms`, and the interval in force, if it is longer than the
-- lower bound. The `next_run` that a run asked for (`run.again`).
ALTER TABLE tasks
    ADD COLUMN every_most_ms ticker_pace,
    ADD COLUMN pace_ms ticker_pace,
    ADD COLUMN again_at ticker_again;
ALTER DOMAIN ticker_pace ADD CONSTRAINT ticker_pace_check CHECK (VALUE BETWEEN 1000 AND 31622400000) NOT VALID;
ALTER DOMAIN ticker_again ADD CONSTRAINT ticker_again_check
    CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z') NOT VALID;
-- The rows that exist have none of these values.
ALTER TABLE tasks
    ADD CONSTRAINT tasks_elastic CHECK ((every_most_ms IS NULL OR kind = 'interval' AND every_most_ms > every_ms)
        AND (pace_ms IS NULL OR coalesce(pace_ms BETWEEN every_ms AND every_most_ms, false))) NOT VALID;

-- Edits of `every_most_ms` are recorded like those of the other fields.
DO $$
DECLARE columns text := 'function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs,
    catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name,
    priority, spread, subject, description, metadata, within_ms, limits, every_most_ms';
BEGIN
    EXECUTE replace(pg_get_functiondef('note_edit'::regproc), '''limits''', '''limits'', ''every_most_ms''');
    EXECUTE format('CREATE OR REPLACE TRIGGER tasks_note_edit AFTER UPDATE OF %s ON tasks FOR EACH ROW'
        ' WHEN (ROW(%s) IS DISTINCT FROM ROW(%s)) EXECUTE FUNCTION note_edit()',
        columns, regexp_replace(columns, '(\w+)', 'OLD.\1', 'g'), regexp_replace(columns, '(\w+)', 'NEW.\1', 'g'));
END $$;
