"""Adds pauses of many tasks, and hours of the day for intervals."""

from ticker.migrations import run

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    run("0015_pauses.sql")


def downgrade() -> None:
    run("0015_pauses.down.sql")
