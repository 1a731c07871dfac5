-- Occurrences that were not pushed because enough jobs of their task waited, and those whose jobs never started.

-- The event that counts them while none of the task's occurrences is pushed.
ALTER TABLE tasks
    ADD COLUMN unpushed_event bigint;
-- How often it happened, and when last, if an event counts. Its `at` is the first time.
ALTER TABLE events
    ADD COLUMN count integer,
    ADD COLUMN until ticker_moment;

-- All stored values are valid, so none is checked.
ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check;
ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted',
    'unknown_function', 'unpushed', 'expired', 'host_lost', 'group_too_large')) NOT VALID;
-- One event for each function and minute counts the jobs that ended or were lost before their start.
CREATE UNIQUE INDEX events_expired ON events (function, at) WHERE what = 'expired';
