"""Creates all tables. It is edited in place until it is frozen: then 2_tables.sql gets the DDL of the tables."""

from ticker.db.checks import named
from ticker.migrations import run

revision = named("0001_tables")
down_revision = None


def upgrade() -> None:
    run("0001_tables")
