"""Creates all tables."""

from ticker.db.checks import named
from ticker.migrations import run

revision = named("0001_tables")
down_revision = None


def upgrade() -> None:
    run("0001_tables")
