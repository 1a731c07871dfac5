-- Removes the queues of workers, and the events of functions that no worker has announced.
DELETE FROM events WHERE what = 'unknown_function';
DROP INDEX events_unknown_function, tasks_function;
ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check;
ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted')) NOT VALID;
ALTER TABLE functions DROP COLUMN queues, DROP COLUMN mean_ms;
DROP DOMAIN ticker_queues;
