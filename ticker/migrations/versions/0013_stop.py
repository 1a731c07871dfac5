"""Adds requests to stop a run."""

from ticker.migrations import run

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    run("0013_stop.sql")


def downgrade() -> None:
    run("0013_stop.down.sql")
