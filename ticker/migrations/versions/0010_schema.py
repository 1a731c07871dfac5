"""Creates all tables. The revisions before it, 0001 to 0009, were never released."""

from ticker.migrations import run

revision = "0010"
down_revision = None


def upgrade() -> None:
    run("0010_schema.sql")


def downgrade() -> None:
    run("0010_schema.down.sql")
