"""Adds limits by key, and the outcome `held_off`."""

from ticker.migrations import run

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    run("0012_limits.sql")


def downgrade() -> None:
    run("0012_limits.down.sql")
