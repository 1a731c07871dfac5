"""Builds the index of paused tasks anew."""

from ticker.db.checks import named
from ticker.migrations import run

revision = named("0002_paused")
down_revision = named("0001_tables")


def upgrade() -> None:
    run("0002_paused")
