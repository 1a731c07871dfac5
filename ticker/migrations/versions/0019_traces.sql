-- Traces of runs, for OpenTelemetry.

-- The trace context in which a manual run was requested, as W3C's `traceparent`; its retries and pieces have it, too.
ALTER TABLE runs
    ADD COLUMN traceparent text;

-- The traces of runs that ended before this instant are exported.
ALTER TABLE installation
    ADD COLUMN traced_until ticker_moment;
