-- Drops all that the revisions create. Functions whose bodies PostgreSQL has parsed depend on tables, and are dropped before them.
DROP FUNCTION record_of(bigint, timestamptz), limit_keys(text[]), take_slots(text[], uuid, interval, timestamptz, text, bigint);
DROP TABLE tasks, runs, events, notices, templates, functions, tickers, installation, limits, limited_keys, slots, pauses,
    minutes, hours, ticker_version;
DROP AGGREGATE sum_counts(integer[]);
DROP FUNCTION micros(timestamptz), cluster_identifier(), note_change(), guard_owner(), note_edit(), note_deletion(),
    is_limit_of(text, text), apply_limit(), use_keys(), words_of_pause(text, text), note_pause(), guard_pause(),
    note_worker(text, text, boolean, text, timestamptz, interval),
    leave_pause(), note_waits_again(), add_counts(integer[], integer[]);
DROP DOMAIN ticker_plain, ticker_named, ticker_short, ticker_prose, ticker_words, ticker_output, ticker_key, ticker_keys,
    ticker_queues, ticker_moment, ticker_duration, ticker_span, ticker_box, ticker_grace, ticker_uptime, ticker_count,
    ticker_limit, ticker_intervals, ticker_max_runs, ticker_started, ticker_total, ticker_retries, ticker_priority,
    ticker_limited, ticker_batch, ticker_kind, ticker_catch_up, ticker_overlap, ticker_keep, ticker_told, ticker_run_kind,
    ticker_state, ticker_outcome, ticker_what, ticker_object, ticker_registered, ticker_readable, ticker_template,
    ticker_batch_jobs;
