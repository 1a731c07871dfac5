"""Adds the outcome `interrupted` and tasks that run alone, and allows 1,000 tasks in a job."""

from ticker.migrations import run

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    run("0011_groups.sql")


def downgrade() -> None:
    run("0011_groups.down.sql")
