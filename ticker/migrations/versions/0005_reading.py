"""For reading among a million tasks and long records: an index for each state, and a task's runs apart from their pieces."""

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


def upgrade() -> None:
    replace(REMOVED, ADDED)


def downgrade() -> None:
    replace(ADDED, REMOVED)


def replace(removed: dict[str, str], added: dict[str, str]) -> None:
    op.execute(f"DROP INDEX {', '.join(removed)}")
    for name, index in added.items():
        op.execute(f"CREATE INDEX {name} ON {index}")
