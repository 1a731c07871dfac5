"""Contains the SQL of the functions and triggers that `owners` installs on an owner's table, with placeholders for names."""

BODY = "$ticker$"
"""The delimiter around the body of each function. No name or condition inside may contain it."""

EVENTS = ("deleted", "truncated", "changed", "guarded", "added")
"""The functions of the triggers."""
PARTS = ("id", "active", "same", "key")
"""The functions that these call, each before those that it calls. They contain the key and the condition."""

# pg_temp last: with an empty search_path, PostgreSQL looks for types in pg_temp first, and the CHECK of a caller's temporary
# domain "text" would run with the definer's rights. No sequential scans: a plan cached while the tables were small would
# compare each of 10,000 ids with each task.
SETTINGS = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off"

# id, active, same: the owner's id, whether it is active, and whether the id is its own. PostgreSQL parses them when they are
# created. So it follows a column that is renamed, refuses to drop one, and inlines them: an index finds an owner by its id. In the
# text of a trigger's function, it would do neither, and the application's next statement would fail.
# key: the id as values of the key's columns, or NULL if it cannot be one: there is no such owner. No other error is handled.
# deleted, truncated: one statement for all owners. Tasks are locked in the order of their ids, as everywhere else.
# changed: row by row, only WHEN a relevant column changes. With transition tables, unrelated updates cost six times as much.
# guarded: a task is written only if its owner exists with exactly this id. The lock makes a DELETE wait for the new task, and
# the new task for the DELETE. With a condition it makes every UPDATE wait, because KEY SHARE would allow an owner to be disabled
# at the same time: the trigger would not see the task, and the task would not see the change.
# added: creates the default tasks of new owners in the statement that inserts them (`templates`). The next tick computes the
# first time of a cron or calendar task: the task is created paused until now, by `template`.
# The first statement makes PostgreSQL refuse outdated tables of the ticker here, rather than at the first new owner.
# The last one updates tasks that were registered earlier or under another condition. It also makes PostgreSQL refuse an
# invalid condition.
# A task that becomes active again is due like a task whose pause ends: the rule `resumed`.

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
OF_THIS_TYPE = "WHERE w.owner_type = {type} ORDER BY o.id, w.name ON CONFLICT (owner_type, owner_id, name) DO NOTHING"

TRIGGERS = """
SELECT FROM {templates} LIMIT 0;

CREATE OR REPLACE FUNCTION {key}(owner_id text, {declared}) LANGUAGE plpgsql STABLE AS $ticker$ BEGIN
    {assigned}
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
END $ticker$;

CREATE OR REPLACE FUNCTION {id}(o {relation}) RETURNS text LANGUAGE sql RETURN {id_o};

CREATE OR REPLACE FUNCTION {active}(o {relation}) RETURNS boolean LANGUAGE sql RETURN {active_o};

CREATE OR REPLACE FUNCTION {same}(o {relation}, owner_id text) RETURNS boolean LANGUAGE sql RETURN {compared};

CREATE OR REPLACE FUNCTION {deleted}() RETURNS trigger {settings} AS $ticker$ BEGIN
    DELETE FROM {tasks} WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
        WHERE owner_type = {type} AND owner_id = ANY (ARRAY(SELECT {id}(gone) FROM gone)) ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_deleted} AFTER DELETE ON {relation} REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {deleted}();

CREATE OR REPLACE FUNCTION {truncated}() RETURNS trigger {settings} AS $ticker$ BEGIN
    DELETE FROM {tasks} WHERE id = ANY (ARRAY(SELECT id FROM {tasks} WHERE owner_type = {type} ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_truncated} AFTER TRUNCATE ON {relation}
FOR EACH STATEMENT EXECUTE FUNCTION {truncated}();

CREATE OR REPLACE FUNCTION {changed}() RETURNS trigger {settings} AS $ticker$ BEGIN
    IF {active}(OLD) <> {active}(NEW) THEN
        UPDATE {tasks} t SET owner_active = {active}(NEW), next_run = CASE WHEN {active}(NEW) THEN {resumed} ELSE next_run END
        FROM (SELECT clock_timestamp() AS now) i
        WHERE owner_active <> {active}(NEW) AND id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = {id}(OLD) ORDER BY id FOR NO KEY UPDATE));
    END IF;
    IF {id}(OLD) <> {id}(NEW) THEN
        UPDATE {tasks} SET owner_id = {id}(NEW) WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = {id}(OLD) ORDER BY id FOR UPDATE));
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_changed} AFTER UPDATE ON {relation}
FOR EACH ROW WHEN ({active_OLD} <> {active_NEW} OR {id_OLD} <> {id_NEW}) EXECUTE FUNCTION {changed}();

CREATE OR REPLACE FUNCTION {guarded}() RETURNS trigger {settings} AS $ticker$ BEGIN
    SELECT {active}(o) INTO NEW.owner_active FROM {relation} o
    WHERE {same}(o, NEW.owner_id) AND {id}(o) = NEW.owner_id FOR {lock};
    IF FOUND THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_guarded} BEFORE INSERT OR UPDATE OF owner_type, owner_id ON {tasks}
FOR EACH ROW WHEN (NEW.owner_type = {type}) EXECUTE FUNCTION {guarded}();

CREATE OR REPLACE FUNCTION {added}() RETURNS trigger {settings} AS $ticker$ BEGIN
    {made} (SELECT {id}(added) AS id FROM added) o ON true {which};
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_added} AFTER INSERT ON {relation} REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION {added}();

UPDATE {tasks} t SET owner_active = o.active, next_run = CASE WHEN o.active THEN {resumed} ELSE next_run END
FROM (SELECT {id}(o) AS id, {active}(o) AS active FROM {relation} o) o, (SELECT clock_timestamp() AS now) i
WHERE owner_type = {type} AND owner_id = o.id AND owner_active <> o.active;
"""
