-- Three of the next triggers record all changes of `tasks`, including those by raw SQL. Each of their functions names
-- its schema. If it wrote to the schema of its trigger's table, it could be made to write anywhere, with its definer's
-- rights. pg_temp comes last in their search_path, because otherwise a caller's temporary objects would be found first.
-- The author is the one given to an operation (ticker.by), or else the user of the session.

-- Records pauses, switches and resumptions, and since when successes are expected again. The author of a pause is in
-- the task's row.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE event text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed'
            WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
    WHEN NEW.enabled <> OLD.enabled THEN CASE WHEN NEW.enabled THEN 'enabled' ELSE 'disabled' END
    WHEN NEW.owner_active THEN 'owner_active' ELSE 'owner_inactive' END;
    is_pause boolean := event IN ('paused', 'auto_paused');
BEGIN
    IF NEW.enabled AND NEW.owner_active AND NEW.paused_by IS NULL THEN
        NEW.resumed_at := clock_timestamp();
    END IF;
    -- that it pauses itself once more is no news, until it has worked again
    INSERT INTO {schema}.events (task_id, task_name, function, owner_type, owner_id, what, by, words, told)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, event,
        CASE WHEN is_pause THEN coalesce(NEW.paused_by, '')
            ELSE left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200) END,
        CASE WHEN event = 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, ''))
            WHEN is_pause THEN NEW.paused_reason ELSE '' END,
        event = 'auto_paused' AND EXISTS (SELECT FROM {schema}.events e WHERE e.task_id = NEW.id AND e.what = event
            AND e.id > coalesce(
                (SELECT max(id) FROM {schema}.events WHERE task_id = NEW.id AND what = 'recovered'), 0));
    RETURN NEW;
END $$;

CREATE TRIGGER tasks_note_change BEFORE UPDATE OF enabled, owner_active, paused_by ON tasks FOR EACH ROW
WHEN (NEW.enabled IS DISTINCT FROM OLD.enabled OR NEW.owner_active IS DISTINCT FROM OLD.owner_active
      OR NEW.paused_by IS DISTINCT FROM OLD.paused_by)
EXECUTE FUNCTION note_change();

-- Skips a task whose owner does not exist, and otherwise sets `owner_active`. If the rows of a table are owners of this
-- type, `owners` has made a guard for them: a function that returns whether the owner is active, or NULL if there is
-- none, and with `subject_from` also one that returns the owner's subject. Both must be SECURITY DEFINER. Otherwise, a role
-- that may create functions here could run one with the rights of this function.
CREATE FUNCTION guard_owner() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash text := left(encode(sha256(convert_to(NEW.owner_type, 'UTF8')), 'hex'), 32);
    guard text := 'owner_guard_' || hash;
    named text := 'owner_named_' || hash;
    known text[] := ARRAY(SELECT proname FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace AND prosecdef
        AND pronargs = 1 AND proargtypes[0] = 'text'::regtype AND proname IN (guard, named));
BEGIN
    IF guard = ANY (known) THEN
        EXECUTE format('SELECT {schema}.%I($1)', guard) INTO NEW.owner_active USING NEW.owner_id::text;
        IF NEW.owner_active IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    IF named = ANY (known) THEN
        EXECUTE format('SELECT {schema}.%I($1)', named) INTO NEW.subject USING NEW.owner_id::text;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER tasks_guard_owner BEFORE INSERT OR UPDATE OF owner_type, owner_id ON tasks FOR EACH ROW
WHEN (NEW.owner_type <> '') EXECUTE FUNCTION guard_owner();

-- Records the old and the new value of each edited field that the trigger names. Arguments and metadata may hold
-- secrets: for them, it records only that they changed. `told` is true, since edits and deletions are not notified.
CREATE FUNCTION note_edit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
DECLARE before jsonb := to_jsonb(OLD); after jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO {schema}.events (task_id, task_name, function, owner_type, owner_id, what, by, told, words)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, 'edited',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true,
        string_agg(CASE WHEN field IN ('kwargs', 'metadata') THEN field || ' changed' ELSE
            regexp_replace(field, '_(ms|at|name)$', '') || ': ' || (SELECT string_agg(coalesce(nullif(CASE
                WHEN field NOT LIKE '%\_ms' THEN left(v, 60) || CASE WHEN length(v) > 60 THEN '…' ELSE '' END
                ELSE concat(nullif(v::bigint / 86400000, 0) || 'd', nullif(v::bigint / 3600000 % 24, 0) || 'h',
                    nullif(v::bigint / 60000 % 60, 0) || 'm', nullif(v::bigint / 1000 % 60, 0) || 's',
                    nullif(v::bigint % 1000, 0) || 'ms') END, ''), 'none'), ' -> ' ORDER BY m)
            FROM (VALUES (1, before ->> field), (2, after ->> field)) AS one (m, v)) END, ', ' ORDER BY n)
    FROM regexp_split_to_table(TG_ARGV[0], '\W+') WITH ORDINALITY AS f (field, n)
    WHERE before -> field <> after -> field;
    RETURN NULL;
END $$;

DO $$
DECLARE columns text := 'function, kwargs, kind, expression, zone, every_ms, tolerance_ms, box_ms, queue, starts_at,
    ends_at, max_runs, catch_up, remove, overlap, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep,
    submitter, group_name, priority, spread, subject, description, metadata, within_ms, limits, every_most_ms, during';
BEGIN
    EXECUTE format('CREATE TRIGGER tasks_note_edit AFTER UPDATE OF %s ON tasks FOR EACH ROW'
        ' WHEN (ROW(%s) IS DISTINCT FROM ROW(%s)) EXECUTE FUNCTION note_edit(%L)',
        columns, regexp_replace(columns, '(\w+)', 'OLD.\1', 'g'), regexp_replace(columns, '(\w+)', 'NEW.\1', 'g'),
        columns);
END $$;

-- Records a deletion. Waiting occurrences end with their task, and runs continue. Planned pieces, of which there may be
-- a million, are left to ticks (drop_orphaned_plans), because ending them here would exceed the statement timeout.
-- Sequential scans are off, because a plan cached for a deletion of many tasks would read all runs for a single one.
CREATE FUNCTION note_deletion() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, told)
    SELECT now, id, name, function, owner_type, owner_id, 'deleted',
        left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200), true
    FROM gone ORDER BY id;
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
        reason, ended_at, created_at, queue)
    SELECT id, name, function, owner_type, owner_id, 'scheduled', occurrence, 'ended', 'dropped', 'gone',
        now, now, queue
    FROM gone, unnest(waiting || array_remove(ARRAY[waits_again]::timestamptz[], NULL)) AS occurrence
    ORDER BY occurrence, id ON CONFLICT DO NOTHING;
    UPDATE {schema}.runs SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = now
    WHERE state IN ('planned', 'pushed') AND id = ANY (ARRAY(SELECT r.id FROM gone g, LATERAL (
        SELECT id FROM {schema}.runs WHERE task_id = g.id AND state IN ('planned', 'pushed')
            AND NOT (kind = 'piece' AND attempt = 1 AND state = 'planned') OFFSET 0) r));
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_note_deletion AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_deletion();

-- Otherwise any role could use these functions in triggers on its own tables, with the rights of the schema's owner.
REVOKE ALL ON FUNCTION note_change(), guard_owner(), note_edit(), note_deletion() FROM PUBLIC;
