-- Removes what traces need.
ALTER TABLE installation DROP COLUMN traced_until;
ALTER TABLE runs DROP COLUMN traceparent;
DROP DOMAIN ticker_traceparent;
