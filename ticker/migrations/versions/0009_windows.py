"""Spread cron and calendar tasks over a window; claim pieces in turn among a million."""

from importlib import import_module

from alembic import op

revision = "0009"
down_revision = "0008"


HASH = "('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint"
BEFORE = f"CASE WHEN spread AND kind = 'interval' THEN {HASH} * every_ms / 268435456 END"
PHASE = f"CASE WHEN spread THEN {HASH} * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END"

INDEXES = {
    "runs_planned": "(due_at) WHERE state = 'planned' AND (kind <> 'piece' OR attempt > 1)",
    "runs_planned_pieces": "(parent_id, id) WHERE state = 'planned' AND kind = 'piece' AND attempt = 1",
    "runs_open_pieces": "(parent_id) WHERE kind = 'piece' AND (state <> 'ended' OR follow_up)",
}

changes = import_module("ticker.migrations.versions.0007_changes")


def upgrade() -> None:
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, ADD COLUMN within_ms ticker_span")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({PHASE}) STORED")
    op.execute("DROP INDEX runs_planned")
    for name, index in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON runs {index}")
    changes.note_edits((*changes.EDITABLE, "within_ms"))


def downgrade() -> None:
    changes.note_edits(changes.EDITABLE)
    op.execute(f"DROP INDEX {', '.join(INDEXES)}")
    op.execute("CREATE INDEX runs_planned ON runs (due_at) WHERE state = 'planned'")
    op.execute("UPDATE tasks SET spread = false WHERE kind <> 'interval'")
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, DROP COLUMN within_ms")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({BEFORE}) STORED")
