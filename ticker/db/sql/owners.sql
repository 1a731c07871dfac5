-- Types of owners, and the triggers by which tasks follow the rows of their tables.

-- rule: is_table
-- The type of owner is the name of a table here.
EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND (n.nspname || '.' || c.relname = t.type
            OR c.relname = t.type AND (n.nspname = 'public' OR pg_table_is_visible(c.oid))))

-- name: trigger_source
SELECT coalesce(max(p.prosrc), '') AS source FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgname = %(name)s AND p.pronamespace = '{schema}'::regnamespace

-- name: owner_type
-- Returns whether a type of owner is known (it has tasks, or a trigger deletes them), or is the name of a table here.
SELECT CASE
    WHEN EXISTS (SELECT FROM {schema}.tasks WHERE owner_type = t.type) THEN 'known'
    WHEN EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
                 WHERE g.tgname = %(trigger)s AND p.pronamespace = '{schema}'::regnamespace) THEN 'known'
    WHEN {is_table t} THEN 'table'
    ELSE 'unknown' END AS standing
FROM (SELECT %(type)s::text AS type) t

-- name: owner_tables
-- Lists the types of owners with tasks that are names of tables here. Reads the index once for each type, however many
-- tasks there are.
WITH RECURSIVE types AS (
    SELECT min(owner_type) AS type FROM {schema}.tasks WHERE owner_type > ''
    UNION ALL
    SELECT (SELECT min(owner_type) FROM {schema}.tasks WHERE owner_type > types.type) FROM types WHERE type IS NOT NULL)
SELECT type FROM types WHERE {is_table types} ORDER BY type

-- name: guards
-- Lists the types of owners whose tasks a trigger guards, and the source of its function. The type is in the trigger's condition.
SELECT replace(substring(pg_get_triggerdef(t.oid) FROM $$owner_type\)::text = '((?:[^']|'')*)'$$), $$''$$, $$'$$) AS type, p.prosrc AS source
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = '{schema}.tasks'::regclass AND p.pronamespace = '{schema}'::regnamespace AND starts_with(p.proname::text, 'owner_guarded_')
ORDER BY type
