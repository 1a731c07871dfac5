-- Limits: how many runs of a key are active at the same time, and how many start per period, on all workers together. A key
-- is a text that tasks share, such as a host or an account.

-- A key, or a pattern of keys: it ends with an asterisk.
CREATE DOMAIN ticker_key AS text CHECK (VALUE ~ '^[!-~]{1,200}$');
CREATE DOMAIN ticker_limited AS integer CHECK (VALUE BETWEEN 1 AND 10000);
-- The one or two different keys of a task. A key is no pattern.
CREATE DOMAIN ticker_keys AS text[] CHECK (
    array_position(VALUE, NULL) IS NULL AND array_ndims(VALUE) = 1 AND array_lower(VALUE, 1) = 1 AND cardinality(VALUE) <= 2
    AND VALUE[1] ~ '^[!-~]{1,200}$' AND VALUE[1] NOT LIKE '%*' AND (VALUE[2] IS NULL
        OR VALUE[2] ~ '^[!-~]{1,200}$' AND VALUE[2] NOT LIKE '%*' AND VALUE[1] <> VALUE[2]));

-- What people declare. A pattern applies to each key that it matches and that has no limit of its own; the longest wins.
CREATE TABLE limits (
    key ticker_key PRIMARY KEY,
    concurrency ticker_limited,
    rate integer,
    period_ms ticker_span,
    burst ticker_limited,
    declared_in ticker_prose DEFAULT '' NOT NULL,
    updated_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT limits_any CHECK (concurrency IS NOT NULL OR rate IS NOT NULL),
    CONSTRAINT limits_rate CHECK ((rate IS NULL) = (period_ms IS NULL) AND (rate IS NULL) = (burst IS NULL)
        AND rate BETWEEN 1 AND 1000000 AND burst <= rate)
);

-- The keys of tasks, each with the limit that applies to it. `token_us` is how long a token of the rate is used up, in
-- microseconds: the burst times the period, divided by the rate. A NULL means no such limit.
CREATE TABLE limited_keys (
    key ticker_key PRIMARY KEY,
    limited_by ticker_key,
    concurrency ticker_limited,
    burst ticker_limited,
    token_us bigint,
    CONSTRAINT limited_keys_rate CHECK ((burst IS NULL) = (token_us IS NULL))
);

-- What a start takes of a key, and until when: a place of each active run ('run'), and a token of the rate ('start'). A run's
-- end frees its place; if the end is never written, the time does. A limit of N has the rows 1 to N. Rows above a lowered limit
-- stay, but are not taken.
CREATE TABLE slots (
    key ticker_key NOT NULL,
    kind text NOT NULL,
    n integer NOT NULL,
    token uuid,
    until ticker_moment,
    PRIMARY KEY (key, kind, n),
    CONSTRAINT slots_kind CHECK (kind IN ('run', 'start')),
    CONSTRAINT slots_token CHECK (kind = 'run' OR token IS NULL)
)
WITH (fillfactor = 50);

-- The end of a run: its places.
CREATE INDEX slots_token ON slots (token) WHERE token IS NOT NULL;

-- Makes rows for the keys, and for what their limits allow. For keys without a limit, it makes only the first row.
CREATE FUNCTION limit_keys(wanted text[]) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp BEGIN ATOMIC
WITH resolved AS (
    SELECT DISTINCT w.key, l.key AS limited_by, l.concurrency, l.burst,
        (l.burst * l.period_ms * 1000.0 / l.rate)::bigint AS token_us
    FROM unnest(wanted) w (key) LEFT JOIN LATERAL (
        SELECT * FROM limits l WHERE l.key = w.key OR (l.key LIKE '%*' AND starts_with(w.key, rtrim(l.key, '*')))
        ORDER BY l.key = w.key DESC, length(l.key) DESC LIMIT 1) l ON true
), written AS (
    INSERT INTO limited_keys AS k (key, limited_by, concurrency, burst, token_us) SELECT * FROM resolved ORDER BY key
    ON CONFLICT (key) DO UPDATE SET limited_by = excluded.limited_by, concurrency = excluded.concurrency,
        burst = excluded.burst, token_us = excluded.token_us
    WHERE (k.limited_by, k.concurrency, k.burst, k.token_us)
        IS DISTINCT FROM (excluded.limited_by, excluded.concurrency, excluded.burst, excluded.token_us)
)
INSERT INTO slots (key, kind, n)
SELECT r.key, 'run', n FROM resolved r, generate_series(1, r.concurrency) n
UNION ALL SELECT r.key, 'start', n FROM resolved r, generate_series(1, r.burst) n
ON CONFLICT DO NOTHING;
END;

ALTER TABLE tasks ADD COLUMN limits ticker_keys;

-- A new key gets its rows with the first task that has it, however the task is written.
CREATE FUNCTION use_keys() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(NEW.limits) w WHERE NOT EXISTS (SELECT FROM {schema}.limited_keys k WHERE k.key = w)) THEN
        PERFORM {schema}.limit_keys(NEW.limits);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_use_keys AFTER INSERT OR UPDATE OF limits ON tasks FOR EACH ROW
WHEN (NEW.limits IS NOT NULL) EXECUTE FUNCTION use_keys();

REVOKE ALL ON FUNCTION use_keys(), limit_keys(text[]) FROM PUBLIC;

-- Tasks with limits are not in the index of what is due, so that what is blocked delays nothing else. They are found by their
-- keys.
DROP INDEX tasks_due;
CREATE INDEX tasks_due ON tasks (next_run)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL AND limits IS NULL;
CREATE INDEX tasks_due_limited ON tasks ((limits[1]), (coalesce(limits[2], '')), next_run)
    WHERE enabled AND owner_active AND paused_by IS NULL AND next_run IS NOT NULL AND limits IS NOT NULL;
