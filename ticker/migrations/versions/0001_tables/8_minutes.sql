-- Minutes: what ended in each minute, the workers of each queue, and how many workers it needs. A thread of the ticker
-- closes a minute when it has been over for 70 s, and adds up each hour.

-- Adds the counts of two histograms, bucket by bucket. The shorter one has no values in the other buckets.
CREATE FUNCTION add_counts(one integer[], other integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(array_agg(coalesce(a, 0) + coalesce(b, 0) ORDER BY n), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS u (a, b, n));
CREATE AGGREGATE sum_counts(integer[]) (SFUNC = add_counts, STYPE = integer[], INITCOND = '{}', PARALLEL = SAFE);

-- How many runs and drops ended in a minute, and how late and how long the runs were that had started. Up to 200
-- functions; the others are added up as `(other)`. `reason` is empty unless the outcome is `dropped`. Lost runs, and
-- runs in pieces, are in no bucket of `took`, because their durations are unknown.
CREATE TABLE minutes (
    at ticker_moment NOT NULL,
    function text NOT NULL,
    queue text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    kind text NOT NULL,
    count integer NOT NULL,
    started integer NOT NULL,
    late_ms bigint NOT NULL,
    took_ms bigint NOT NULL,

    -- The number of values in each bucket. The first bucket of `late` ends at 1 s, that of `took` at 50 ms, and each
    -- further one at twice as much.
    late integer[] NOT NULL,
    took integer[] NOT NULL,

    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);

-- The same for hours.
CREATE TABLE hours (
    at ticker_moment NOT NULL,
    function text NOT NULL,
    queue text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    kind text NOT NULL,
    count integer NOT NULL,
    started integer NOT NULL,
    late_ms bigint NOT NULL,
    took_ms bigint NOT NULL,
    late integer[] NOT NULL,
    took integer[] NOT NULL,
    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);

-- What ticks saw of a queue in a minute, each number added up over so many `samples`: workers that listen to it, those
-- of them that are busy, and waiting jobs. `needed`: how many workers were enough at that time, if that was computed.
CREATE TABLE queue_minutes (
    at ticker_moment NOT NULL,
    queue text NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer,
    PRIMARY KEY (at, queue)
);

-- The same for hours, with the largest `needed`.
CREATE TABLE queue_hours (
    at ticker_moment NOT NULL,
    queue text NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer,
    PRIMARY KEY (at, queue)
);

-- The closed minutes. `xact` is the transaction that closed the minute first, `snapshot` the one in which its records
-- were counted last. If transactions that had begun before the `horizon` were still at work then, the minute is counted
-- again when they have ended. `is_summed`, in the last minute of an hour: the hour contains its minutes as they are.
CREATE TABLE closed_minutes (
    at ticker_moment PRIMARY KEY,
    xact bigint DEFAULT pg_current_xact_id()::text::bigint NOT NULL,
    snapshot text DEFAULT pg_current_snapshot()::text NOT NULL,
    horizon bigint,
    is_summed boolean DEFAULT true NOT NULL
);
CREATE INDEX closed_minutes_open ON closed_minutes (at) WHERE NOT is_summed OR horizon IS NOT NULL;

-- Ends that may not be in the count of their minute: they were written late, or changed. `sign` is -1 for what a record
-- was before it changed. `xact` is the transaction that wrote it. A change is applied if the minute's snapshot does not
-- see that transaction.
CREATE TABLE minute_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact bigint DEFAULT pg_current_xact_id()::text::bigint NOT NULL,
    sign smallint NOT NULL,
    at ticker_moment NOT NULL,
    function text NOT NULL,
    queue text,
    outcome text NOT NULL,
    reason text NOT NULL,
    kind text NOT NULL,
    occurrence timestamptz,
    due_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    pieces integer
);

-- How many workers each queue needs, by the demand and the measured durations at that time. `enough` keeps 99% of the
-- starts within two ticks; it is null if the durations of a function are unknown. `functions` has the demand and the
-- durations of each.
CREATE TABLE needs (
    queue text PRIMARY KEY,
    at ticker_moment NOT NULL,
    average double precision NOT NULL,
    enough integer,
    functions ticker_registered NOT NULL
);

-- Writes the change of an end. The conditions of the triggers are evaluated for each run, and the function is called
-- for few. An end that is not late has a transaction that began at most 10 s after it: `horizon` takes care of those. A
-- deletion or an edit is part of its caller's transaction, which may take longer than any horizon waits: no worker has
-- recorded what it drops.
CREATE FUNCTION note_late_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.minute_changes (
        sign, at, function, queue, outcome, reason, kind, occurrence, due_at, started_at, ended_at, pieces)
    SELECT sign, date_trunc('minute', ended_at, 'UTC'), function, queue, outcome, reason, kind, occurrence, due_at,
        started_at, ended_at, pieces
    FROM (SELECT -1 AS sign, OLD.* UNION ALL SELECT 1, NEW.*) r WHERE ended_at IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER runs_note_late_end AFTER INSERT ON runs FOR EACH ROW
WHEN (NEW.ended_at < clock_timestamp() - interval '10 seconds'
    OR NEW.ended_at IS NOT NULL AND (NEW.reason = 'gone' OR NEW.reason = 'superseded' AND NEW.worker = ''))
EXECUTE FUNCTION note_late_end();
CREATE TRIGGER runs_note_change_of_end AFTER UPDATE OF ended_at, outcome ON runs FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL AND (NEW.ended_at, NEW.outcome) IS DISTINCT FROM (OLD.ended_at, OLD.outcome)
    OR OLD.ended_at IS NULL AND (NEW.ended_at < clock_timestamp() - interval '10 seconds'
        OR NEW.ended_at IS NOT NULL AND NEW.reason = 'gone'))
EXECUTE FUNCTION note_late_end();

REVOKE ALL ON FUNCTION note_late_end() FROM PUBLIC;
