-- SHA-256 of the SQL of 0002_paused: d8bf3f5c0b1f3077911f9b104eba28829dfb015e326a4d2eff6d50733a4a3ec1
SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA ticker;
CREATE DOMAIN ticker.ticker_batch AS integer
	CONSTRAINT ticker_batch_check CHECK (((VALUE >= 1) AND (VALUE <= 1000)));
CREATE DOMAIN ticker.ticker_batch_jobs AS jsonb
	CONSTRAINT ticker_batch_jobs_check CHECK (((jsonb_typeof(VALUE) = 'object'::text) AND (octet_length((VALUE)::text) <= 1048576) AND (NOT jsonb_path_exists(VALUE, '$.*?(@.type() != "string")'::jsonpath))));
CREATE DOMAIN ticker.ticker_box AS bigint
	CONSTRAINT ticker_box_check CHECK (((VALUE >= 100) AND (VALUE <= '31622400000'::bigint)));
CREATE DOMAIN ticker.ticker_catch_up AS text
	CONSTRAINT ticker_catch_up_check CHECK ((VALUE = ANY (ARRAY['one'::text, 'none'::text])));
CREATE DOMAIN ticker.ticker_count AS integer
	CONSTRAINT ticker_count_check CHECK (((VALUE >= 0) AND (VALUE <= 1000000)));
CREATE DOMAIN ticker.ticker_duration AS bigint
	CONSTRAINT ticker_duration_check CHECK (((VALUE >= 0) AND (VALUE <= '31622400000'::bigint)));
CREATE DOMAIN ticker.ticker_grace AS bigint
	CONSTRAINT ticker_grace_check CHECK (((VALUE >= 1) AND (VALUE <= 1000)));
CREATE DOMAIN ticker.ticker_intervals AS integer
	CONSTRAINT ticker_intervals_check CHECK (((VALUE >= 1) AND (VALUE <= 1000000)));
CREATE DOMAIN ticker.ticker_keep AS text
	CONSTRAINT ticker_keep_check CHECK ((VALUE = ANY (ARRAY['all'::text, 'problems'::text, 'none'::text])));
CREATE DOMAIN ticker.ticker_key AS text
	CONSTRAINT ticker_key_check CHECK ((VALUE ~ '^[-!-)+.-~]{0,199}[-!-+.-~]$'::text));
CREATE DOMAIN ticker.ticker_keys AS text[]
	CONSTRAINT ticker_keys_check CHECK (((cardinality(VALUE) = ANY (ARRAY[1, 2])) AND (array_ndims(VALUE) = 1) AND (array_lower(VALUE, 1) = 1) AND (array_position(VALUE, NULL::text) IS NULL) AND ((VALUE)[1] ~ '^[-!-)+.-~]{1,200}$'::text) AND ((cardinality(VALUE) = 1) OR (((VALUE)[2] ~ '^[-!-)+.-~]{1,200}$'::text) AND ((VALUE)[1] <> (VALUE)[2])))));
CREATE DOMAIN ticker.ticker_kind AS text
	CONSTRAINT ticker_kind_check CHECK ((VALUE = ANY (ARRAY['interval'::text, 'cron'::text, 'calendar'::text, 'once'::text])));
CREATE DOMAIN ticker.ticker_limit AS integer
	CONSTRAINT ticker_limit_check CHECK (((VALUE >= 1) AND (VALUE <= 1000000)));
CREATE DOMAIN ticker.ticker_limited AS integer
	CONSTRAINT ticker_limited_check CHECK (((VALUE >= 1) AND (VALUE <= 10000)));
CREATE DOMAIN ticker.ticker_max_runs AS integer
	CONSTRAINT ticker_max_runs_check CHECK (((VALUE >= 1) AND (VALUE <= 1000000000)));
