"""Spread cron and calendar tasks over a window."""

from alembic import op

revision = "0009"
down_revision = "0008"


HASH = "('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))::bit(28)::bigint"
BEFORE = f"CASE WHEN spread AND kind = 'interval' THEN {HASH} * every_ms / 268435456 END"
PHASE = f"CASE WHEN spread THEN {HASH} * CASE kind WHEN 'interval' THEN every_ms ELSE within_ms END / 268435456 END"


def upgrade() -> None:
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, ADD COLUMN within_ms ticker_span")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({PHASE}) STORED")


def downgrade() -> None:
    op.execute("UPDATE tasks SET spread = false WHERE kind <> 'interval'")
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, DROP COLUMN within_ms")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({BEFORE}) STORED")
