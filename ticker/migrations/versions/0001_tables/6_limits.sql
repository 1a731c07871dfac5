-- Limits: how many runs of a key are active at the same time, and how many start per period, on all workers together. A
-- key is a text that tasks share, such as a host or an account.

-- Returns whether a declared limit, exact or a pattern, is for a key.
CREATE FUNCTION is_limit_of(declared text, key text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN declared = key OR (declared LIKE '%*' AND starts_with(key, rtrim(declared, '*')));

-- Makes the rows of keys and what their limits allow, or changes them. A token of a raised rate is free again sooner.
-- Rows are written in the order of keys, so that two transactions cannot wait for each other. A row that does not
-- change is not locked: the end of a run may have to write it. Sequential scans are off, because a plan that was cached
-- for a few keys would read all keys for each one.
CREATE FUNCTION limit_keys(wanted text[]) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off BEGIN ATOMIC
INSERT INTO limited_keys AS k (key, limited_by, concurrency, burst, token_us)
SELECT w.key, l.key, l.concurrency, l.burst, ceil(l.burst * l.period_ms * 1000.0 / l.rate)::bigint
FROM (SELECT DISTINCT unnest(wanted) AS key) w LEFT JOIN LATERAL (
    SELECT * FROM limits WHERE is_limit_of(limits.key, w.key)
    ORDER BY limits.key = w.key DESC, length(limits.key) DESC LIMIT 1) l ON true
WHERE NOT EXISTS (SELECT FROM limited_keys same WHERE same.key = w.key
    AND (same.limited_by, same.concurrency, same.burst, same.token_us) IS NOT DISTINCT FROM
        (l.key, l.concurrency, l.burst, ceil(l.burst * l.period_ms * 1000.0 / l.rate)::bigint))
ORDER BY w.key
ON CONFLICT (key) DO UPDATE SET limited_by = excluded.limited_by, concurrency = excluded.concurrency,
    burst = excluded.burst, token_us = excluded.token_us;

INSERT INTO slots (key, kind, n)
SELECT k.key, kind, n
FROM limited_keys k, LATERAL (VALUES ('run', k.concurrency), ('start', k.burst)) AS one (kind, size),
    generate_series(1, CASE WHEN cardinality(wanted) > 1000 THEN 0 WHEN size > 10 THEN 10 ELSE size END) n
WHERE k.key = ANY (wanted) ORDER BY k.key, kind, n
ON CONFLICT DO NOTHING;

UPDATE slots s SET until = clock_timestamp() + k.token_us * interval '1 microsecond' FROM limited_keys k
WHERE k.key = ANY (wanted) AND s.key = k.key AND s.kind = 'start'
    AND s.until > clock_timestamp() + k.token_us * interval '1 microsecond';
END;

-- A limit applies at once to the keys in use that it is for, however it is written.
CREATE FUNCTION apply_limit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.limit_keys(ARRAY(SELECT k.key FROM {schema}.limited_keys k
        WHERE {schema}.is_limit_of(OLD.key, k.key) OR {schema}.is_limit_of(NEW.key, k.key)));
    RETURN NULL;
END $$;

CREATE TRIGGER limits_apply AFTER INSERT OR UPDATE OF key, concurrency, rate, period_ms, burst OR DELETE ON limits
FOR EACH ROW EXECUTE FUNCTION apply_limit();

-- A new key gets its rows with the first task that has it, however the task is written. The lock makes it wait for
-- changes of limits that are not committed, and those for it. Otherwise neither would see the other. A call that writes
-- several tasks names all of their keys in `ticker.keys`, so that they get their rows in order. Until the transaction
-- ends, the keys are locked, so that they are not deleted as unused.
CREATE FUNCTION use_keys() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE missing text[];
BEGIN
    LOOP
        missing := ARRAY(SELECT unnest(NEW.limits) EXCEPT SELECT key::text FROM (
            SELECT key FROM {schema}.limited_keys WHERE key = ANY (NEW.limits) ORDER BY key FOR KEY SHARE) known);
        EXIT WHEN missing = '{}';
        LOCK TABLE {schema}.limits IN SHARE MODE;
        PERFORM {schema}.limit_keys(
            missing || string_to_array(coalesce(current_setting('ticker.keys', true), ''), ','));
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_use_keys AFTER INSERT OR UPDATE OF limits ON tasks FOR EACH ROW
WHEN (NEW.limits IS NOT NULL) EXECUTE FUNCTION use_keys();

REVOKE ALL ON FUNCTION apply_limit(), use_keys(), limit_keys(text[]) FROM PUBLIC;