CREATE DOMAIN ticker.ticker_moment AS timestamp with time zone
	CONSTRAINT ticker_moment_check CHECK (((VALUE >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (VALUE <= '9999-12-31 00:00:00+00'::timestamp with time zone)));
CREATE DOMAIN ticker.ticker_named AS text
	CONSTRAINT ticker_named_check CHECK (((VALUE <> ''::text) AND (length(VALUE) <= 200) AND (VALUE !~ '[[:cntrl:]]'::text)));
CREATE DOMAIN ticker.ticker_object AS jsonb
	CONSTRAINT ticker_object_check CHECK (((jsonb_typeof(VALUE) = 'object'::text) AND ((octet_length((VALUE)::text) <= 500) OR ((octet_length((VALUE)::text) <= 65536) AND (NOT jsonb_path_exists(VALUE, '$.**{252}'::jsonpath)) AND (NOT jsonb_path_exists(VALUE, '$.**?(@.type() == "number" && (@.double() >= 0) is unknown)'::jsonpath))))));
CREATE DOMAIN ticker.ticker_outcome AS text
	CONSTRAINT ticker_outcome_check CHECK ((VALUE = ANY (ARRAY['succeeded'::text, 'partial'::text, 'nothing_to_do'::text, 'failed'::text, 'timed_out'::text, 'killed'::text, 'lost'::text, 'interrupted'::text, 'slowed_down'::text, 'dropped'::text])));
CREATE DOMAIN ticker.ticker_output AS text
	CONSTRAINT ticker_output_check CHECK ((length(VALUE) <= 100000));
CREATE DOMAIN ticker.ticker_overlap AS text
	CONSTRAINT ticker_overlap_check CHECK ((VALUE = ANY (ARRAY['queue'::text, 'skip'::text])));
CREATE DOMAIN ticker.ticker_plain AS text
	CONSTRAINT ticker_plain_check CHECK (((length(VALUE) <= 200) AND (VALUE !~ '[[:cntrl:]]'::text)));
CREATE DOMAIN ticker.ticker_priority AS integer
	CONSTRAINT ticker_priority_check CHECK (((VALUE >= '-1000'::integer) AND (VALUE <= 1000)));
CREATE DOMAIN ticker.ticker_prose AS text
	CONSTRAINT ticker_prose_check CHECK ((length(VALUE) <= 2000));
CREATE DOMAIN ticker.ticker_queues AS text[]
	CONSTRAINT ticker_queues_check CHECK ((octet_length((VALUE)::text) <= 1000000));
CREATE DOMAIN ticker.ticker_readable AS jsonb
	CONSTRAINT ticker_readable_check CHECK (((octet_length((VALUE)::text) <= 500) OR ((octet_length((VALUE)::text) <= 65536) AND (NOT jsonb_path_exists(VALUE, '$.**{252}'::jsonpath)) AND (NOT jsonb_path_exists(VALUE, '$.**?(@.type() == "number" && (@.double() >= 0) is unknown)'::jsonpath)))));
CREATE DOMAIN ticker.ticker_registered AS jsonb
	CONSTRAINT ticker_registered_check CHECK (((jsonb_typeof(VALUE) = 'object'::text) AND ((octet_length((VALUE)::text) <= 500) OR ((octet_length((VALUE)::text) <= 262144) AND (NOT jsonb_path_exists(VALUE, '$.**{252}'::jsonpath)) AND (NOT jsonb_path_exists(VALUE, '$.**?(@.type() == "number" && (@.double() >= 0) is unknown)'::jsonpath))))));
CREATE DOMAIN ticker.ticker_retries AS integer
	CONSTRAINT ticker_retries_check CHECK (((VALUE >= 0) AND (VALUE <= 100)));
CREATE DOMAIN ticker.ticker_run_kind AS text
	CONSTRAINT ticker_run_kind_check CHECK ((VALUE = ANY (ARRAY['scheduled'::text, 'manual'::text, 'retry'::text, 'piece'::text])));
CREATE DOMAIN ticker.ticker_short AS text
	CONSTRAINT ticker_short_check CHECK ((length(VALUE) <= 200));
CREATE DOMAIN ticker.ticker_span AS bigint
	CONSTRAINT ticker_span_check CHECK (((VALUE >= 1000) AND (VALUE <= '31622400000'::bigint)));
CREATE DOMAIN ticker.ticker_started AS integer
	CONSTRAINT ticker_started_check CHECK ((VALUE >= 0));
CREATE DOMAIN ticker.ticker_state AS text
	CONSTRAINT ticker_state_check CHECK ((VALUE = ANY (ARRAY['planned'::text, 'pushed'::text, 'running'::text, 'processing'::text, 'ended'::text])));
CREATE DOMAIN ticker.ticker_template AS jsonb
	CONSTRAINT ticker_template_check CHECK (((jsonb_typeof(VALUE) = 'object'::text) AND (octet_length((VALUE)::text) <= 524288)));
CREATE DOMAIN ticker.ticker_told AS text
	CONSTRAINT ticker_told_check CHECK ((VALUE = ANY (ARRAY[''::text, 'failed'::text])));
CREATE DOMAIN ticker.ticker_total AS bigint
	CONSTRAINT ticker_total_check CHECK (((VALUE >= 0) AND (VALUE <= '1000000000000000'::bigint)));
CREATE DOMAIN ticker.ticker_uptime AS bigint
	CONSTRAINT ticker_uptime_check CHECK (((VALUE >= 0) AND (VALUE <= '3153600000000000'::bigint)));
CREATE DOMAIN ticker.ticker_what AS text
	CONSTRAINT ticker_what_check CHECK ((VALUE = ANY (ARRAY['paused'::text, 'auto_paused'::text, 'resumed'::text, 'disabled'::text, 'enabled'::text, 'owner_inactive'::text, 'owner_active'::text, 'edited'::text, 'deleted'::text, 'slowed'::text, 'restored'::text, 'failed'::text, 'recovered'::text, 'dead_man'::text, 'redelivered'::text, 'end_recorded_late'::text, 'stale'::text, 'adopted'::text, 'unknown_function'::text, 'enough_jobs'::text, 'expired'::text, 'host_lost'::text, 'group_too_large'::text])));
CREATE DOMAIN ticker.ticker_words AS text
	CONSTRAINT ticker_words_check CHECK ((length(VALUE) <= 10000));
CREATE FUNCTION ticker.add_counts(one integer[], other integer[]) RETURNS integer[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT COALESCE(array_agg((COALESCE(u.a, 0) + COALESCE(u.b, 0)) ORDER BY u.n), '{}'::integer[]) AS "coalesce" FROM UNNEST(add_counts.one, add_counts.other) WITH ORDINALITY u(a, b, n));
CREATE FUNCTION ticker.apply_limit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM "ticker".limit_keys(ARRAY(SELECT k.key FROM "ticker".limited_keys k
        WHERE "ticker".is_limit_of(OLD.key, k.key) OR "ticker".is_limit_of(NEW.key, k.key)));
    RETURN NULL;
END $$;
CREATE FUNCTION ticker.cluster_identifier() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$;
CREATE FUNCTION ticker.guard_owner() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    hash text := left(encode(sha256(convert_to(NEW.owner_type, 'UTF8')), 'hex'), 32);
    guard text := 'owner_guard_' || hash;
    named text := 'owner_named_' || hash;
    known text[] := ARRAY(SELECT proname FROM pg_proc WHERE pronamespace = '"ticker"'::regnamespace AND prosecdef
        AND pronargs = 1 AND proargtypes[0] = 'text'::regtype AND proname IN (guard, named));
BEGIN
    IF guard = ANY (known) THEN
        EXECUTE format('SELECT "ticker".%I($1)', guard) INTO NEW.owner_active USING NEW.owner_id::text;
        IF NEW.owner_active IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    IF named = ANY (known) THEN
        EXECUTE format('SELECT "ticker".%I($1)', named) INTO NEW.subject USING NEW.owner_id::text;
    END IF;
    RETURN NEW;
END $_$;
CREATE FUNCTION ticker.guard_pause() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT has_column_privilege(TG_RELID, 'reason', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = format(
            'the role %s may not pause or resume %s: that needs the right to update pauses.reason',
            current_user, "ticker".words_of_pause(NEW.scope, NEW.value));
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION ticker.is_limit_of(declared text, key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((declared = key) OR ((declared ~~ '%*'::text) AND starts_with(key, rtrim(declared, '*'::text))));
CREATE FUNCTION ticker.leave_pause() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM "ticker".pauses WHERE id = OLD.pause_id AND resumed_at IS NULL) THEN
        NEW.pause_id := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TABLE ticker.limited_keys (
    key ticker.ticker_key NOT NULL,
    limited_by ticker.ticker_key,
    concurrency ticker.ticker_limited,
    burst ticker.ticker_limited,
    token_us bigint,
    closed_until ticker.ticker_moment,
    closed_at ticker.ticker_moment,
    closed_step integer DEFAULT 0 NOT NULL,
    allowed ticker.ticker_limited,
    CONSTRAINT limited_keys_rate CHECK (((burst IS NULL) = (token_us IS NULL)))
);
CREATE TABLE ticker.limits (
    key ticker.ticker_key NOT NULL,
    concurrency ticker.ticker_limited,
    rate integer,
    period_ms ticker.ticker_span,
    burst ticker.ticker_limited,
    by ticker.ticker_short DEFAULT ''::text NOT NULL,
    updated_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    declared_in ticker.ticker_prose DEFAULT ''::text NOT NULL,
    registered ticker.ticker_registered DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT limits_any CHECK (((concurrency IS NOT NULL) OR (rate IS NOT NULL))),
    CONSTRAINT limits_rate CHECK ((((rate IS NULL) = (period_ms IS NULL)) AND ((rate IS NULL) = (burst IS NULL)) AND ((rate >= 1) AND (rate <= 1000000)) AND ((burst)::integer <= rate)))
);
CREATE TABLE ticker.slots (
    key ticker.ticker_key NOT NULL,
    kind text NOT NULL,
    n integer NOT NULL,
    token uuid,
    until ticker.ticker_moment,
    took_ms integer,
    CONSTRAINT slots_kind CHECK ((kind = ANY (ARRAY['run'::text, 'start'::text]))),
    CONSTRAINT slots_token CHECK (((kind = 'run'::text) OR (token IS NULL)))
)
WITH (fillfactor='50');
CREATE FUNCTION ticker.limit_keys(wanted text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    BEGIN ATOMIC
 INSERT INTO ticker.limited_keys AS k (key, limited_by, concurrency, burst, token_us)  SELECT w.key,
             l.key,
             l.concurrency,
             l.burst,
             (ceil((((((l.burst)::integer * (l.period_ms)::bigint))::numeric * 1000.0) / (l.rate)::numeric)))::bigint AS ceil
            FROM (( SELECT DISTINCT unnest(limit_keys.wanted) AS key) w
              LEFT JOIN LATERAL ( SELECT limits.key,
                     limits.concurrency,
                     limits.rate,
                     limits.period_ms,
                     limits.burst,
                     limits.by,
                     limits.updated_at,
                     limits.declared_in,
                     limits.registered
                    FROM ticker.limits
                   WHERE ticker.is_limit_of((limits.key)::text, w.key)
                   ORDER BY ((limits.key)::text = w.key) DESC, (length((limits.key)::text)) DESC
                  LIMIT 1) l ON (true))
           WHERE (NOT (EXISTS ( SELECT
                    FROM ticker.limited_keys same
                   WHERE (((same.key)::text = w.key) AND (NOT (((same.limited_by)::text IS DISTINCT FROM (l.key)::text) OR ((same.concurrency)::integer IS DISTINCT FROM (l.concurrency)::integer) OR ((same.burst)::integer IS DISTINCT FROM (l.burst)::integer) OR (same.token_us IS DISTINCT FROM (ceil((((((l.burst)::integer * (l.period_ms)::bigint))::numeric * 1000.0) / (l.rate)::numeric)))::bigint)))))))
           ORDER BY w.key ON CONFLICT(key) DO UPDATE SET limited_by = excluded.limited_by, concurrency = excluded.concurrency, burst = excluded.burst, token_us = excluded.token_us;
 INSERT INTO ticker.slots (key, kind, n)  SELECT k.key,
             one.kind,
             n.n
            FROM ticker.limited_keys k,
             LATERAL ( VALUES ('run'::text,k.concurrency), ('start'::text,k.burst)) one(kind, size),
             LATERAL generate_series(1,
                 CASE
                     WHEN (cardinality(limit_keys.wanted) > 1000) THEN 0
                     WHEN ((one.size)::integer > 10) THEN 10
                     ELSE (one.size)::integer
                 END) n(n)
           WHERE ((k.key)::text = ANY (limit_keys.wanted))
           ORDER BY k.key, one.kind, n.n ON CONFLICT DO NOTHING;
 UPDATE ticker.slots s SET until = (clock_timestamp() + ((k.token_us)::double precision * '00:00:00.000001'::interval))
    FROM ticker.limited_keys k
   WHERE (((k.key)::text = ANY (limit_keys.wanted)) AND ((s.key)::text = (k.key)::text) AND (s.kind = 'start'::text) AND ((s.until)::timestamp with time zone > (clock_timestamp() + ((k.token_us)::double precision * '00:00:00.000001'::interval))));
END;
CREATE FUNCTION ticker.micros(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((EXTRACT(epoch FROM at) * (1000000)::numeric))::bigint)::text;
CREATE FUNCTION ticker.note_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE event text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed'
            WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
    WHEN NEW.enabled <> OLD.enabled THEN CASE WHEN NEW.enabled THEN 'enabled' ELSE 'disabled' END
    WHEN NEW.owner_active THEN 'owner_active' ELSE 'owner_inactive' END;
    is_pause boolean := event IN ('paused', 'auto_paused');
BEGIN
    IF NEW.enabled AND NEW.owner_active AND NEW.paused_by IS NULL THEN
        NEW.resumed_at := clock_timestamp();
    END IF;
    -- that it pauses itself once more is no news, until it has worked again
    INSERT INTO "ticker".events (task_id, task_name, function, owner_type, owner_id, what, by, words, told)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, event,
        CASE WHEN is_pause THEN coalesce(NEW.paused_by, '')
            ELSE left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200) END,
        CASE WHEN event = 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, ''))
            WHEN is_pause THEN NEW.paused_reason ELSE '' END,
        event = 'auto_paused' AND EXISTS (SELECT FROM "ticker".events e WHERE e.task_id = NEW.id AND e.what = event
            AND e.id > coalesce(
                (SELECT max(id) FROM "ticker".events WHERE task_id = NEW.id AND what = 'recovered'), 0));
    RETURN NEW;
