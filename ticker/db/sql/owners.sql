-- Types of owners, and the triggers by which tasks follow the rows of their tables.

-- rule: is_table
-- The type of owner is the name of a table here: in the search_path that the transaction had before ours, or in public.
EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND (n.nspname || '.' || c.relname = t.type
            OR c.relname = t.type AND (n.nspname = 'public' OR n.nspname = ANY (current_setting('ticker.schemas')::name[]))))

-- rule: spelled
-- The condition in the body of a function `active`, or the expression of `subject`, as a user writes it. Deparsed under
-- pg_catalog, it names all schemas.
replace(regexp_replace(regexp_replace(t.body, '^RETURN ', ''), '^\((.*) IS TRUE\)$', '\1'), '(o).', '')

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

-- name: types_of_owners
-- Lists the types of owners with tasks or default tasks, and whether they are names of tables here. Reads the index once for each
-- type, however many tasks there are.
WITH RECURSIVE types AS (
    SELECT min(owner_type) AS type FROM {schema}.tasks WHERE owner_type > ''
    UNION ALL
    SELECT (SELECT min(owner_type) FROM {schema}.tasks WHERE owner_type > types.type) FROM types WHERE type IS NOT NULL)
SELECT t.type, {is_table t} AS is_table, EXISTS (SELECT FROM {schema}.templates WHERE owner_type = t.type) AS has_defaults
FROM (SELECT type FROM types WHERE type IS NOT NULL UNION SELECT owner_type FROM {schema}.templates) t ORDER BY type

-- name: guards
-- Lists the types of owners that have a guard, with the view of the table's rows, the table, and whether the table's name is the
-- type. The guard of a dropped table stays. `condition` and `subject` are SQL over a row `o`. `planted` are objects that the triggers use, and that
-- belong neither to a superuser nor to the triggers' owner. Types of the table's own columns are left out.
SELECT g.type, v.view::regclass::text AS rows, pg_get_viewdef(v.view) AS definition, c.relname AS table_name,
    n.nspname || '.' || c.relname AS relation, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS quoted,
    (SELECT nullif(substr(pg_get_function_sqlbody(oid), length('RETURN ') + 1), 'true') FROM pg_proc
     WHERE oid = ANY (v.functions) AND prorettype = 'boolean'::regtype) AS condition,
    (SELECT nullif(substr(pg_get_function_sqlbody(oid), length('RETURN ') + 1), 'NULL::text') FROM pg_proc
     WHERE oid = ANY (v.functions) AND starts_with(proname, 'owner_subject_')) AS subject,
    c.relkind = 'p' AS is_partitioned,
    g.type IN (c.relname, n.nspname || '.' || c.relname) AS is_named,
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND g.type IN (c.relname, n.nspname || '.' || c.relname)) AS is_table,
    (SELECT string_agg(DISTINCT o.identity, ', ') FROM pg_depend d,
        LATERAL pg_identify_object(d.refclassid, d.refobjid, 0) o, LATERAL (SELECT coalesce(
            (SELECT proowner FROM pg_proc WHERE d.refclassid = 'pg_proc'::regclass AND oid = d.refobjid),
            (SELECT oprowner FROM pg_operator WHERE d.refclassid = 'pg_operator'::regclass AND oid = d.refobjid),
            (SELECT typowner FROM pg_type WHERE d.refclassid = 'pg_type'::regclass AND oid = d.refobjid AND typrelid = 0)) AS owner) w
     WHERE (d.classid, d.objid) IN (SELECT 'pg_proc'::regclass, unnest(v.functions)
            UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                WHERE t.tgrelid = v.relation AND p.pronamespace = '{schema}'::regnamespace)
        AND NOT (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (SELECT atttypid FROM pg_attribute WHERE attrelid = v.relation))
        AND w.owner <> g.proowner AND NOT (SELECT rolsuper FROM pg_roles WHERE oid = w.owner)) AS planted
FROM (SELECT obj_description(oid, 'pg_proc') AS type, proowner FROM pg_proc
      WHERE pronamespace = '{schema}'::regnamespace AND starts_with(proname, 'owner_guard_')
          AND prosecdef AND pronargs = 1 AND proargtypes[0] = 'text'::regtype AND obj_description(oid, 'pg_proc') IS NOT NULL) g
