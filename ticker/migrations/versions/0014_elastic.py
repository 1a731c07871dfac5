"""Adds elastic intervals."""

from ticker.migrations import run

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    run("0014_elastic.sql")


def downgrade() -> None:
    run("0014_elastic.down.sql")