END $$;
CREATE FUNCTION ticker.note_deletion() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO "ticker".events (at, task_id, task_name, function, owner_type, owner_id, what, by, told)
    SELECT now, id, name, function, owner_type, owner_id, 'deleted',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true
    FROM gone ORDER BY id;
    INSERT INTO "ticker".runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, queue)
    SELECT id, name, function, owner_type, owner_id, 'scheduled', occurrence, 'ended', 'dropped', 'gone',
        now, now, queue
    FROM gone, unnest(waiting || array_remove(ARRAY[waits_again]::timestamptz[], NULL)) AS occurrence
    ORDER BY occurrence, id ON CONFLICT DO NOTHING;
    UPDATE "ticker".runs SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = now
    WHERE state IN ('planned', 'pushed') AND id = ANY (ARRAY(SELECT r.id FROM gone g, LATERAL (
        SELECT id FROM "ticker".runs WHERE task_id = g.id AND state IN ('planned', 'pushed')
            AND NOT (kind = 'piece' AND attempt = 1 AND state = 'planned') OFFSET 0) r));
    RETURN NULL;
END $$;
CREATE FUNCTION ticker.note_edit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    AS $_$
DECLARE before jsonb := to_jsonb(OLD); after jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO "ticker".events (task_id, task_name, function, owner_type, owner_id, what, by, told, words)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, 'edited',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true,
        string_agg(CASE WHEN field IN ('kwargs', 'metadata') THEN field || ' changed' ELSE
            regexp_replace(field, '_(ms|at|name)$', '') || ': ' || (SELECT string_agg(coalesce(nullif(CASE
                WHEN field NOT LIKE '%\_ms' THEN left(v, 60) || CASE WHEN length(v) > 60 THEN '…' ELSE '' END
                ELSE concat(nullif(v::bigint / 86400000, 0) || 'd', nullif(v::bigint / 3600000 % 24, 0) || 'h',
                    nullif(v::bigint / 60000 % 60, 0) || 'm', nullif(v::bigint / 1000 % 60, 0) || 's',
                    nullif(v::bigint % 1000, 0) || 'ms') END, ''), 'none'), ' -> ' ORDER BY m)
            FROM (VALUES (1, before ->> field), (2, after ->> field)) AS one (m, v)) END, ', ' ORDER BY n)
    FROM regexp_split_to_table(TG_ARGV[0], '\W+') WITH ORDINALITY AS f (field, n)
    WHERE before -> field <> after -> field;
    RETURN NULL;
END $_$;
CREATE FUNCTION ticker.note_pause() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO "ticker".events (task_id, what, by, words)
    VALUES (0, CASE WHEN NEW.resumed_at IS NULL THEN 'paused' ELSE 'resumed' END,
        left(CASE WHEN NEW.resumed_at IS NULL THEN NEW."by" ELSE NEW.resumed_by END, 200),
        concat_ws(': ', "ticker".words_of_pause(NEW.scope, NEW.value), nullif(NEW.reason, '')));
    RETURN NULL;
END $$;
CREATE FUNCTION ticker.note_waits_again() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE added integer := 0;
BEGIN
    IF NOT OLD.waits_again = ANY (NEW.waiting) THEN
        INSERT INTO "ticker".runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
            reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, queue)
        SELECT OLD.id, OLD.name, OLD.function, OLD.owner_type, OLD.owner_id, 'scheduled', OLD.waits_again, 'ended',
            'dropped', 'superseded', now, now, OLD.last_run, now, OLD.every_ms, OLD.tolerance_ms, OLD.queue
        FROM (SELECT clock_timestamp() AS now) i
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS added = ROW_COUNT;
    END IF;
    NEW.dropped := NEW.dropped + added;
    NEW.waits_again := nullif(NEW.waits_again, OLD.waits_again);
    NEW.wait_reason := CASE WHEN NEW.waits_again IS NOT NULL THEN NEW.wait_reason END;
    RETURN NEW;
END $$;
CREATE FUNCTION ticker.note_worker(function text, queue text, knows_it boolean, worker text, at timestamp with time zone, pause interval) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF knows_it THEN
        UPDATE "ticker".pauses p SET resumed_at = at, resumed_by = left(worker, 200) FROM (
            SELECT p.id FROM "ticker".pauses p WHERE p.scope = 'unknown' AND p.value = function AND p.of_queue = queue
                AND p.resumed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) o
        WHERE p.id = o.id;
    ELSIF pg_try_advisory_xact_lock('"ticker".pauses'::regclass::oid::bigint) THEN
        INSERT INTO "ticker".pauses (scope, value, of_queue, by, reason, paused_at)
        SELECT 'unknown', function, queue, left(worker, 200), 'a worker did not know it', at WHERE NOT EXISTS (
            SELECT FROM "ticker".pauses p WHERE p.scope = 'unknown' AND p.value = function AND p.of_queue = queue
                AND p.resumed_by <> 'ticker' AND p.resumed_at BETWEEN at - pause AND at)
        ON CONFLICT DO NOTHING;
    END IF;
