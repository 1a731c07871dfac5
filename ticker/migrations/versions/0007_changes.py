"""Record edits, switches and deletions of tasks as events, with their author; end what waits when a task is deleted."""

from alembic import context, op

revision = "0007"
down_revision = "0006"

EDITABLE = (
    "function", "kwargs", "kind", "expression", "zone", "every_ms", "tolerance_ms", "box_ms", "queue", "starts_at",
    "ends_at", "max_runs", "catch_up", "remove", "overlap", "retries", "backoff", "stretch_ms", "pause_after",
    "probe_ms", "dead_man", "keep", "submitter", "group_name", "priority", "spread", "subject", "description", "metadata",
)  # fmt: skip

# pg_temp comes last: otherwise a caller's temporary objects would be found first. The schema is named: a function that wrote
# to the schema of its trigger's table could be made to write anywhere, with its definer's rights.
DEFINER = "RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"

WHO = "left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200)"

# As in 0005, except for the author: that of a pause is in the task's row, all others come from the transaction.
NOTE_CHANGE = """CREATE OR REPLACE FUNCTION note_change() {definer} AS $$
DECLARE event text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed' WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
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
        CASE WHEN is_pause THEN coalesce(NEW.paused_by, '') ELSE {who} END, CASE WHEN event = 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, ''))
            WHEN is_pause THEN NEW.paused_reason ELSE '' END,
        event = 'auto_paused' AND EXISTS (SELECT FROM {schema}.events e WHERE e.task_id = NEW.id AND e.what = event
            AND e.id > coalesce((SELECT max(id) FROM {schema}.events WHERE task_id = NEW.id AND what = 'recovered'), 0));
    RETURN NEW;
END $$"""

# Notes the old and the new value of each field. Arguments and metadata may hold secrets: for them, it notes only that they
# changed. `told` is true, since edits and deletions send no notice.
NOTE_EDIT = """CREATE OR REPLACE FUNCTION note_edit() {definer} SET timezone = 'UTC' AS $$
DECLARE before jsonb := to_jsonb(OLD); after jsonb := to_jsonb(NEW);
BEGIN
    INSERT INTO {schema}.events (task_id, task_name, function, owner_type, owner_id, what, by, told, words)
    SELECT NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, 'edited', {who}, true,
        string_agg(CASE WHEN field IN ('kwargs', 'metadata') THEN field || ' changed' ELSE
            regexp_replace(field, '_(ms|at|name)$', '') || ': ' || (SELECT string_agg(coalesce(nullif(CASE
                WHEN field NOT LIKE '%\\_ms' THEN left(v, 60) || CASE WHEN length(v) > 60 THEN '…' ELSE '' END
                ELSE concat(nullif(v::bigint / 86400000, 0) || 'd', nullif(v::bigint / 3600000 % 24, 0) || 'h',
                    nullif(v::bigint / 60000 % 60, 0) || 'm', nullif(v::bigint / 1000 % 60, 0) || 's',
                    nullif(v::bigint % 1000, 0) || 'ms') END, ''), 'none'), ' -> ' ORDER BY m)
            FROM (VALUES (1, before ->> field), (2, after ->> field)) AS one (m, v)) END, ', ' ORDER BY n)
    FROM unnest(ARRAY[{fields}]) WITH ORDINALITY AS f (field, n) WHERE before -> field <> after -> field;
    RETURN NULL;
END $$"""
NOTE_EDITS = """CREATE OR REPLACE TRIGGER tasks_note_edit AFTER UPDATE OF {columns} ON tasks FOR EACH ROW
WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) EXECUTE FUNCTION note_edit()"""

# Waiting occurrences end with their task; runs continue. Planned pieces, of which there may be a million, are left to ticks
# (drop_orphaned_plans): ending them here would exceed the statement time-out. No sequential scan: a plan that was cached for
# a deletion of many tasks would read all runs for a single one.
NOTE_DELETION = """CREATE FUNCTION note_deletion() {definer} SET enable_seqscan = off AS $$
DECLARE now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO {schema}.events (at, task_id, task_name, function, owner_type, owner_id, what, by, told)
    SELECT now, id, name, function, owner_type, owner_id, 'deleted', {who}, true FROM gone ORDER BY id;
    INSERT INTO {schema}.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason,
        ended_at, created_at)
    SELECT id, name, function, owner_type, owner_id, 'scheduled', occurrence, 'ended', 'dropped', 'gone', now, now
    FROM gone, unnest(waiting) AS occurrence ORDER BY occurrence, id ON CONFLICT DO NOTHING;
    UPDATE {schema}.runs SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = now
    WHERE state IN ('planned', 'pushed') AND id = ANY (ARRAY(SELECT r.id FROM gone g, LATERAL (
        SELECT id FROM {schema}.runs WHERE task_id = g.id AND state IN ('planned', 'pushed')
            AND NOT (kind = 'piece' AND attempt = 1 AND state = 'planned') OFFSET 0) r));
    RETURN NULL;
END $$"""
NOTE_DELETIONS = """CREATE TRIGGER tasks_note_deletion AFTER DELETE ON tasks REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_deletion()"""

# Planned and pushed runs of tasks that were deleted before this revision.
ORPHANS = """UPDATE runs r SET state = 'ended', outcome = 'dropped', reason = 'gone', ended_at = clock_timestamp()
WHERE state IN ('planned', 'pushed') AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = r.task_id)"""


def upgrade() -> None:
    op.execute("CREATE INDEX runs_unstarted ON runs (task_id) WHERE state IN ('planned', 'pushed')")
    op.execute(ORPHANS)
    for statement in (NOTE_CHANGE, NOTE_DELETION, NOTE_DELETIONS):
        op.execute(filled(statement))
    note_edits(EDITABLE)
    op.execute("REVOKE ALL ON FUNCTION note_change(), note_edit(), note_deletion() FROM PUBLIC")


def note_edits(fields: tuple[str, ...]) -> None:
    """Makes the trigger note changes of these columns of a task, and of no others."""
    op.execute(filled(NOTE_EDIT, fields=", ".join(map(repr, fields))))
    old, new = (", ".join(f"{row}.{name}" for name in fields) for row in ("OLD", "NEW"))
    op.execute(filled(NOTE_EDITS, columns=", ".join(fields), old=old, new=new))


def filled(statement: str, **values: str) -> str:
    schema = '"' + context.config.attributes["schema"] + '"'
    return statement.format(definer=DEFINER, who=WHO, schema=schema, **values)


def downgrade() -> None:
    """`note_change` stays as it is: it needs nothing of this revision."""
    op.execute("DROP TRIGGER tasks_note_edit ON tasks")
    op.execute("DROP TRIGGER tasks_note_deletion ON tasks")
    op.execute("DROP FUNCTION note_edit(), note_deletion()")
    op.execute("DROP INDEX runs_unstarted")
