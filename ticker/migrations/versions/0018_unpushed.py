"""Adds events that count the occurrences that were not pushed."""

from ticker.migrations import run

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    run("0018_unpushed.sql")


def downgrade() -> None:
    run("0018_unpushed.down.sql")
