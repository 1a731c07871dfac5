-- The audit trail of a fault run: every committed change of a task or a run, written by the database itself.

CREATE SCHEMA audit;

CREATE TABLE audit.changes (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    xid bigint NOT NULL,
    clock timestamptz NOT NULL,
    relation text NOT NULL,
    op "char" NOT NULL,
    id bigint NOT NULL,
    old jsonb,
    new jsonb
);

-- Of an update only the columns that changed.
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    after jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    changed text[];
BEGIN
    IF TG_OP = 'UPDATE' THEN
        changed := ARRAY(SELECT key FROM jsonb_each(after) WHERE value IS DISTINCT FROM before -> key);
        after := (SELECT jsonb_object_agg(key, after -> key) FROM unnest(changed) key);
        before := (SELECT jsonb_object_agg(key, before -> key) FROM unnest(changed) key);
    END IF;
    INSERT INTO audit.changes (xid, clock, relation, op, id, old, new)
    VALUES (pg_current_xact_id()::text::bigint, clock_timestamp(), TG_TABLE_NAME, left(TG_OP, 1)::"char",
        CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END, before, after);
    RETURN NULL;
END $$;

CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON ticker.tasks
    FOR EACH ROW EXECUTE FUNCTION audit.note();
CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON ticker.runs
    FOR EACH ROW EXECUTE FUNCTION audit.note();
