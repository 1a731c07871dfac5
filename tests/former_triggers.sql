-- The triggers of mail_channels with active_when="enabled and not paused", as owners.triggers made them until revision 0015.
SELECT FROM "ticker".templates LIMIT 0;

CREATE OR REPLACE FUNCTION "ticker"."owner_deleted_mail_channels"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $ticker$ BEGIN
    DELETE FROM "ticker".tasks WHERE id = ANY (ARRAY(SELECT id FROM "ticker".tasks
        WHERE owner_type = 'mail_channels' AND owner_id = ANY (ARRAY(SELECT gone."id"::text COLLATE "default" FROM gone)) ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER "ticker_deleted_mail_channels" AFTER DELETE ON "public"."mail_channels" REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION "ticker"."owner_deleted_mail_channels"();

CREATE OR REPLACE FUNCTION "ticker"."owner_truncated_mail_channels"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $ticker$ BEGIN
    DELETE FROM "ticker".tasks WHERE id = ANY (ARRAY(SELECT id FROM "ticker".tasks WHERE owner_type = 'mail_channels' ORDER BY id FOR UPDATE));
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER "ticker_truncated_mail_channels" AFTER TRUNCATE ON "public"."mail_channels"
FOR EACH STATEMENT EXECUTE FUNCTION "ticker"."owner_truncated_mail_channels"();

CREATE OR REPLACE FUNCTION "ticker"."owner_changed_mail_channels"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $ticker$ BEGIN
    IF ((OLD.enabled and not OLD.paused) IS TRUE) <> ((NEW.enabled and not NEW.paused) IS TRUE) THEN
        UPDATE "ticker".tasks t SET owner_active = ((NEW.enabled and not NEW.paused) IS TRUE), next_run = CASE WHEN ((NEW.enabled and not NEW.paused) IS TRUE) THEN CASE WHEN t.kind <> 'interval' OR t.next_run IS NULL THEN t.next_run WHEN i.now > t.ends_at THEN NULL ELSE
        greatest(t.starts_at, least(CASE WHEN t.next_run > i.now THEN t.next_run END, '9999-12-31T00:00:00Z',
            greatest(i.now, t.last_run + (t.every_ms - t.tolerance_ms + least(t.tolerance_ms / 5, 10000)) * interval '1 millisecond'))) END ELSE next_run END
        FROM (SELECT clock_timestamp() AS now) i
        WHERE owner_active <> ((NEW.enabled and not NEW.paused) IS TRUE) AND id = ANY (ARRAY(SELECT id FROM "ticker".tasks
            WHERE owner_type = 'mail_channels' AND owner_id = OLD."id"::text COLLATE "default" ORDER BY id FOR NO KEY UPDATE));
    END IF;
    IF OLD."id"::text COLLATE "default" <> NEW."id"::text COLLATE "default" THEN
        UPDATE "ticker".tasks SET owner_id = NEW."id"::text COLLATE "default" WHERE id = ANY (ARRAY(SELECT id FROM "ticker".tasks
            WHERE owner_type = 'mail_channels' AND owner_id = OLD."id"::text COLLATE "default" ORDER BY id FOR UPDATE));
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER "ticker_changed_mail_channels" AFTER UPDATE ON "public"."mail_channels"
FOR EACH ROW WHEN (((OLD.enabled and not OLD.paused) IS TRUE) <> ((NEW.enabled and not NEW.paused) IS TRUE) OR OLD."id"::text COLLATE "default" <> NEW."id"::text COLLATE "default") EXECUTE FUNCTION "ticker"."owner_changed_mail_channels"();

CREATE OR REPLACE FUNCTION "ticker"."owner_guarded_mail_channels"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $ticker$
#variable_conflict use_column
DECLARE ticker_key_0 "public"."mail_channels"."id"%TYPE;
BEGIN
    BEGIN
        ticker_key_0 := NEW.owner_id;
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        RETURN NULL;
    END;
    SELECT ((enabled and not paused) IS TRUE) INTO NEW.owner_active FROM "public"."mail_channels" o
    WHERE o."id" = ticker_key_0 AND o."id"::text COLLATE "default" = NEW.owner_id FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER "ticker_guarded_mail_channels" BEFORE INSERT OR UPDATE OF owner_type, owner_id ON "ticker".tasks
FOR EACH ROW WHEN (NEW.owner_type = 'mail_channels') EXECUTE FUNCTION "ticker"."owner_guarded_mail_channels"();

CREATE OR REPLACE FUNCTION "ticker"."owner_added_mail_channels"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $ticker$ BEGIN
    INSERT INTO "ticker".tasks (owner_type, owner_id, name, registered, kind, every_most_ms, function, every_ms, expression, zone, starts_at, ends_at, max_runs, catch_up, remove, spread, within_ms, queue, kwargs, tolerance_ms, box_ms, overlap, limits, retries, backoff, stretch_ms, pause_after, probe_ms, dead_man, keep, submitter, group_name, priority, subject, description, metadata, enabled, grace_ms, alarm_at, next_run, paused_by,
        paused_reason, paused_until)
    SELECT w.owner_type, o.id, w.name, t.registered, t.kind, t.every_most_ms, t.function, t.every_ms, t.expression, t.zone, t.starts_at, t.ends_at, t.max_runs, t.catch_up, t.remove, t.spread, t.within_ms, t.queue, t.kwargs, t.tolerance_ms, t.box_ms, t.overlap, t.limits, t.retries, t.backoff, t.stretch_ms, t.pause_after, t.probe_ms, t.dead_man, t.keep, t.submitter, t.group_name, t.priority, t.subject, t.description, t.metadata, t.enabled, t.grace_ms,
        CASE WHEN t.dead_man IS NOT NULL THEN i.now END, CASE WHEN p.by IS NULL THEN greatest(i.now, t.starts_at) ELSE i.now END,
        p.by, p.reason, CASE WHEN p.by IS NOT NULL THEN i.now END
    FROM (SELECT clock_timestamp() AS now OFFSET 0) i CROSS JOIN "ticker".templates w
    CROSS JOIN LATERAL jsonb_populate_record(NULL::"ticker".tasks, '{"kind": "interval", "every_most_ms": null, "function": "", "every_ms": 0, "expression": "", "zone": "UTC", "starts_at": null, "ends_at": null, "max_runs": null, "catch_up": "one", "remove": false, "spread": false, "within_ms": null, "queue": "polling", "kwargs": {}, "tolerance_ms": 0, "box_ms": 0, "overlap": "queue", "limits": null, "retries": 0, "backoff": "10s..5m", "stretch_ms": null, "pause_after": null, "probe_ms": null, "dead_man": null, "keep": "all", "submitter": "", "group_name": "", "priority": 0, "subject": "", "description": "", "metadata": {}, "enabled": true}'::jsonb || w.task) t
    CROSS JOIN LATERAL (SELECT CASE WHEN t.kind <> 'interval' THEN 'template' END AS by,
                               CASE WHEN t.kind <> 'interval' THEN 'waits for its first time' ELSE '' END AS reason) p
    JOIN (SELECT added."id"::text COLLATE "default" AS id FROM added) o ON true WHERE w.owner_type = 'mail_channels' ORDER BY o.id, w.name ON CONFLICT (owner_type, owner_id, name) DO NOTHING;
    RETURN NULL;
END $ticker$;

CREATE OR REPLACE TRIGGER "ticker_added_mail_channels" AFTER INSERT ON "public"."mail_channels" REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION "ticker"."owner_added_mail_channels"();

UPDATE "ticker".tasks t SET owner_active = o.active, next_run = CASE WHEN o.active THEN CASE WHEN t.kind <> 'interval' OR t.next_run IS NULL THEN t.next_run WHEN i.now > t.ends_at THEN NULL ELSE
        greatest(t.starts_at, least(CASE WHEN t.next_run > i.now THEN t.next_run END, '9999-12-31T00:00:00Z',
            greatest(i.now, t.last_run + (t.every_ms - t.tolerance_ms + least(t.tolerance_ms / 5, 10000)) * interval '1 millisecond'))) END ELSE next_run END
FROM (SELECT o."id"::text COLLATE "default" AS id, ((enabled and not paused) IS TRUE) AS active FROM "public"."mail_channels" o) o, (SELECT clock_timestamp() AS now) i
WHERE owner_type = 'mail_channels' AND owner_id = o.id AND owner_active <> o.active;

REVOKE ALL ON FUNCTION "ticker"."owner_deleted_mail_channels"() FROM PUBLIC;

REVOKE ALL ON FUNCTION "ticker"."owner_truncated_mail_channels"() FROM PUBLIC;

REVOKE ALL ON FUNCTION "ticker"."owner_changed_mail_channels"() FROM PUBLIC;

REVOKE ALL ON FUNCTION "ticker"."owner_guarded_mail_channels"() FROM PUBLIC;

REVOKE ALL ON FUNCTION "ticker"."owner_added_mail_channels"() FROM PUBLIC;
