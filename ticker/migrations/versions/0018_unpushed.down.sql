-- Removes the events that count occurrences, and those of groups and hosts.
DELETE FROM events WHERE what IN ('unpushed', 'expired', 'host_lost', 'group_too_large');
DROP INDEX events_expired;
ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check;
ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted',
    'unknown_function')) NOT VALID;
ALTER TABLE events DROP COLUMN count, DROP COLUMN until;
ALTER TABLE tasks DROP COLUMN unpushed_event;
