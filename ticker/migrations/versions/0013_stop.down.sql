-- Removes requests to stop runs. The reasons of runs that were stopped stay.
ALTER TABLE runs DROP COLUMN stop_requested_by, DROP COLUMN stop_requested_at;
DROP DOMAIN ticker_stop, ticker_stop_by;
