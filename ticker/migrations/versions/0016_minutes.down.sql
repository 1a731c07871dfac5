-- Removes minutes.
DROP TRIGGER runs_note_late_end ON runs;
DROP TRIGGER runs_note_change_of_end ON runs;
DROP FUNCTION note_late_end();
DROP TABLE minutes, hours, queue_minutes, queue_hours, closed_minutes, minute_changes, needs;
DROP AGGREGATE sum_counts(integer[]);
DROP FUNCTION add_counts(integer[], integer[]);
DO $$ BEGIN
    EXECUTE replace(replace(pg_get_functiondef('note_deletion'::regproc), 'ended_at, created_at, queue)', 'ended_at, created_at)'),
        '''gone'', now, now, queue', '''gone'', now, now');
    EXECUTE replace(replace(pg_get_functiondef('note_return'::regproc), 'every_ms, tolerance_ms, queue)', 'every_ms, tolerance_ms)'),
        'OLD.tolerance_ms, OLD.queue FROM', 'OLD.tolerance_ms FROM');
END $$;
ALTER TABLE runs DROP COLUMN queue;
DROP DOMAIN ticker_queue;
