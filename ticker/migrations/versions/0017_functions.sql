-- Functions that no worker has announced.

CREATE DOMAIN ticker_queues AS text[] CHECK (octet_length(VALUE::text) <= 1000000);
-- The queues of the workers that have announced the function. How long a run of it takes on average, in milliseconds, by the last
-- minutes in which some have ended.
ALTER TABLE functions
    ADD COLUMN queues ticker_queues DEFAULT '{}' NOT NULL,
    ADD COLUMN mean_ms bigint CONSTRAINT functions_mean_ms CHECK (mean_ms > 0);

-- For the names of all functions of tasks: one look-up for each name, however many tasks there are. Another tells whether a function has
-- runnable tasks in a queue.
CREATE INDEX tasks_function ON tasks (function, queue, (enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL));

-- The event of a function that no worker has announced. All stored values are valid, so none is checked.
ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check;
ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted',
    'unknown_function')) NOT VALID;
-- One event for each function, however many tickers there are.
CREATE UNIQUE INDEX events_unknown_function ON events (function) WHERE what = 'unknown_function';
