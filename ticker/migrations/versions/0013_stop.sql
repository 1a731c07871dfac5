-- Requests to stop a run. A tick carries them out.

-- The domains get their CHECKs after the columns exist. Otherwise, PostgreSQL would rewrite the whole table.
CREATE DOMAIN ticker_stop AS timestamptz;
CREATE DOMAIN ticker_stop_by AS text;
-- Who asked first to stop the run, and when.
ALTER TABLE runs
    ADD COLUMN stop_requested_by ticker_stop_by,
    ADD COLUMN stop_requested_at ticker_stop;
ALTER DOMAIN ticker_stop ADD CONSTRAINT ticker_stop_check
    CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z') NOT VALID;
ALTER DOMAIN ticker_stop_by ADD CONSTRAINT ticker_stop_by_check CHECK (length(VALUE) <= 200) NOT VALID;

-- The ticker: runs that are to be stopped. Nearly always empty.
CREATE INDEX runs_to_stop ON runs (id) WHERE stop_requested_by IS NOT NULL AND state <> 'ended';
