-- Removes the events that count occurrences.
DELETE FROM events WHERE what IN ('unpushed', 'expired');
DROP INDEX events_expired;
ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check;
ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted',
    'unknown_function')) NOT VALID;
ALTER TABLE events DROP COLUMN count, DROP COLUMN until;
ALTER TABLE tasks DROP COLUMN unpushed_event;
