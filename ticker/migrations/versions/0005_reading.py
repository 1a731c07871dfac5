"""For reading among a million tasks and long records: an index for each state, and a task's runs apart from their pieces.

And an event of an enabled, disabled or owner's task does not name who has paused it besides.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

ADDED = {
    "tasks_failing": "tasks (failures DESC, id) WHERE failures > 0",
    "tasks_paused": "tasks (id) WHERE paused_by IS NOT NULL",
    "tasks_inactive": "tasks (id) WHERE NOT enabled OR NOT owner_active",
    "runs_of_task": "runs (task_id, id) WHERE kind IN ('scheduled', 'manual')",
    "runs_further": "runs (task_id, id) WHERE kind IN ('retry', 'piece')",
}
REMOVED = {
    "tasks_troubled": (
        "tasks (owner_type, owner_id) WHERE failures > 0 OR paused_by IS NOT NULL OR NOT owner_active OR NOT enabled"
    ),
    "runs_of_task": "runs (task_id, id)",
}

# As in 0003, but for who and why: these are of pauses.
NOTED = """CREATE OR REPLACE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE what text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed' WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
    WHEN NEW.enabled <> OLD.enabled THEN CASE WHEN NEW.enabled THEN 'enabled' ELSE 'disabled' END
    WHEN NEW.owner_active THEN 'owner_active' ELSE 'owner_inactive' END;
is_pause boolean := what IN ('paused', 'auto_paused');
BEGIN
    IF NEW.enabled AND NEW.owner_active AND NEW.paused_by IS NULL THEN
        NEW.resumed_at := clock_timestamp();
    END IF;
    -- that it pauses itself once more is no news, until it has worked again
    EXECUTE format('INSERT INTO %1$I.events (task_id, task_name, function, owner_type, owner_id, what, by, words, told)'
        ' VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $6 = ''auto_paused'' AND EXISTS (SELECT FROM %1$I.events e'
        ' WHERE e.task_id = $1 AND e.what = $6 AND e.id > coalesce((SELECT max(id) FROM %1$I.events'
        ' WHERE task_id = $1 AND what = ''recovered''), 0)))', TG_TABLE_SCHEMA)
    USING NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, what,
        CASE WHEN is_pause THEN coalesce(NEW.paused_by, '') ELSE '' END, CASE WHEN what = 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, ''))
            WHEN is_pause THEN NEW.paused_reason ELSE '' END;
    RETURN NEW;
END $$"""


def upgrade() -> None:
    replace(REMOVED, ADDED)
    op.execute(NOTED)


def downgrade() -> None:
    replace(ADDED, REMOVED)


def replace(removed: dict[str, str], added: dict[str, str]) -> None:
    op.execute(f"DROP INDEX {', '.join(removed)}")
    for name, index in added.items():
        op.execute(f"CREATE INDEX {name} ON {index}")
