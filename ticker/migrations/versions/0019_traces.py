"""Adds the trace contexts of manual runs, and the instant up to which traces are exported."""

from ticker.migrations import run

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    run("0019_traces.sql")


def downgrade() -> None:
    run("0019_traces.down.sql")
