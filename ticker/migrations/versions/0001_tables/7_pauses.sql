-- Pauses of many tasks: one row for all tasks, or for those of a group, a function, a queue, a type of owner, or a
-- limit.

CREATE FUNCTION words_of_pause(scope text, value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE scope WHEN 'all' THEN 'all tasks' WHEN 'owner_type' THEN 'tasks of owners of type ' || value
    WHEN 'unknown' THEN 'tasks of the unknown function ' || value
    ELSE 'tasks of the ' || scope || ' ' || value END;

-- A pause of many tasks is an event of the installation, whoever writes the row.
CREATE FUNCTION note_pause() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.events (task_id, what, by, words)
    VALUES (0, CASE WHEN NEW.resumed_at IS NULL THEN 'paused' ELSE 'resumed' END,
        left(CASE WHEN NEW.resumed_at IS NULL THEN NEW."by" ELSE NEW.resumed_by END, 200),
        concat_ws(': ', {schema}.words_of_pause(NEW.scope, NEW.value), nullif(NEW.reason, '')));
    RETURN NULL;
END $$;
CREATE TRIGGER pauses_note AFTER INSERT OR UPDATE OF by, reason, until, resumed_at ON pauses
FOR EACH ROW WHEN (NEW.scope <> 'unknown') EXECUTE FUNCTION note_pause();

-- A worker may write waits for a worker (`unknown`), but no pause of people: it has no right to change their reasons.
-- The function has the rights of the role that writes.
CREATE FUNCTION guard_pause() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT has_column_privilege(TG_RELID, 'reason', 'UPDATE') THEN
        RAISE insufficient_privilege USING MESSAGE = format(
            'the role %s may not pause or resume %s: that needs the right to update pauses.reason',
            current_user, {schema}.words_of_pause(NEW.scope, NEW.value));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER pauses_guard BEFORE INSERT OR UPDATE ON pauses
FOR EACH ROW WHEN (NEW.scope <> 'unknown') EXECUTE FUNCTION guard_pause();

-- A task that the pause may no longer be for does not wait for it. After the pause, each task waits for its turn.
CREATE FUNCTION leave_pause() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.pauses WHERE id = OLD.pause_id AND resumed_at IS NULL) THEN
        NEW.pause_id := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tasks_leave_pause BEFORE UPDATE OF function, queue, group_name, owner_type, limits ON tasks FOR EACH ROW
WHEN (OLD.pause_id IS NOT NULL AND (NEW.function, NEW.queue, NEW.group_name, NEW.owner_type, NEW.limits)
    IS DISTINCT FROM (OLD.function, OLD.queue, OLD.group_name, OLD.owner_type, OLD.limits))
EXECUTE FUNCTION leave_pause();

-- An occurrence that went back to the row is pushed again. If the task becomes due at another time instead, for example
-- by an edit, the occurrence is recorded as dropped: each occurrence that was pushed has a record.
CREATE FUNCTION note_waits_again() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE added integer := 0;
BEGIN
    IF NOT OLD.waits_again = ANY (NEW.waiting) THEN
        INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome,
            reason, ended_at, created_at, checked_last_run, checked_at, every_ms, tolerance_ms, queue)
        SELECT OLD.id, OLD.name, OLD.function, OLD.owner_type, OLD.owner_id, 'scheduled', OLD.waits_again, 'ended',
            'dropped', 'superseded', now, now, OLD.last_run, now, OLD.every_ms, OLD.tolerance_ms, OLD.queue
        FROM (SELECT clock_timestamp() AS now) i
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS added = ROW_COUNT;
    END IF;
    NEW.dropped := NEW.dropped + added;
    NEW.waits_again := nullif(NEW.waits_again, OLD.waits_again);
    NEW.wait_reason := CASE WHEN NEW.waits_again IS NOT NULL THEN NEW.wait_reason END;
    RETURN NEW;
END $$;
CREATE TRIGGER tasks_note_return BEFORE UPDATE OF next_run ON tasks FOR EACH ROW
WHEN (OLD.waits_again IS NOT NULL AND NEW.next_run IS DISTINCT FROM OLD.waits_again) EXECUTE FUNCTION note_waits_again();

-- If a worker does not know a function, its tasks in the queue wait for one that does. The first start ends that. (A tick ends a wait
-- without a start.) Later refusals, as from an old worker next to a new one, are no cause to wait again, for some time. Nothing waits for
-- another transaction that notes the same. The worker executes this with its own rights.
CREATE FUNCTION note_worker(function text, queue text, knows_it boolean, worker text, at timestamptz, pause interval) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF knows_it THEN
        UPDATE {schema}.pauses p SET resumed_at = at, resumed_by = left(worker, 200) FROM (
            SELECT p.id FROM {schema}.pauses p WHERE p.scope = 'unknown' AND p.value = function AND p.of_queue = queue
                AND p.resumed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) o
        WHERE p.id = o.id;
    ELSIF pg_try_advisory_xact_lock('{schema}.pauses'::regclass::oid::bigint) THEN
        INSERT INTO {schema}.pauses (scope, value, of_queue, by, reason, paused_at)
        SELECT 'unknown', function, queue, left(worker, 200), 'a worker did not know it', at WHERE NOT EXISTS (
            SELECT FROM {schema}.pauses p WHERE p.scope = 'unknown' AND p.value = function AND p.of_queue = queue
                AND p.resumed_by <> 'ticker' AND p.resumed_at BETWEEN at - pause AND at)
        ON CONFLICT DO NOTHING;
    END IF;
END $$;

REVOKE ALL ON FUNCTION note_pause(), guard_pause(), leave_pause(), note_waits_again() FROM PUBLIC;
