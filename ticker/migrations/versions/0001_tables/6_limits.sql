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

-- Takes a free slot of each of these keys for a run that starts: all or none. If one is missing, returns it: its key, and as `until` when
-- a token falls due or the key opens again, if that is known. (It is unknown while the limit allows more slots than there are.)
-- A key that is closed has no slots. Slots are tried from a random one on. Those that are locked are skipped: another start is about
-- to take them. A slot whose time has passed is not free if the clock was set forward: by the uptime of this host, its run goes on.
-- If no slot is free, the number of slots doubles, up to the limit, for the next request of a start. A limit that was declared for more
-- than 1,000 keys at once has none at first, and gets 10. Only one transaction at a time makes slots, and no other waits for it.
-- The worker executes this with its own rights.
CREATE FUNCTION take_slots(
    keys text[], token uuid, hold interval, at timestamptz, boot text, uptime bigint
) RETURNS slots LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE missing {schema}.slots[];  -- with the numbers that the limits allow
BEGIN
    WITH needed AS MATERIALIZED (
        SELECT n.*, 1 + floor(random() * n.most)::integer AS first
        FROM unnest(keys) AS u (key), LATERAL (SELECT * FROM {schema}.limited_keys k WHERE k.key = u.key OFFSET 0) k, LATERAL (
            SELECT k.key, s.kind, s.span, k.closed_until, CASE WHEN k.closed_until > at THEN 0 ELSE s.most END AS most FROM (VALUES
                ('run', least(k.concurrency, k.allowed)::integer, hold),
                ('start', k.burst::integer, k.token_us * interval '1 microsecond')) AS s (kind, most, span)) n
        WHERE n.most IS NOT NULL
    ), found AS MATERIALIZED (
        SELECT w.*, f.n FROM needed w LEFT JOIN LATERAL (
            SELECT s.n FROM (VALUES (w.first, w.most), (1, w.first - 1)) AS half (low, high), LATERAL (
                SELECT s.n FROM {schema}.slots s WHERE s.key = w.key AND s.kind = w.kind AND s.n BETWEEN half.low AND half.high
                    AND (s.until IS NULL OR s.until <= at AND NOT EXISTS (
                        SELECT FROM {schema}.runs r WHERE r.token = s.token AND r.state = 'running' AND r.boot = take_slots.boot
                        AND (uptime - r.uptime_us) * interval '1 microsecond' BETWEEN interval '0' AND r.until - r.started_at OFFSET 0))
                ORDER BY s.n LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
            LIMIT 1) f ON true
    ), taken AS (
        UPDATE {schema}.slots s SET token = CASE s.kind WHEN 'run' THEN take_slots.token END, until = at + f.span
        FROM found f WHERE (s.key, s.kind, s.n) = (f.key, f.kind, f.n) AND NOT EXISTS (SELECT FROM found WHERE n IS NULL)
    )
    SELECT array_agg(ROW(f.key, f.kind, f.most, NULL, f.again, NULL)::{schema}.slots ORDER BY f.again DESC NULLS LAST) INTO missing FROM (
        SELECT f.*, coalesce(CASE WHEN f.closed_until > at THEN f.closed_until END, (SELECT min(s.until) FROM {schema}.slots s
            WHERE s.key = f.key AND s.kind = f.kind AND s.kind = 'start' AND s.n <= f.most AND s.until > at
            HAVING f.most <= count(*))) AS again FROM found f WHERE f.n IS NULL) f;
    IF missing IS NOT NULL AND pg_try_advisory_xact_lock('{schema}.slots'::regclass::oid::bigint) THEN
        INSERT INTO {schema}.slots (key, kind, n)
        SELECT m.key, m.kind, g.n FROM unnest(missing) AS m, LATERAL (
                SELECT max(s.n) AS last FROM {schema}.slots s WHERE s.key = m.key AND s.kind = m.kind) made,
            generate_series(coalesce(made.last, 0) + 1, least(greatest(2 * made.last, 10), m.n)) AS g (n)
        WHERE m.n > 0 ORDER BY m.key, m.kind, g.n ON CONFLICT DO NOTHING;
    END IF;
    RETURN missing[1];
END $$;

REVOKE ALL ON FUNCTION apply_limit(), use_keys(), limit_keys(text[]) FROM PUBLIC;
