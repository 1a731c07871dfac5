-- Removes the outcome `interrupted`: such runs become `lost`.
UPDATE runs SET outcome = 'lost' WHERE outcome = 'interrupted';
UPDATE tasks SET last_outcome = 'lost' WHERE last_outcome = 'interrupted';
CREATE INDEX runs_running_until ON runs (until) WHERE state = 'running';
ALTER TABLE tasks DROP COLUMN alone_until, DROP COLUMN share;
DROP DOMAIN ticker_alone;
ALTER TABLE functions DROP COLUMN concurrency, DROP COLUMN repeatable, DROP COLUMN halved_to, DROP COLUMN halved_until;
UPDATE functions SET batch = 100 WHERE batch > 100;
ALTER DOMAIN ticker_outcome DROP CONSTRAINT ticker_outcome_check;
ALTER DOMAIN ticker_outcome ADD CONSTRAINT ticker_outcome_check CHECK (VALUE IN (
    'succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'dropped'));
ALTER DOMAIN ticker_batch DROP CONSTRAINT ticker_batch_check;
ALTER DOMAIN ticker_batch ADD CONSTRAINT ticker_batch_check CHECK (VALUE BETWEEN 1 AND 100);
