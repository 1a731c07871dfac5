"""Adds minutes: what ended in each minute, the workers of each queue, and how many it needs."""

from ticker.migrations import run

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    run("0016_minutes.sql")


def downgrade() -> None:
    run("0016_minutes.down.sql")
