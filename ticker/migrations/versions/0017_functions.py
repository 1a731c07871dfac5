"""Adds the queues of workers, and notices of functions that no worker has announced."""

from ticker.migrations import run

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    run("0017_functions.sql")


def downgrade() -> None:
    run("0017_functions.down.sql")