LEFT JOIN (SELECT obj_description(r.ev_class, 'pg_class') AS type, r.ev_class AS view,
               max(d.refobjid) FILTER (WHERE d.refclassid = 'pg_class'::regclass) AS relation,
               array_agg(d.refobjid) FILTER (WHERE d.refclassid = 'pg_proc'::regclass) AS functions
           FROM pg_class w JOIN pg_rewrite r ON r.ev_class = w.oid
           JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refobjid <> w.oid
           WHERE w.relnamespace = '{schema}'::regnamespace AND starts_with(w.relname, 'owner_rows_') GROUP BY r.ev_class) v USING (type)
LEFT JOIN pg_class c ON c.oid = v.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY type

-- name: rename_owner_type
-- Moves the default tasks and the pauses of a type of owner to another type, which keeps its own.
WITH taken AS (
    DELETE FROM {schema}.templates w WHERE w.owner_type = %(old)s
        AND EXISTS (SELECT FROM {schema}.templates n WHERE n.owner_type = %(new)s AND n.name = w.name)
), renamed AS (
    UPDATE {schema}.templates w SET owner_type = %(new)s WHERE w.owner_type = %(old)s
        AND NOT EXISTS (SELECT FROM {schema}.templates n WHERE n.owner_type = %(new)s AND n.name = w.name)
)
UPDATE {schema}.pauses p SET value = %(new)s WHERE scope = 'owner_type' AND value = %(old)s AND resumed_at IS NULL
    AND NOT EXISTS (SELECT FROM {schema}.pauses n WHERE n.scope = 'owner_type' AND n.value = %(new)s AND n.resumed_at IS NULL)

-- name: replace_renamed
-- Deletes each task of the new type that has the owner's id and the name of one of the next tasks of the old type. The old task
-- then runs no earlier than the deleted one would have.
WITH chosen AS MATERIALIZED (
    SELECT id, owner_id, name FROM {schema}.tasks WHERE owner_type = %(old)s AND id > %(after)s::bigint
    ORDER BY id LIMIT %(limit)s FOR UPDATE
), gone AS (
    DELETE FROM {schema}.tasks t USING chosen c WHERE t.owner_type = %(new)s AND t.owner_id = c.owner_id AND t.name = c.name
        AND {as_author}
    RETURNING c.id, t.last_run, t.next_run
)
UPDATE {schema}.tasks t SET last_run = greatest(t.last_run, g.last_run), next_run = greatest(t.next_run, g.next_run)
FROM gone g WHERE t.id = g.id

-- name: move_renamed
-- Moves the next tasks of a type to the new type, if their owners exist. Returns the last id that it has looked at; NULL at the end.
WITH chosen AS MATERIALIZED (
    SELECT id FROM {schema}.tasks WHERE owner_type = %(old)s AND id > %(after)s::bigint ORDER BY id LIMIT %(limit)s FOR UPDATE
), moved AS (
    UPDATE {schema}.tasks SET owner_type = %(new)s WHERE id = ANY (ARRAY(SELECT id FROM chosen)) RETURNING id
)
SELECT (SELECT max(id) FROM chosen) AS last, (SELECT count(*) FROM moved) AS moved

-- name: keeps_subject
-- Returns a row if triggers keep the subjects of the tasks of this type of owner.
SELECT proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace AND prosecdef AND pronargs = 1 AND proargtypes[0] = 'text'::regtype
    AND proname = 'owner_named_' || left(encode(sha256(convert_to(%(type)s::text, 'UTF8')), 'hex'), 32)

-- name: row_security
-- Sets `row_security`, and returns the role and the value before. If it is off, PostgreSQL raises an error instead of hiding rows.
SELECT current_user::text AS role, before, set_config('row_security', %(value)s, true)
FROM (SELECT current_setting('row_security') AS before OFFSET 0) s

-- name: schema_of
-- Returns the schema in which the search_path that the transaction had before ours finds a table.
SELECT n.nspname AS schema FROM unnest(current_setting('ticker.schemas')::name[]) WITH ORDINALITY AS s (name, n)
JOIN pg_namespace n ON n.nspname = s.name JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = %(table)s
ORDER BY s.n LIMIT 1
