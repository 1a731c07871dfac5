"""Contains the SQL that `owners` runs to install triggers on an owner's table, with placeholders for names."""

RESERVED = "$ticker"
"""The beginning of the delimiters around the block and the bodies of its functions. No name or condition may contain
it.
"""
REFUSED = "TK001"
"""The SQLSTATE with which the block refuses a table. The error's message is a sentence for users."""

EVENTS = ("deleted", "truncated", "changed", "added")
"""The functions of the triggers."""
PARTS = ("id", "active", "subject", "key")
"""The functions that these call. They contain the key, the condition and the subject."""

# pg_temp last: with an empty search_path, PostgreSQL looks for types in pg_temp first, and the CHECK of a caller's temporary
# domain "text" would run with the definer's rights. No sequential scans: a plan cached while the tables were small would
# compare each of 10,000 ids with each task.
SETTINGS = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off"

# Creates the default tasks of the owners `o`. An owner that already has a task of that name keeps it. A field that was added
# after the default tasks were written has its default value. Default tasks have no end, because `defaults` refuses `ends`.
INSERT_DEFAULT_TASKS = """INSERT INTO {tasks} (owner_type, owner_id, name, registered, {fields}, grace_ms, alarm_at, next_run, paused_by,
        paused_reason, paused_until)
    SELECT w.owner_type, o.id, w.name, t.registered, {fields_of_t}, t.grace_ms,
        CASE WHEN t.dead_man IS NOT NULL THEN i.now END, CASE WHEN p.by IS NULL THEN greatest(i.now, t.starts_at) ELSE i.now END,
        p.by, p.reason, CASE WHEN p.by IS NOT NULL THEN i.now END
    FROM (SELECT clock_timestamp() AS now OFFSET 0) i CROSS JOIN {templates} w
    CROSS JOIN LATERAL jsonb_populate_record(NULL::{tasks}, {defaults}::jsonb || w.task) t
    CROSS JOIN LATERAL (SELECT CASE WHEN t.kind <> 'interval' THEN 'template' END AS by,
                               CASE WHEN t.kind <> 'interval' THEN 'waits for its first time' ELSE '' END AS reason) p
    JOIN"""
# Parses an expression over an owner's row under the caller's search_path and under ours, and refuses it if they differ.
PARSED = """
understood := NULL;
PERFORM set_config('search_path', given_path, true);
CREATE OR REPLACE FUNCTION {function}(o {relation}) RETURNS {returned} LANGUAGE sql RETURN {expression};
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
meant := pg_get_function_sqlbody({name}::regprocedure);
BEGIN
    CREATE OR REPLACE FUNCTION {function}(o {relation}) RETURNS {returned} LANGUAGE sql RETURN {expression};
    understood := pg_get_function_sqlbody({name}::regprocedure);
    why := 'means ' || (SELECT {spelled} FROM (SELECT understood AS body) t);
EXCEPTION WHEN syntax_error_or_access_rule_violation THEN
    why := 'fails: ' || SQLERRM;
END;
IF understood IS DISTINCT FROM meant THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('{option} depends on the search_path, which triggers '
        'do not have; without it, the {sort} %s; name the schema of each function, operator and type; this session '
        'reads it as {option}=%s', why, (SELECT to_json({spelled}) FROM (SELECT meant AS body) t));
END IF;
"""
# The owner's subject, as the field of that name takes it. NULL is no subject.
SUBJECT = "left(regexp_replace(coalesce({subject}, ''), '[[:cntrl:]]', ' ', 'g'), 200)"
# Gives a new task, or one that gets another owner, its subject. Runs after the guard, which has locked the owner's row.
NAMED = """CREATE OR REPLACE FUNCTION {named}(owner text) RETURNS text {settings} AS $ticker$ BEGIN
    RETURN (SELECT {subject_of_v} FROM {rows} v WHERE $ticker_compared AND v.id = owner);
END $ticker$;"""
OF_THIS_TYPE = "WHERE w.owner_type = {type} ORDER BY o.id, w.name ON CONFLICT (owner_type, owner_id, name) DO NOTHING"

