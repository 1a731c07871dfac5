"""Adds the trace contexts of manual runs, and the instant up to which traces are exported."""

from ticker.migrations import run

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    run("0018_traces.sql")


def downgrade() -> None:
    run("0018_traces.down.sql")
