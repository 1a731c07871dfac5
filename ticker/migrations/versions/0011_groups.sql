-- Adds the outcome `interrupted`, and allows up to 1,000 tasks in a job. All stored values are valid, so none is checked.
ALTER DOMAIN ticker_outcome DROP CONSTRAINT ticker_outcome_check;
ALTER DOMAIN ticker_outcome ADD CONSTRAINT ticker_outcome_check CHECK (VALUE IN (
    'succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'interrupted', 'dropped')) NOT VALID;
ALTER DOMAIN ticker_batch DROP CONSTRAINT ticker_batch_check;
ALTER DOMAIN ticker_batch ADD CONSTRAINT ticker_batch_check CHECK (VALUE BETWEEN 1 AND 1000) NOT VALID;

-- How many of these tasks run at the same time, and whether an interrupted run is retried even without retries.
ALTER TABLE functions
    ADD COLUMN concurrency ticker_batch DEFAULT 1 NOT NULL,
    ADD COLUMN repeatable boolean DEFAULT false NOT NULL;
-- If full groups die again although no part of them did, how many tasks a job carries, and until when.
ALTER TABLE functions
    ADD COLUMN halved_to ticker_batch,
    ADD COLUMN halved_until ticker_moment;

-- The domain gets its CHECK after the column exists. Otherwise, PostgreSQL would rewrite the whole table.
CREATE DOMAIN ticker_alone AS timestamptz;
-- Until when the task runs alone in its job, or with other suspects: up to `share` of them. The end of 9999 means: until one of its
-- runs has ended.
ALTER TABLE tasks
    ADD COLUMN alone_until ticker_alone,
    ADD COLUMN share ticker_batch;
ALTER DOMAIN ticker_alone ADD CONSTRAINT ticker_alone_check
    CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z') NOT VALID;

-- No query reads running runs in the order of their limits: a ticker judges those of its own host by the uptime. Each run
-- writes one index entry less.
DROP INDEX runs_running_until;

-- For the tick, which counts guilty tasks by function. Nearly always empty.
CREATE INDEX tasks_alone ON tasks (alone_until) WHERE alone_until IS NOT NULL;
