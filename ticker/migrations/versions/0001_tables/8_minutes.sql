-- Minutes: how their histograms are added up.

-- Adds the counts of two histograms, bucket by bucket. The shorter one has no values in the other buckets.
CREATE FUNCTION add_counts(one integer[], other integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(array_agg(coalesce(a, 0) + coalesce(b, 0) ORDER BY n), '{}')
    FROM unnest(one, other) WITH ORDINALITY AS u (a, b, n));
CREATE AGGREGATE sum_counts(integer[]) (SFUNC = add_counts, STYPE = integer[], INITCOND = '{}', PARALLEL = SAFE);
