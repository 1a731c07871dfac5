-- Drops everything that 0010_schema.sql creates. record_of uses runs, and is dropped before it.
DROP FUNCTION record_of(bigint, timestamptz), micros(timestamptz), cluster_identifier();
DROP TABLE tasks, runs, events, notices, templates, functions, tickers, installation;
DROP FUNCTION note_change(), guard_owner(), note_edit(), note_deletion();
DROP DOMAIN ticker_plain, ticker_named, ticker_short, ticker_prose, ticker_words, ticker_output, ticker_moment, ticker_duration,
    ticker_span, ticker_box, ticker_grace, ticker_uptime, ticker_count, ticker_limit, ticker_intervals, ticker_max_runs,
    ticker_started, ticker_total, ticker_retries, ticker_priority, ticker_batch, ticker_kind, ticker_catch_up,
    ticker_overlap, ticker_keep, ticker_told, ticker_run_kind, ticker_state, ticker_outcome, ticker_what, ticker_object,
    ticker_registered, ticker_readable, ticker_template, ticker_batch_jobs;
