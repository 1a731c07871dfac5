-- Minutes: what ended in each minute, the workers of each queue, and how many workers it needs. A thread of the ticker
-- counts each minute when it has been over for 70 s, and once more twelve minutes later, and adds up each hour.

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
    function text DEFAULT '' NOT NULL,
    queue text NOT NULL,
    outcome text DEFAULT '' NOT NULL,
    reason text DEFAULT '' NOT NULL,
    kind text DEFAULT '' NOT NULL,
    count integer DEFAULT 0 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    late_ms bigint DEFAULT 0 NOT NULL,
    took_ms bigint DEFAULT 0 NOT NULL,

    -- The number of values in each bucket. The first bucket of `late` ends at 1 s, that of `took` at 50 ms, and each
    -- further one at twice as much.
    late integer[] DEFAULT '{}' NOT NULL,
    took integer[] DEFAULT '{}' NOT NULL,

    -- What ticks measured of the queue, in a separate row whose `outcome` is empty. Each number is a sum over `samples`
    -- measurements: workers that listen to the queue, busy ones, and waiting jobs. `needed` is the number of workers
    -- that were enough at that time, if it was computed. `demand`, in the last such row, is the average number of busy
    -- workers, and what each function contributes to it.
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer,
    demand ticker_registered,

    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);
CREATE INDEX minutes_of_queues ON minutes (at, queue) WHERE outcome = '';

-- The same for hours, with the largest `needed`.
CREATE TABLE hours (
    at ticker_moment NOT NULL,
    function text DEFAULT '' NOT NULL,
    queue text NOT NULL,
    outcome text DEFAULT '' NOT NULL,
    reason text DEFAULT '' NOT NULL,
    kind text DEFAULT '' NOT NULL,
    count integer DEFAULT 0 NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    late_ms bigint DEFAULT 0 NOT NULL,
    took_ms bigint DEFAULT 0 NOT NULL,
    late integer[] DEFAULT '{}' NOT NULL,
    took integer[] DEFAULT '{}' NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    listening bigint DEFAULT 0 NOT NULL,
    busy bigint DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    needed integer,
    PRIMARY KEY (at, function, queue, outcome, reason, kind)
);
