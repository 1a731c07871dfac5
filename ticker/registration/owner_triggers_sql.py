"""What `owners` installs on an owner's table: the functions and triggers, as a document with names to be filled in."""

BODY = "$ticker$"
"""The delimiter around the body of each function. No name or condition inside may contain it."""

EVENTS = ("deleted", "truncated", "changed", "guarded", "added")

# pg_temp last: with an empty search_path types are looked for in pg_temp first, and a caller's temporary domain "text"
# ran its CHECK with the definer's rights. No sequential scan: a plan that was kept since the tables were small would
# compare each of 10,000 ids with each task.
SETTINGS = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off"

# Deleted and truncated: one statement for all owners; tasks are locked by id, as everywhere else.
# Changed: row by row, WHEN it matters; by transition tables unrelated updates would cost six times as much.
# Guarded: no task is written unless its owner is there, by exactly this id. The lock makes a DELETE wait for the new
# task, and the new task for the DELETE. With a condition it makes any UPDATE wait: KEY SHARE would let an owner be
# disabled in the same moment, by a trigger that does not see the task, before a task that does not see the change.
# Added: the default tasks of new owners, in the statement that made these (`templates`). A task by cron or calendar has its
# first time computed by the next tick: it is paused until now, and waits for its time as every task does whose pause ends.
# First: PostgreSQL refuses here, and not at the first new owner, where the ticker's tables are older than this.
# Last, what was registered before, or under another condition; PostgreSQL refuses here what is no condition.
# A task that becomes active again is due as one whose pause ends: the rule `resumed`.

# Creates the default tasks of some owners `o`. An owner that already has a task of that name keeps it. A field that was added
# after the list of default tasks was written has its default. Default tasks have no end: `defaults` refuses it.
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

CREATE OR REPLACE FUNCTION {deleted}() RETURNS trigger {settings} AS $ticker$ BEGIN
    DELETE FROM {tasks} WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
        WHERE owner_type = {type} AND owner_id = ANY (ARRAY(SELECT {id_gone} FROM gone)) ORDER BY id FOR UPDATE));
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
    IF {active_OLD} <> {active_NEW} THEN
        UPDATE {tasks} t SET owner_active = {active_NEW}, next_run = CASE WHEN {active_NEW} THEN {resumed} ELSE next_run END
        FROM (SELECT clock_timestamp() AS now) i
        WHERE owner_active <> {active_NEW} AND id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = {id_OLD} ORDER BY id FOR NO KEY UPDATE));
    END IF;
    IF {id_OLD} <> {id_NEW} THEN
        UPDATE {tasks} SET owner_id = {id_NEW} WHERE id = ANY (ARRAY(SELECT id FROM {tasks}
            WHERE owner_type = {type} AND owner_id = {id_OLD} ORDER BY id FOR UPDATE));
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_changed} AFTER UPDATE ON {relation}
FOR EACH ROW WHEN ({active_OLD} <> {active_NEW} OR {id_OLD} <> {id_NEW}) EXECUTE FUNCTION {changed}();

CREATE OR REPLACE FUNCTION {guarded}() RETURNS trigger {settings} AS $ticker$
#variable_conflict use_column
DECLARE {declared}
BEGIN
    BEGIN
        {assigned}
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        RETURN NULL;
    END;
    SELECT {active} INTO NEW.owner_active FROM {relation} o
    WHERE {compared} AND {id_o} = NEW.owner_id FOR {lock};
    IF FOUND THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_guarded} BEFORE INSERT OR UPDATE OF owner_type, owner_id ON {tasks}
FOR EACH ROW WHEN (NEW.owner_type = {type}) EXECUTE FUNCTION {guarded}();

CREATE OR REPLACE FUNCTION {added}() RETURNS trigger {settings} AS $ticker$ BEGIN
    {made} (SELECT {id_added} AS id FROM added) o ON true {which};
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER {on_added} AFTER INSERT ON {relation} REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION {added}();

UPDATE {tasks} t SET owner_active = o.active, next_run = CASE WHEN o.active THEN {resumed} ELSE next_run END
FROM (SELECT {id_o} AS id, {active} AS active FROM {relation} o) o, (SELECT clock_timestamp() AS now) i
WHERE owner_type = {type} AND owner_id = o.id AND owner_active <> o.active;
"""