END $$;
CREATE TABLE ticker.runs (
    id bigint NOT NULL,
    task_id bigint NOT NULL,
    task_name ticker.ticker_short DEFAULT ''::text NOT NULL,
    function ticker.ticker_short DEFAULT ''::text NOT NULL,
    owner_type ticker.ticker_short DEFAULT ''::text NOT NULL,
    owner_id ticker.ticker_short DEFAULT ''::text NOT NULL,
    kind ticker.ticker_run_kind NOT NULL,
    parent_id bigint,
    item ticker.ticker_readable,
    occurrence ticker.ticker_moment,
    attempt integer DEFAULT 1 NOT NULL,
    state ticker.ticker_state NOT NULL,
    outcome ticker.ticker_outcome,
    reason ticker.ticker_prose DEFAULT ''::text NOT NULL,
    token uuid,
    due_at ticker.ticker_moment,
    pushed_at ticker.ticker_moment,
    started_at ticker.ticker_moment,
    until ticker.ticker_moment,
    boot ticker.ticker_short,
    uptime_us ticker.ticker_uptime,
    ended_at ticker.ticker_moment,
    created_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    checked_last_run ticker.ticker_moment,
    checked_at ticker.ticker_moment,
    every_ms ticker.ticker_duration,
    tolerance_ms ticker.ticker_duration,
    result ticker.ticker_readable,
    output ticker.ticker_output DEFAULT ''::text NOT NULL,
    error_output ticker.ticker_output DEFAULT ''::text NOT NULL,
    traceback ticker.ticker_output DEFAULT ''::text NOT NULL,
    worker ticker.ticker_prose DEFAULT ''::text NOT NULL,
    host ticker.ticker_short DEFAULT ''::text NOT NULL,
    pid integer,
    job_id ticker.ticker_prose DEFAULT ''::text NOT NULL,
    follow_up boolean DEFAULT false NOT NULL,
    retried boolean DEFAULT false NOT NULL,
    pieces integer,
    stop_requested_by ticker.ticker_short,
    stop_requested_at ticker.ticker_moment,
    queue ticker.ticker_short DEFAULT ''::text NOT NULL,
    traceparent ticker.ticker_short,
    CONSTRAINT runs_dropped CHECK ((((outcome)::text <> 'dropped'::text) OR ((reason)::text <> ''::text))),
    CONSTRAINT runs_ended CHECK (((((state)::text = 'ended'::text) = (outcome IS NOT NULL)) AND (((state)::text = 'ended'::text) = (ended_at IS NOT NULL)))),
    CONSTRAINT runs_occurrence CHECK ((((kind)::text <> 'scheduled'::text) OR (occurrence IS NOT NULL))),
    CONSTRAINT runs_piece CHECK ((((kind)::text <> 'piece'::text) OR (parent_id IS NOT NULL))),
    CONSTRAINT runs_planned CHECK ((((state)::text <> 'planned'::text) OR (due_at IS NOT NULL))),
    CONSTRAINT runs_running CHECK ((((state)::text <> 'running'::text) OR ((token IS NOT NULL) AND (started_at IS NOT NULL) AND (until IS NOT NULL)))),
    CONSTRAINT runs_uptime CHECK (((boot IS NULL) = (uptime_us IS NULL)))
);
CREATE FUNCTION ticker.record_of(task bigint, at timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT runs.id
    FROM ticker.runs
   WHERE ((runs.task_id = record_of.task) AND ((runs.occurrence)::timestamp with time zone = record_of.at) AND ((runs.kind)::text = 'scheduled'::text));
END;
CREATE FUNCTION ticker.take_slots(keys text[], token uuid, hold interval, at timestamp with time zone, boot text, uptime bigint) RETURNS ticker.slots
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
DECLARE missing "ticker".slots[];  -- with the numbers that the limits allow
BEGIN
    WITH needed AS MATERIALIZED (
        SELECT n.*, 1 + floor(random() * n.most)::integer AS first
        FROM unnest(keys) AS u (key), LATERAL (SELECT * FROM "ticker".limited_keys k WHERE k.key = u.key OFFSET 0) k, LATERAL (
            SELECT k.key, s.kind, s.span, k.closed_until, CASE WHEN k.closed_until > at THEN 0 ELSE s.most END AS most FROM (VALUES
                ('run', least(k.concurrency, k.allowed)::integer, hold),
                ('start', k.burst::integer, k.token_us * interval '1 microsecond')) AS s (kind, most, span)) n
        WHERE n.most IS NOT NULL
    ), found AS MATERIALIZED (
        SELECT w.*, f.n FROM needed w LEFT JOIN LATERAL (
            SELECT s.n FROM (VALUES (w.first, w.most), (1, w.first - 1)) AS half (low, high), LATERAL (
                SELECT s.n FROM "ticker".slots s WHERE s.key = w.key AND s.kind = w.kind AND s.n BETWEEN half.low AND half.high
                    AND (s.until IS NULL OR s.until <= at AND NOT EXISTS (
                        SELECT FROM "ticker".runs r WHERE r.token = s.token AND r.state = 'running' AND r.boot = take_slots.boot
                        AND (uptime - r.uptime_us) * interval '1 microsecond' BETWEEN interval '0' AND r.until - r.started_at OFFSET 0))
                ORDER BY s.n LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
            LIMIT 1) f ON true
    ), taken AS (
        UPDATE "ticker".slots s SET token = CASE s.kind WHEN 'run' THEN take_slots.token END, until = at + f.span
        FROM found f WHERE (s.key, s.kind, s.n) = (f.key, f.kind, f.n) AND NOT EXISTS (SELECT FROM found WHERE n IS NULL)
    )
    SELECT array_agg(ROW(f.key, f.kind, f.most, NULL, f.again, NULL)::"ticker".slots ORDER BY f.again DESC NULLS LAST) INTO missing FROM (
        SELECT f.*, coalesce(CASE WHEN f.closed_until > at THEN f.closed_until END, (SELECT min(s.until) FROM "ticker".slots s
            WHERE s.key = f.key AND s.kind = f.kind AND s.kind = 'start' AND s.n <= f.most AND s.until > at
            HAVING f.most <= count(*))) AS again FROM found f WHERE f.n IS NULL) f;
    IF missing IS NOT NULL AND pg_try_advisory_xact_lock('"ticker".slots'::regclass::oid::bigint) THEN
        INSERT INTO "ticker".slots (key, kind, n)
        SELECT m.key, m.kind, g.n FROM unnest(missing) AS m, LATERAL (
                SELECT max(s.n) AS last FROM "ticker".slots s WHERE s.key = m.key AND s.kind = m.kind) made,
            generate_series(coalesce(made.last, 0) + 1, least(greatest(2 * made.last, 10), m.n)) AS g (n)
        WHERE m.n > 0 ORDER BY m.key, m.kind, g.n ON CONFLICT DO NOTHING;
    END IF;
    RETURN missing[1];
END $$;
CREATE FUNCTION ticker.use_keys() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE missing text[];
BEGIN
    LOOP
        missing := ARRAY(SELECT unnest(NEW.limits) EXCEPT SELECT key::text FROM (
            SELECT key FROM "ticker".limited_keys WHERE key = ANY (NEW.limits) ORDER BY key FOR KEY SHARE) known);
        EXIT WHEN missing = '{}';
        LOCK TABLE "ticker".limits IN SHARE MODE;
        PERFORM "ticker".limit_keys(
            missing || string_to_array(coalesce(current_setting('ticker.keys', true), ''), ','));
    END LOOP;
    RETURN NULL;
END $$;
CREATE FUNCTION ticker.words_of_pause(scope text, value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE scope WHEN 'all'::text THEN 'all tasks'::text WHEN 'owner_type'::text THEN ('tasks of owners of type '::text || value) WHEN 'unknown'::text THEN ('tasks of the unknown function '::text || value) ELSE ((('tasks of the '::text || scope) || ' '::text) || value) END;
CREATE AGGREGATE ticker.sum_counts(integer[]) (
    SFUNC = ticker.add_counts,
    STYPE = integer[],
    INITCOND = '{}',
    PARALLEL = safe
);
CREATE TABLE ticker.events (
    id bigint NOT NULL,
    at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    task_id bigint NOT NULL,
    task_name ticker.ticker_short DEFAULT ''::text NOT NULL,
    function ticker.ticker_short DEFAULT ''::text NOT NULL,
    owner_type ticker.ticker_short DEFAULT ''::text NOT NULL,
    owner_id ticker.ticker_short DEFAULT ''::text NOT NULL,
    what ticker.ticker_what NOT NULL,
    by ticker.ticker_prose DEFAULT ''::text NOT NULL,
    words ticker.ticker_words DEFAULT ''::text NOT NULL,
    run_id bigint,
    told boolean DEFAULT false NOT NULL,
    count integer,
    until ticker.ticker_moment
);
ALTER TABLE ticker.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ticker.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE ticker.functions (
    name ticker.ticker_named NOT NULL,
    batch ticker.ticker_batch DEFAULT 1 NOT NULL,
    announced_at ticker.ticker_moment,
    concurrency ticker.ticker_batch DEFAULT 1 NOT NULL,
    repeatable boolean DEFAULT false NOT NULL,
    halved_to ticker.ticker_batch,
    halved_until ticker.ticker_moment,
    queues ticker.ticker_queues DEFAULT '{}'::text[] NOT NULL,
    mean_ms bigint,
    CONSTRAINT functions_mean_ms CHECK ((mean_ms > 0))
);
CREATE TABLE ticker.hours (
    at ticker.ticker_moment NOT NULL,
    function text DEFAULT ''::text NOT NULL,
    queue text NOT NULL,
    outcome text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    kind text DEFAULT ''::text NOT NULL,
    count integer DEFAULT 0 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    late_ms bigint DEFAULT 0 NOT NULL,
    took_ms bigint DEFAULT 0 NOT NULL,
    late integer[] DEFAULT '{}'::integer[] NOT NULL,
    took integer[] DEFAULT '{}'::integer[] NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer
);
CREATE TABLE ticker.installation (
    single boolean DEFAULT true NOT NULL,
    id text DEFAULT "left"((gen_random_uuid())::text, 8) NOT NULL,
    system_identifier bigint,
    database_oid oid NOT NULL,
    marker_oid oid NOT NULL,
    environment ticker.ticker_plain DEFAULT ''::text NOT NULL,
    created_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    adopted_at ticker.ticker_moment,
    counted_until ticker.ticker_moment,
    counted_twice_until ticker.ticker_moment,
    traced_until ticker.ticker_moment,
    taken_from ticker.ticker_queues DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT installation_id CHECK ((id ~ '^[a-z0-9]{8}$'::text)),
    CONSTRAINT installation_single CHECK (single)
);
CREATE TABLE ticker.minutes (
    at ticker.ticker_moment NOT NULL,
    function text DEFAULT ''::text NOT NULL,
    queue text NOT NULL,
    outcome text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    kind text DEFAULT ''::text NOT NULL,
    count integer DEFAULT 0 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    late_ms bigint DEFAULT 0 NOT NULL,
    took_ms bigint DEFAULT 0 NOT NULL,
    late integer[] DEFAULT '{}'::integer[] NOT NULL,
    took integer[] DEFAULT '{}'::integer[] NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer,
    demand ticker.ticker_registered
);
CREATE TABLE ticker.notices (
    event_id bigint NOT NULL,
    channel text NOT NULL,
    due_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    cause ticker.ticker_short DEFAULT ''::text NOT NULL,
    tasks integer DEFAULT 0 NOT NULL,
    paused integer DEFAULT 0 NOT NULL,
    sent_at ticker.ticker_moment
);
CREATE TABLE ticker.pauses (
    id bigint NOT NULL,
    scope text NOT NULL,
    value ticker.ticker_short DEFAULT ''::text NOT NULL,
    of_queue ticker.ticker_short DEFAULT ''::text NOT NULL,
    by ticker.ticker_short DEFAULT ''::text NOT NULL,
    reason ticker.ticker_prose DEFAULT ''::text NOT NULL,
    paused_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    until ticker.ticker_moment,
    resumed_at ticker.ticker_moment,
    resumed_by ticker.ticker_short DEFAULT ''::text NOT NULL,
    budget integer,
    granted_at ticker.ticker_moment,
    done_at ticker.ticker_moment,
    mark text GENERATED ALWAYS AS (
CASE scope
    WHEN 'all'::text THEN scope
    WHEN 'unknown'::text THEN ((((scope || ' '::text) || (of_queue)::text) || ' '::text) || (value)::text)
    ELSE ((scope || ' '::text) || (value)::text)
END) STORED NOT NULL,
    CONSTRAINT pauses_done CHECK (((done_at IS NULL) OR (resumed_at IS NOT NULL))),
    CONSTRAINT pauses_scope CHECK ((scope = ANY (ARRAY['all'::text, 'group'::text, 'function'::text, 'queue'::text, 'owner_type'::text, 'limit'::text, 'unknown'::text]))),
    CONSTRAINT pauses_value CHECK (((scope = 'all'::text) = ((value)::text = ''::text)))
);
ALTER TABLE ticker.pauses ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ticker.pauses_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE ticker.runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ticker.runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE ticker.tasks (
    id bigint NOT NULL,
    guid uuid DEFAULT gen_random_uuid() NOT NULL,
    owner_type ticker.ticker_plain DEFAULT ''::text NOT NULL,
    owner_id ticker.ticker_plain DEFAULT ''::text NOT NULL,
    name ticker.ticker_named NOT NULL,
    function ticker.ticker_named NOT NULL,
    kwargs ticker.ticker_object DEFAULT '{}'::jsonb NOT NULL,
    registered ticker.ticker_registered DEFAULT '{}'::jsonb NOT NULL,
    declared_in ticker.ticker_prose DEFAULT ''::text NOT NULL,
    kind ticker.ticker_kind NOT NULL,
    expression ticker.ticker_prose DEFAULT ''::text NOT NULL,
    zone ticker.ticker_prose DEFAULT 'UTC'::text NOT NULL,
    every_ms ticker.ticker_duration DEFAULT 0 NOT NULL,
    tolerance_ms ticker.ticker_duration DEFAULT 0 NOT NULL,
    box_ms ticker.ticker_box NOT NULL,
    grace_ms ticker.ticker_grace NOT NULL,
    queue ticker.ticker_named NOT NULL,
    subject ticker.ticker_prose DEFAULT ''::text NOT NULL,
    description ticker.ticker_prose DEFAULT ''::text NOT NULL,
    metadata ticker.ticker_object DEFAULT '{}'::jsonb NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    owner_active boolean DEFAULT true NOT NULL,
    paused_by ticker.ticker_prose,
    paused_reason ticker.ticker_prose DEFAULT ''::text NOT NULL,
    paused_until ticker.ticker_moment,
    next_run ticker.ticker_moment,
    waiting timestamp with time zone[] DEFAULT '{}'::timestamp with time zone[] NOT NULL,
    push_after ticker.ticker_moment,
    push_errors ticker.ticker_count DEFAULT 0 NOT NULL,
    push_error ticker.ticker_prose DEFAULT ''::text NOT NULL,
    last_run ticker.ticker_moment,
    last_occurrence ticker.ticker_moment,
    run_token uuid,
    running_until ticker.ticker_moment,
    cursor ticker.ticker_readable,
    last_run_id bigint,
    last_outcome ticker.ticker_outcome,
    last_ended_at ticker.ticker_moment,
    last_success_at ticker.ticker_moment,
    last_worked_at ticker.ticker_moment,
    failures ticker.ticker_count DEFAULT 0 NOT NULL,
    created_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    updated_at ticker.ticker_moment DEFAULT clock_timestamp() NOT NULL,
    starts_at ticker.ticker_moment,
    ends_at ticker.ticker_moment,
    max_runs ticker.ticker_max_runs,
    started ticker.ticker_started DEFAULT 0 NOT NULL,
    catch_up ticker.ticker_catch_up DEFAULT 'one'::text NOT NULL,
    remove boolean DEFAULT false NOT NULL,
    overlap ticker.ticker_overlap DEFAULT 'queue'::text NOT NULL,
    retries ticker.ticker_retries DEFAULT 0 NOT NULL,
    backoff ticker.ticker_short DEFAULT '10s..5m'::text NOT NULL,
    stretch_ms ticker.ticker_span,
    stretched_ms ticker.ticker_span,
    pause_after ticker.ticker_limit,
    probe_ms ticker.ticker_span,
    dead_man ticker.ticker_intervals,
    alarm_at ticker.ticker_moment,
    told ticker.ticker_told DEFAULT ''::text NOT NULL,
    resumed_at ticker.ticker_moment,
    submitter ticker.ticker_plain DEFAULT ''::text NOT NULL,
    group_name ticker.ticker_plain DEFAULT ''::text NOT NULL,
    priority ticker.ticker_priority DEFAULT 0 NOT NULL,
    keep ticker.ticker_keep DEFAULT 'all'::text NOT NULL,
    succeeded ticker.ticker_total DEFAULT 0 NOT NULL,
    failed ticker.ticker_total DEFAULT 0 NOT NULL,
    dropped ticker.ticker_total DEFAULT 0 NOT NULL,
    spread boolean DEFAULT false NOT NULL,
    batch_jobs ticker.ticker_batch_jobs,
    within_ms ticker.ticker_span,
    phase_ms bigint GENERATED ALWAYS AS (
CASE
    WHEN spread THEN ((((('x'::text || substr(md5((((((owner_type)::text || '/'::text) || (owner_id)::text) || '/'::text) || (name)::text)), 1, 7)))::bit(28))::bigint *
    CASE kind
        WHEN 'interval'::text THEN (every_ms)::bigint
        ELSE (within_ms)::bigint
    END) / 268435456)
    ELSE NULL::bigint
END) STORED,
    alone_until ticker.ticker_moment,
    share ticker.ticker_batch,
    limits ticker.ticker_keys,
    every_most_ms ticker.ticker_span,
    pace_ms ticker.ticker_span,
    again_at ticker.ticker_moment,
    pause_id bigint,
    waits_again ticker.ticker_moment,
    wait_reason ticker.ticker_short,
    during ticker.ticker_short DEFAULT ''::text NOT NULL,
    enough_jobs_event bigint,
    cause ticker.ticker_short DEFAULT ''::text NOT NULL,
    CONSTRAINT tasks_bounds CHECK (((starts_at)::timestamp with time zone <= (ends_at)::timestamp with time zone)),
    CONSTRAINT tasks_during CHECK ((((during)::text = ''::text) OR ((kind)::text = 'interval'::text))),
    CONSTRAINT tasks_elastic CHECK ((((every_most_ms IS NULL) OR (((kind)::text = 'interval'::text) AND ((every_most_ms)::bigint > (every_ms)::bigint))) AND ((pace_ms IS NULL) OR COALESCE((((pace_ms)::bigint >= (every_ms)::bigint) AND ((pace_ms)::bigint <= (every_most_ms)::bigint)), false)))),
    CONSTRAINT tasks_fit CHECK ((((kind)::text <> 'interval'::text) OR ((((tolerance_ms)::bigint + (box_ms)::bigint) + (grace_ms)::bigint) <= (every_ms)::bigint))),
    CONSTRAINT tasks_hold CHECK (((run_token IS NULL) = (running_until IS NULL))),
    CONSTRAINT tasks_owner CHECK ((((owner_type)::text = ''::text) = ((owner_id)::text = ''::text))),
    CONSTRAINT tasks_paused CHECK (((paused_by IS NOT NULL) OR ((paused_until IS NULL) AND ((paused_reason)::text = ''::text)))),
    CONSTRAINT tasks_schedule CHECK (
CASE kind
    WHEN 'interval'::text THEN ((every_ms)::bigint >= 1000)
    ELSE (((every_ms)::bigint = 0) AND ((expression)::text <> ''::text))
END),
    CONSTRAINT tasks_waiting CHECK (((array_position(waiting, NULL::timestamp with time zone) IS NULL) AND (cardinality(waiting) <= 10000) AND (COALESCE(array_lower(waiting, 1), 1) = 1) AND ('1970-01-01 00:00:00+00'::timestamp with time zone <= ALL (waiting)) AND ('9999-12-31 00:00:00+00'::timestamp with time zone >= ALL (waiting))))
)
WITH (fillfactor='85');
ALTER TABLE ticker.tasks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME ticker.tasks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE ticker.templates (
    owner_type ticker.ticker_named NOT NULL,
    name ticker.ticker_named NOT NULL,
    task ticker.ticker_template NOT NULL
);
CREATE TABLE ticker.ticker_version (
    version_num character varying(32) NOT NULL,
    oldest text DEFAULT '0001'::text NOT NULL
);
CREATE TABLE ticker.tickers (
    id uuid NOT NULL,
    host text DEFAULT ''::text NOT NULL,
    pid integer NOT NULL,
    started_at ticker.ticker_moment NOT NULL,
    last_tick_at ticker.ticker_moment,
    last_report ticker.ticker_object DEFAULT '{}'::jsonb NOT NULL,
    seen_at ticker.ticker_moment,
    failure ticker.ticker_prose DEFAULT ''::text NOT NULL,
    failing_since ticker.ticker_moment,
    CONSTRAINT tickers_failure CHECK ((((failure)::text = ''::text) = (failing_since IS NULL)))
);
INSERT INTO ticker.events OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-27 21:42:45.211943+00', 2, 'report', 'report', '', '', 'paused', 'anna', 'holidays', NULL, false, NULL, NULL);
INSERT INTO ticker.installation VALUES (true, 'e2f967ef', 7712969961063242611, 5, 16595, '', '2026-11-27 21:42:44.941916+00', NULL, NULL, NULL, NULL, '{}');
INSERT INTO ticker.runs OVERRIDING SYSTEM VALUE VALUES (1, 1, 'poll', '', '', '', 'scheduled', NULL, NULL, '2026-03-01 12:00:00+00', 1, 'ended', 'succeeded', '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-03-01 12:00:02+00', '2026-11-27 21:42:45.212767+00', NULL, NULL, NULL, NULL, NULL, '', '', '', '', '', NULL, '', false, false, NULL, NULL, NULL, '', NULL);
INSERT INTO ticker.runs OVERRIDING SYSTEM VALUE VALUES (2, 2, 'report', '', '', '', 'manual', NULL, NULL, NULL, 1, 'planned', NULL, '', NULL, '2026-03-01 12:00:00+00', NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-27 21:42:45.213235+00', NULL, NULL, NULL, NULL, NULL, '', '', '', '', '', NULL, '', false, false, NULL, NULL, NULL, '', NULL);
INSERT INTO ticker.tasks OVERRIDING SYSTEM VALUE VALUES (1, '7bf6362d-3e24-4cc1-8590-2de4f7327dbf', '', '', 'poll', 'poll', '{}', '{}', '', 'interval', '', 'UTC', 60000, 0, 30000, 1000, 'polling', '', '', '{}', true, true, NULL, '', NULL, NULL, '{}', NULL, 0, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '2026-11-27 21:42:45.18374+00', '2026-11-27 21:42:45.18374+00', NULL, NULL, NULL, 0, 'one', false, 'queue', 0, '10s..5m', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '', '', 0, 'all', 0, 0, 0, false, NULL, NULL, DEFAULT, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '');
INSERT INTO ticker.tasks OVERRIDING SYSTEM VALUE VALUES (2, 'c915cf0d-da1a-419b-9639-8d8da46ac8a0', '', '', 'report', 'report', '{}', '{}', '', 'cron', '0 6 * * *', 'UTC', 0, 0, 300000, 1000, 'polling', '', '', '{}', true, true, 'anna', 'holidays', NULL, NULL, '{}', NULL, 0, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '2026-11-27 21:42:45.199765+00', '2026-11-27 21:42:45.199765+00', NULL, NULL, NULL, 0, 'one', false, 'queue', 0, '10s..5m', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '', '', 0, 'all', 0, 0, 0, false, NULL, NULL, DEFAULT, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, '');
INSERT INTO ticker.ticker_version VALUES ('0002', '0001');
SELECT pg_catalog.setval('ticker.events_id_seq', 1, true);
SELECT pg_catalog.setval('ticker.pauses_id_seq', 1, false);
SELECT pg_catalog.setval('ticker.runs_id_seq', 2, true);
SELECT pg_catalog.setval('ticker.tasks_id_seq', 2, true);
ALTER TABLE ONLY ticker.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY ticker.functions
    ADD CONSTRAINT functions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY ticker.hours
    ADD CONSTRAINT hours_pkey PRIMARY KEY (at, function, queue, outcome, reason, kind);
ALTER TABLE ONLY ticker.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (single);
ALTER TABLE ONLY ticker.limited_keys
    ADD CONSTRAINT limited_keys_pkey PRIMARY KEY (key);
ALTER TABLE ONLY ticker.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (key);
ALTER TABLE ONLY ticker.minutes
    ADD CONSTRAINT minutes_pkey PRIMARY KEY (at, function, queue, outcome, reason, kind);
ALTER TABLE ONLY ticker.notices
    ADD CONSTRAINT notices_pkey PRIMARY KEY (event_id, channel, cause);
ALTER TABLE ONLY ticker.pauses
    ADD CONSTRAINT pauses_pkey PRIMARY KEY (id);
ALTER TABLE ONLY ticker.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY ticker.slots
    ADD CONSTRAINT slots_pkey PRIMARY KEY (key, kind, n);
ALTER TABLE ONLY ticker.tasks
    ADD CONSTRAINT tasks_owner_name UNIQUE (owner_type, owner_id, name);
ALTER TABLE ONLY ticker.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY ticker.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (owner_type, name);
ALTER TABLE ONLY ticker.ticker_version
    ADD CONSTRAINT ticker_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY ticker.tickers
    ADD CONSTRAINT tickers_pkey PRIMARY KEY (id);
CREATE INDEX events_at ON ticker.events USING btree (at);
CREATE UNIQUE INDEX events_expired ON ticker.events USING btree (function, at) WHERE ((what)::text = 'expired'::text);
CREATE INDEX events_of_task ON ticker.events USING btree (task_id, id);
CREATE UNIQUE INDEX events_unknown_function ON ticker.events USING btree (function) WHERE ((what)::text = 'unknown_function'::text);
CREATE INDEX events_untold ON ticker.events USING btree (id) WHERE (NOT told);
CREATE INDEX hours_of_all ON ticker.hours USING btree (at) WHERE (function = '(all)'::text);
CREATE INDEX minutes_of_queues ON ticker.minutes USING btree (at, queue) WHERE (outcome = ''::text);
CREATE UNIQUE INDEX notices_cause ON ticker.notices USING btree (channel, cause) WHERE ((cause)::text <> ''::text);
CREATE INDEX notices_due ON ticker.notices USING btree (due_at);
CREATE INDEX pauses_ended ON ticker.pauses USING btree (mark, resumed_at);
CREATE UNIQUE INDEX pauses_in_force ON ticker.pauses USING btree (scope, value, of_queue) WHERE (resumed_at IS NULL);
CREATE INDEX pauses_open ON ticker.pauses USING btree (id) WHERE (done_at IS NULL);
CREATE INDEX runs_by_outcome ON ticker.runs USING btree (owner_type, outcome, ended_at) WHERE ((outcome)::text <> 'dropped'::text);
CREATE INDEX runs_by_owner ON ticker.runs USING btree (owner_type, owner_id, ended_at) WHERE (((owner_type)::text <> ''::text) AND (ended_at IS NOT NULL));
CREATE INDEX runs_by_reason ON ticker.runs USING btree (owner_type, reason, ended_at) INCLUDE (id, task_id, function, owner_id) WHERE ((outcome)::text = 'dropped'::text);
CREATE INDEX runs_follow_up ON ticker.runs USING btree (id) WHERE follow_up;
CREATE INDEX runs_further ON ticker.runs USING btree (task_id, id) WHERE ((kind)::text = ANY (ARRAY['retry'::text, 'piece'::text]));
CREATE INDEX runs_manual ON ticker.runs USING btree (task_id, due_at) WHERE ((kind)::text = 'manual'::text);
CREATE INDEX runs_of_parent ON ticker.runs USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX runs_of_task ON ticker.runs USING btree (task_id, id) WHERE ((kind)::text = ANY (ARRAY['scheduled'::text, 'manual'::text]));
CREATE UNIQUE INDEX runs_one_record ON ticker.runs USING btree (task_id, occurrence) WHERE ((kind)::text = 'scheduled'::text);
CREATE INDEX runs_open_pieces ON ticker.runs USING btree (parent_id) WHERE (((kind)::text = 'piece'::text) AND (((state)::text <> 'ended'::text) OR follow_up));
CREATE INDEX runs_planned ON ticker.runs USING btree (due_at) WHERE (((state)::text = 'planned'::text) AND (((kind)::text <> 'piece'::text) OR (attempt > 1)));
CREATE INDEX runs_planned_pieces ON ticker.runs USING btree (parent_id, id) WHERE (((state)::text = 'planned'::text) AND ((kind)::text = 'piece'::text) AND (attempt = 1));
CREATE INDEX runs_processing ON ticker.runs USING btree (id) WHERE ((state)::text = 'processing'::text);
CREATE INDEX runs_pushed ON ticker.runs USING btree (id) WHERE ((state)::text = 'pushed'::text);
CREATE INDEX runs_running_token ON ticker.runs USING btree (token) WHERE ((state)::text = 'running'::text);
CREATE INDEX runs_to_stop ON ticker.runs USING btree (id) WHERE ((stop_requested_by IS NOT NULL) AND ((state)::text <> 'ended'::text));
CREATE INDEX runs_unstarted ON ticker.runs USING btree (task_id) WHERE ((state)::text = ANY (ARRAY['planned'::text, 'pushed'::text]));
CREATE INDEX slots_token ON ticker.slots USING btree (token) WHERE (token IS NOT NULL);
CREATE INDEX tasks_alarm_at ON ticker.tasks USING btree (alarm_at) WHERE (alarm_at IS NOT NULL);
CREATE INDEX tasks_alone ON ticker.tasks USING btree (alone_until) WHERE (alone_until IS NOT NULL);
CREATE INDEX tasks_at_gate ON ticker.tasks USING btree (pause_id, next_run) WHERE (pause_id IS NOT NULL);
CREATE INDEX tasks_cause ON ticker.tasks USING btree (cause, id) WHERE (((cause)::text <> ''::text) AND enabled AND owner_active AND ((paused_by IS NULL) OR ((paused_by)::text = 'ticker'::text)));
CREATE INDEX tasks_done_once ON ticker.tasks USING btree (id) WHERE (((kind)::text = 'once'::text) AND remove AND (next_run IS NULL));
CREATE INDEX tasks_due ON ticker.tasks USING btree (next_run, id) WHERE (enabled AND owner_active AND (paused_by IS NULL) AND (pause_id IS NULL) AND (next_run IS NOT NULL) AND (limits IS NULL));
CREATE INDEX tasks_due_limited ON ticker.tasks USING btree (next_run, id) WHERE (enabled AND owner_active AND (paused_by IS NULL) AND (pause_id IS NULL) AND (next_run IS NOT NULL) AND (limits IS NOT NULL));
CREATE INDEX tasks_failing ON ticker.tasks USING btree (failures DESC, id) WHERE ((failures)::integer > 0);
CREATE INDEX tasks_function ON ticker.tasks USING btree (function, queue, ((enabled AND owner_active AND (paused_by IS NULL) AND (pause_id IS NULL))));
CREATE INDEX tasks_inactive ON ticker.tasks USING btree (id) WHERE ((NOT enabled) OR (NOT owner_active));
CREATE INDEX tasks_paused ON ticker.tasks USING btree (id) WHERE (((paused_by IS NULL) AND (pause_id IS NULL)) IS NOT TRUE);
CREATE INDEX tasks_paused_until ON ticker.tasks USING btree (paused_until) WHERE (paused_until IS NOT NULL);
CREATE INDEX tasks_waiting_limited ON ticker.tasks USING btree (id) WHERE ((waiting <> '{}'::timestamp with time zone[]) AND (limits IS NOT NULL));
CREATE INDEX tasks_waiting_oldest ON ticker.tasks USING btree (id) WHERE (waiting <> '{}'::timestamp with time zone[]);
CREATE TRIGGER limits_apply AFTER INSERT OR DELETE OR UPDATE OF key, concurrency, rate, period_ms, burst ON ticker.limits FOR EACH ROW EXECUTE FUNCTION ticker.apply_limit();
CREATE TRIGGER pauses_guard BEFORE INSERT OR UPDATE ON ticker.pauses FOR EACH ROW WHEN ((new.scope <> 'unknown'::text)) EXECUTE FUNCTION ticker.guard_pause();
CREATE TRIGGER pauses_note AFTER INSERT OR UPDATE OF by, reason, until, resumed_at ON ticker.pauses FOR EACH ROW WHEN ((new.scope <> 'unknown'::text)) EXECUTE FUNCTION ticker.note_pause();
CREATE TRIGGER tasks_guard_owner BEFORE INSERT OR UPDATE OF owner_type, owner_id ON ticker.tasks FOR EACH ROW WHEN (((new.owner_type)::text <> ''::text)) EXECUTE FUNCTION ticker.guard_owner();
CREATE TRIGGER tasks_leave_pause BEFORE UPDATE OF function, queue, group_name, owner_type, limits ON ticker.tasks FOR EACH ROW WHEN (((old.pause_id IS NOT NULL) AND (((new.function)::text IS DISTINCT FROM (old.function)::text) OR ((new.queue)::text IS DISTINCT FROM (old.queue)::text) OR ((new.group_name)::text IS DISTINCT FROM (old.group_name)::text) OR ((new.owner_type)::text IS DISTINCT FROM (old.owner_type)::text) OR ((new.limits)::text[] IS DISTINCT FROM (old.limits)::text[])))) EXECUTE FUNCTION ticker.leave_pause();
CREATE TRIGGER tasks_note_change BEFORE UPDATE OF enabled, owner_active, paused_by ON ticker.tasks FOR EACH ROW WHEN (((new.enabled IS DISTINCT FROM old.enabled) OR (new.owner_active IS DISTINCT FROM old.owner_active) OR ((new.paused_by)::text IS DISTINCT FROM (old.paused_by)::text))) EXECUTE FUNCTION ticker.note_change();
CREATE TRIGGER tasks_note_deletion AFTER DELETE ON ticker.tasks REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION ticker.note_deletion();
CREATE TRIGGER tasks_note_edit AFTER UPDATE OF function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at, ends_at, max_runs, catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name, priority, spread, subject, description, metadata, within_ms, limits, every_most_ms, during ON ticker.tasks FOR EACH ROW WHEN ((((old.function)::text IS DISTINCT FROM (new.function)::text) OR ((old.kwargs)::jsonb IS DISTINCT FROM (new.kwargs)::jsonb) OR ((old.kind)::text IS DISTINCT FROM (new.kind)::text) OR ((old.expression)::text IS DISTINCT FROM (new.expression)::text) OR ((old.zone)::text IS DISTINCT FROM (new.zone)::text) OR ((old.every_ms)::bigint IS DISTINCT FROM (new.every_ms)::bigint) OR ((old.tolerance_ms)::bigint IS DISTINCT FROM (new.tolerance_ms)::bigint) OR ((old.box_ms)::bigint IS DISTINCT FROM (new.box_ms)::bigint) OR ((old.queue)::text IS DISTINCT FROM (new.queue)::text) OR ((old.starts_at)::timestamp with time zone IS DISTINCT FROM (new.starts_at)::timestamp with time zone) OR ((old.ends_at)::timestamp with time zone IS DISTINCT FROM (new.ends_at)::timestamp with time zone) OR ((old.max_runs)::integer IS DISTINCT FROM (new.max_runs)::integer) OR ((old.catch_up)::text IS DISTINCT FROM (new.catch_up)::text) OR (old.remove IS DISTINCT FROM new.remove) OR ((old.overlap)::text IS DISTINCT FROM (new.overlap)::text) OR ((old.retries)::integer IS DISTINCT FROM (new.retries)::integer) OR ((old.backoff)::text IS DISTINCT FROM (new.backoff)::text) OR ((old.stretch_ms)::bigint IS DISTINCT FROM (new.stretch_ms)::bigint) OR ((old.pause_after)::integer IS DISTINCT FROM (new.pause_after)::integer) OR ((old.probe_ms)::bigint IS DISTINCT FROM (new.probe_ms)::bigint) OR ((old.dead_man)::integer IS DISTINCT FROM (new.dead_man)::integer) OR ((old.keep)::text IS DISTINCT FROM (new.keep)::text) OR ((old.submitter)::text IS DISTINCT FROM (new.submitter)::text) OR ((old.group_name)::text IS DISTINCT FROM (new.group_name)::text) OR ((old.priority)::integer IS DISTINCT FROM (new.priority)::integer) OR (old.spread IS DISTINCT FROM new.spread) OR ((old.subject)::text IS DISTINCT FROM (new.subject)::text) OR ((old.description)::text IS DISTINCT FROM (new.description)::text) OR ((old.metadata)::jsonb IS DISTINCT FROM (new.metadata)::jsonb) OR ((old.within_ms)::bigint IS DISTINCT FROM (new.within_ms)::bigint) OR ((old.limits)::text[] IS DISTINCT FROM (new.limits)::text[]) OR ((old.every_most_ms)::bigint IS DISTINCT FROM (new.every_most_ms)::bigint) OR ((old.during)::text IS DISTINCT FROM (new.during)::text))) EXECUTE FUNCTION ticker.note_edit('function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at,
    ends_at, max_runs, catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep,
    submitter, group_name, priority, spread, subject, description, metadata, within_ms, limits, every_most_ms, during');
CREATE TRIGGER tasks_note_return BEFORE UPDATE OF next_run ON ticker.tasks FOR EACH ROW WHEN (((old.waits_again IS NOT NULL) AND ((new.next_run)::timestamp with time zone IS DISTINCT FROM (old.waits_again)::timestamp with time zone))) EXECUTE FUNCTION ticker.note_waits_again();
CREATE TRIGGER tasks_use_keys AFTER INSERT OR UPDATE OF limits ON ticker.tasks FOR EACH ROW WHEN ((new.limits IS NOT NULL)) EXECUTE FUNCTION ticker.use_keys();
REVOKE ALL ON FUNCTION ticker.apply_limit() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.guard_owner() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.guard_pause() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.leave_pause() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.limit_keys(wanted text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.note_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.note_deletion() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.note_edit() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.note_pause() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.note_waits_again() FROM PUBLIC;
REVOKE ALL ON FUNCTION ticker.use_keys() FROM PUBLIC;
