-- Domains. A rule about one value is a domain, which PostgreSQL checks when the value changes. A rule between columns
-- is a CHECK, which it checks for each row that is written. With CHECKs alone, a start and its end took 1.7 times as
-- long. So the database enforces the rules, too, and a row edited by hand cannot break them. Durations are whole
-- milliseconds. Times are finite.
--
-- The search_path finds bare names in our schema. The words in braces are replaced by the schema's quoted name and by
-- TICKER_ENVIRONMENT.

-- Texts.
CREATE DOMAIN ticker_plain AS text CHECK (length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN ticker_named AS text CHECK (VALUE <> '' AND length(VALUE) <= 200 AND VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN ticker_short AS text CHECK (length(VALUE) <= 200);
CREATE DOMAIN ticker_prose AS text CHECK (length(VALUE) <= 2000);
CREATE DOMAIN ticker_words AS text CHECK (length(VALUE) <= 10000);
CREATE DOMAIN ticker_output AS text CHECK (length(VALUE) <= 100000);

-- A key of limits, or a pattern of keys, which ends with an asterisk. Neither contains spaces or commas.
CREATE DOMAIN ticker_key AS text CHECK (VALUE ~ '^[-!-)+.-~]{0,199}[-!-+.-~]$');
-- One or two different keys.
CREATE DOMAIN ticker_keys AS text[] CHECK (
    cardinality(VALUE) IN (1, 2) AND array_ndims(VALUE) = 1 AND array_lower(VALUE, 1) = 1
    AND array_position(VALUE, NULL) IS NULL AND VALUE[1] ~ '^[-!-)+.-~]{1,200}$'
    AND (cardinality(VALUE) = 1 OR (VALUE[2] ~ '^[-!-)+.-~]{1,200}$' AND VALUE[1] <> VALUE[2])));
CREATE DOMAIN ticker_queues AS text[] CHECK (octet_length(VALUE::text) <= 1000000);

-- Times.
CREATE DOMAIN ticker_moment AS timestamptz CHECK (VALUE BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z');
CREATE DOMAIN ticker_duration AS bigint CHECK (VALUE BETWEEN 0 AND 31622400000);
CREATE DOMAIN ticker_span AS bigint CHECK (VALUE BETWEEN 1000 AND 31622400000);
CREATE DOMAIN ticker_box AS bigint CHECK (VALUE BETWEEN 100 AND 31622400000);
CREATE DOMAIN ticker_grace AS bigint CHECK (VALUE BETWEEN 1 AND 1000);
-- Microseconds of less than a hundred years, so that no difference overflows.
CREATE DOMAIN ticker_uptime AS bigint CHECK (VALUE BETWEEN 0 AND 3153600000000000);

-- Numbers.
CREATE DOMAIN ticker_count AS integer CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE DOMAIN ticker_limit AS integer CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN ticker_intervals AS integer CHECK (VALUE BETWEEN 1 AND 1000000);
CREATE DOMAIN ticker_max_runs AS integer CHECK (VALUE BETWEEN 1 AND 1000000000);
CREATE DOMAIN ticker_started AS integer CHECK (VALUE >= 0);
CREATE DOMAIN ticker_total AS bigint CHECK (VALUE BETWEEN 0 AND 1000000000000000);
CREATE DOMAIN ticker_retries AS integer CHECK (VALUE BETWEEN 0 AND 100);
CREATE DOMAIN ticker_priority AS integer CHECK (VALUE BETWEEN -1000 AND 1000);
CREATE DOMAIN ticker_limited AS integer CHECK (VALUE BETWEEN 1 AND 10000);
CREATE DOMAIN ticker_batch AS integer CHECK (VALUE BETWEEN 1 AND 1000);

-- Words.
CREATE DOMAIN ticker_kind AS text CHECK (VALUE IN ('interval', 'cron', 'calendar', 'once'));
CREATE DOMAIN ticker_catch_up AS text CHECK (VALUE IN ('one', 'none'));
CREATE DOMAIN ticker_overlap AS text CHECK (VALUE IN ('queue', 'skip'));
CREATE DOMAIN ticker_keep AS text CHECK (VALUE IN ('all', 'problems', 'none'));
CREATE DOMAIN ticker_told AS text CHECK (VALUE IN ('', 'failed'));
CREATE DOMAIN ticker_run_kind AS text CHECK (VALUE IN ('scheduled', 'manual', 'retry', 'piece'));
CREATE DOMAIN ticker_state AS text CHECK (VALUE IN ('planned', 'pushed', 'running', 'processing', 'ended'));
CREATE DOMAIN ticker_outcome AS text CHECK (VALUE IN (
    'succeeded', 'partial', 'nothing_to_do', 'failed', 'timed_out', 'killed', 'lost', 'interrupted', 'slowed_down',
    'dropped'));
CREATE DOMAIN ticker_what AS text CHECK (VALUE IN (
    'paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'edited', 'deleted',
    'slowed', 'restored', 'failed', 'recovered', 'dead_man', 'redelivered', 'end_recorded_late', 'stale', 'adopted',
    'unknown_function', 'enough_jobs', 'expired', 'host_lost', 'group_too_large'));

-- JSON that Python can read: not nested too deeply, and without numbers that do not fit a double (such as 1e5000). One
-- row that cannot be read would break every query that returns it with others. A short text has neither problem, so its
-- length is checked first. `registered` holds the arguments one level deeper.
CREATE DOMAIN ticker_object AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'))));
CREATE DOMAIN ticker_registered AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 262144
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)'))));
CREATE DOMAIN ticker_readable AS jsonb CHECK (
    octet_length(VALUE::text) <= 500 OR (octet_length(VALUE::text) <= 65536
        AND NOT jsonb_path_exists(VALUE, '$.**{252}')
        AND NOT jsonb_path_exists(VALUE, '$.** ? (@.type() == "number" && (@.double() >= 0) is unknown)')));
CREATE DOMAIN ticker_template AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 524288);
-- An object of texts, without nested values or numbers: the job id of each of up to 10,000 waiting occurrences.
CREATE DOMAIN ticker_batch_jobs AS jsonb CHECK (jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 1048576
    AND NOT jsonb_path_exists(VALUE, '$.* ? (@.type() != "string")'));