# One statement, which writes all or nothing, also outside a transaction.
#
# search_path: everything is parsed under pg_catalog alone. Under the caller's path, anyone who may create objects in
# one of its schemas could plant an operator or function, which would run with the rights of the installing role. Only
# the condition is parsed under both paths, because it may read `status = 'on'` for a citext, whose operator is
# elsewhere: if the two readings differ, it is refused, with the spelling that means the same everywhere.
# lock_timeout: a session that waits for a table's lock makes all later ones wait, so each attempt gives up soon.
#
# id, active, subject: the owner's id, whether it is active, and its subject. rows: these for each row, with the columns of the key.
# PostgreSQL parses them when they are created. So it follows a renamed table or column, refuses to drop one, and
# inlines them: an index finds an owner by its key. In the text of a function in PL/pgSQL, it would do neither, and
# the application's next statement would fail.
# key: the id as values of the key's columns, or NULL if it cannot be one: there is no such owner. No other error is
# handled.
# guard: whether the owner with exactly this id is active, or NULL if there is none. The trigger tasks_guard_owner
# asks it before a task is written. A key is compared as by its index. The lock makes a DELETE wait for the new task,
# and the new task for the DELETE. With a condition or a subject it makes every UPDATE wait, because KEY SHARE would allow an owner
# to be disabled at the same time: the trigger would not see the task, and the task would not see the change.
# named: the subject of the owner with this id, if the triggers keep it.
# deleted, truncated: one statement for all owners. TRUNCATE ONLY leaves the rows of inheriting tables. Tasks are
# locked in the order of their ids, as everywhere else.
# changed: row by row, only WHEN a relevant column changes. With transition tables, unrelated updates cost six times
# as much. An UPDATE that moves a row to another partition fires no AFTER UPDATE trigger for it. So a partitioned
# table has two more triggers: `arrived` looks at each row that is inserted, and `moved` refuses to change a key.
# added: creates the default tasks of new owners in the statement that inserts them (`templates`). The next tick
# computes the first time of a cron or calendar task: the task is created paused until now, by `template`.
# The last statement updates tasks that were registered earlier or under another condition. It must see every owner,
# whatever policy the table has. A task that becomes active again is due like a task whose pause ends: the rule
# `resumed`.
INSTALL = """DO $ticker_install$
DECLARE
    given_path pg_catalog.text := pg_catalog.current_setting('search_path');
    given_timeout pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    given_security pg_catalog.text := pg_catalog.current_setting('row_security');
    meant pg_catalog.text;
    understood pg_catalog.text;
    why pg_catalog.text;
    names pg_catalog.text;
    compared pg_catalog.text;
    is_whole_key pg_catalog.bool;
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
IF to_regprocedure({guard_owner_name}) IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = 'the tables of this release are missing; run: ticker db upgrade';
END IF;
IF to_regclass({relation_name}) IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('there is no table %s; pass table_schema=, or '
        'declare a table that exists once in each schema with owners.per_schema', {relation_name});
END IF;
SELECT p.proargtypes[0]::regtype::text INTO names FROM pg_proc p
WHERE p.pronamespace = {schema_name}::regnamespace AND p.proname = {name_of_id}
    AND p.proargtypes[0] <> {relation_name}::regtype;
IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('owners of the type %s are already the rows of %s; '
        'declare a table that exists once in each schema with owners.per_schema', {type}, names);
END IF;
SELECT string_agg(DISTINCT quote_ident(pg_get_userbyid(proowner)), ', ') INTO names FROM pg_proc
WHERE pronamespace = {schema_name}::regnamespace AND proname = ANY ({functions})
    AND pg_get_userbyid(proowner) <> current_user;
IF names IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('functions of the type %s belong to %s, who may change '
        'them; install the triggers as that role, or drop them first (owners.drop_triggers)', {type}, names);
END IF;

FOR attempt IN 1..{attempts} LOOP BEGIN
PERFORM set_config('lock_timeout', '500ms', true);
LOCK TABLE {relation} IN SHARE ROW EXCLUSIVE MODE;

CREATE OR REPLACE FUNCTION {id}(o {relation}) RETURNS text LANGUAGE sql RETURN {id_o};

{parsed_active}{parsed_subject}
SELECT string_agg(DISTINCT quote_ident(k.attname), ', '), count(DISTINCT k.attname) = cardinality({keys})
INTO names, is_whole_key
FROM pg_partition_tree({relation_name}::regclass) p
JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = p.relid AND d.objsubid > 0 AND d.deptype = 'i'
    AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p.relid AND d.refobjsubid = 0
JOIN pg_attribute k ON k.attrelid = p.relid AND k.attnum = d.objsubid WHERE k.attname = ANY ({keys});
IF names IS NOT NULL AND NOT is_whole_key THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('%s is partitioned by %s, and a key must not change in a '
        'partitioned table; pass the columns that are unique without it, as in key=''id''', {relation_name}::regclass, names);
END IF;

CREATE OR REPLACE FUNCTION {key}(owner text, {declared}) LANGUAGE plpgsql STABLE AS $ticker$ BEGIN
    {assigned}
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
END $ticker$;

CREATE OR REPLACE VIEW {rows} AS SELECT {id}(ticker_o) AS id, {active}(ticker_o) AS active, {columns}, {subject}(ticker_o) AS subject
FROM {relation} ticker_o, (SELECT) AS one;

SELECT string_agg(
    format('v.ticker_key_%s OPERATOR(%s) %s', n - 1, coalesce(e.operator, 'pg_catalog.='), ({values})[n]), ' AND ')
INTO compared
FROM unnest({keys}) WITH ORDINALITY AS column_of_key (name, n) LEFT JOIN LATERAL (
    SELECT format('%I.%s', s.nspname, p.oprname) AS operator
    FROM pg_attribute a JOIN pg_index x ON x.indrelid = a.attrelid AND x.indisunique
    CROSS JOIN LATERAL unnest(x.indkey::int2[], x.indclass::oid[]) AS i (attnum, opclass)
    JOIN pg_opclass c ON c.oid = i.opclass
    JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
        AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    JOIN pg_operator p ON p.oid = m.amopopr JOIN pg_namespace s ON s.oid = p.oprnamespace
    WHERE a.attrelid = {relation_name}::regclass AND a.attname = column_of_key.name AND i.attnum = a.attnum
    ORDER BY x.indisprimary DESC LIMIT 1) e ON true;
EXECUTE replace($ticker_guard$
CREATE OR REPLACE FUNCTION {guard}(owner text) RETURNS boolean {settings} AS $ticker$ DECLARE found boolean; BEGIN
    SELECT v.active INTO found FROM {rows} v
    WHERE $ticker_compared AND v.id = owner FOR {lock} OF v;
    RETURN found;
END $ticker$; {name_new} $ticker_guard$, '$ticker_compared', compared);
COMMENT ON FUNCTION {guard}(text) IS {type};
COMMENT ON VIEW {rows} IS {type};

CREATE OR REPLACE FUNCTION {deleted}() RETURNS trigger {settings} AS $ticker$ BEGIN
    DELETE FROM {tasks} WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
        WHERE owner_type = {type} AND owner_id = ANY (ARRAY(SELECT {id}(gone) FROM gone)) ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_deleted} AFTER DELETE ON {relation} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {deleted}();

CREATE OR REPLACE FUNCTION {truncated}() RETURNS trigger {settings} AS $ticker$ BEGIN
    DELETE FROM {tasks} WHERE id = ANY (ARRAY(SELECT id FROM {tasks} t
        WHERE owner_type = {type} AND NOT EXISTS (SELECT FROM {rows} o WHERE o.id = t.owner_id) ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_truncated} AFTER TRUNCATE ON {relation}
FOR EACH STATEMENT EXECUTE FUNCTION {truncated}();

CREATE OR REPLACE FUNCTION {changed}() RETURNS trigger {settings} AS $ticker$ DECLARE held text; BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        RAISE EXCEPTION 'the key of a row in the partitioned table % cannot change, because its tasks would not follow',
            TG_RELID::regclass;
    END IF;
    IF TG_OP = 'INSERT' OR {active}(OLD) <> {active}(NEW) THEN
        IF TG_OP = 'INSERT' THEN held := {id}(NEW); ELSE held := {id}(OLD); END IF;
        UPDATE {tasks} t SET owner_active = {active}(NEW), next_run = CASE WHEN {active}(NEW) THEN {resumed} ELSE next_run END
        FROM (SELECT clock_timestamp() AS now) i
        WHERE owner_active <> {active}(NEW) AND id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = held ORDER BY id FOR NO KEY UPDATE));
    END IF;
    {name_changed}
    IF TG_OP = 'INSERT' THEN
        RETURN NULL;
    END IF;
    IF {id}(OLD) <> {id}(NEW) THEN
        UPDATE {tasks} SET owner_id = {id}(NEW) WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = {id}(OLD) ORDER BY id FOR UPDATE));
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_changed} AFTER UPDATE ON {relation}
FOR EACH ROW WHEN ({active_OLD} <> {active_NEW} OR {id_OLD} <> {id_NEW}{or_subject}) EXECUTE FUNCTION {changed}();

IF (SELECT relkind = 'p' FROM pg_class WHERE oid = {relation_name}::regclass) THEN
    CREATE OR REPLACE TRIGGER {on_moved} BEFORE UPDATE ON {relation}
    FOR EACH ROW WHEN ({id_OLD} <> {id_NEW}) EXECUTE FUNCTION {changed}();
    CREATE OR REPLACE TRIGGER {on_arrived} AFTER INSERT ON {relation} FOR EACH ROW EXECUTE FUNCTION {changed}();
END IF;

CREATE OR REPLACE FUNCTION {added}() RETURNS trigger {settings} AS $ticker$ BEGIN
    {made} (SELECT {id}(added) AS id FROM added) o ON true {which};
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_added} AFTER INSERT ON {relation} REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION {added}();

-- Otherwise, any user could attach a trigger function to a table. Only the owner of guard_owner calls the guard.
REVOKE ALL ON FUNCTION {deleted}(), {truncated}(), {changed}(), {added}(), {asked} FROM PUBLIC;
EXECUTE (SELECT $ticker_grant$GRANT EXECUTE ON FUNCTION {asked} TO $ticker_grant$ || quote_ident(pg_get_userbyid(proowner))
    FROM pg_proc WHERE oid = {guard_owner_name}::regprocedure);

IF EXISTS (SELECT FROM {tasks} WHERE owner_type = {type}) THEN BEGIN
    PERFORM set_config('row_security', 'off', true);
    UPDATE {tasks} t SET owner_active = o.active, next_run = CASE WHEN o.active THEN {resumed} ELSE next_run END
    FROM {rows} o, (SELECT clock_timestamp() AS now) i
    WHERE owner_type = {type} AND owner_id = o.id AND owner_active <> o.active;
    {name_existing}
    PERFORM set_config('row_security', given_security, true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('%s has tasks, and %s cannot see all of its rows (%s); '
        'install the triggers as a role that can, such as one with BYPASSRLS', {relation_name}::regclass, current_user, SQLERRM);
END; END IF;

EXIT;
EXCEPTION WHEN lock_not_available THEN
    IF attempt = {attempts} THEN
        RAISE EXCEPTION USING ERRCODE = '{refused}', MESSAGE = format('%s, or one of its tasks, is locked by another '
            'transaction ({attempts} attempts failed); install the triggers when that has ended', {relation_name}::regclass);
    END IF;
    PERFORM pg_sleep(0.5);
END; END LOOP;
PERFORM set_config('lock_timeout', given_timeout, true);
PERFORM set_config('search_path', given_path, true);
END $ticker_install$;"""
