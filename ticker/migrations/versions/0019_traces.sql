-- Traces of runs, for OpenTelemetry.

-- The domain gets its CHECK after the column exists. Otherwise, PostgreSQL would rewrite the whole table.
CREATE DOMAIN ticker_traceparent AS text;
-- The trace context in which a manual run was requested, as W3C's `traceparent`; its retries and pieces have it, too.
ALTER TABLE runs
    ADD COLUMN traceparent ticker_traceparent;
ALTER DOMAIN ticker_traceparent ADD CONSTRAINT ticker_traceparent_check CHECK (length(VALUE) <= 200) NOT VALID;

-- The traces of runs that ended before this instant are exported.
ALTER TABLE installation
    ADD COLUMN traced_until ticker_moment;
