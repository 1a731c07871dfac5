"""For many tasks: a place of its own in the interval for each, batches of jobs, and tables that stay small."""

from alembic import op

revision = "0004"
down_revision = "0003"

DOMAINS = {
    "ticker_batch": "INTEGER CHECK (VALUE BETWEEN 1 AND 100)",
}

# 28 bits of a hash, as a part of the interval: an interval is at most 2^35 ms, and a bigint has 63 bits.
PHASE = (
    "CASE WHEN spread AND kind = 'interval' THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))"
    "::bit(28)::bigint * every_ms / 268435456 END"
)

FUNCTIONS = """CREATE TABLE functions (
    name ticker_named NOT NULL,
    batch ticker_batch DEFAULT 1 NOT NULL,
    announced_at ticker_moment NOT NULL,
    PRIMARY KEY (name)
)"""


def upgrade() -> None:
    for name, rule in DOMAINS.items():
        op.execute(f"CREATE DOMAIN {name} AS {rule}")
    op.execute("ALTER TABLE tasks SET (fillfactor = 85)")  # before the column that has all rows written anew
    op.execute("ALTER TABLE tasks ADD COLUMN spread BOOLEAN DEFAULT false NOT NULL")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({PHASE}) STORED")
    op.execute("ALTER TABLE tasks ADD COLUMN carrier ticker_short")
    op.execute(FUNCTIONS)


def downgrade() -> None:
    op.execute("ALTER TABLE tasks RESET (fillfactor)")
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, DROP COLUMN spread, DROP COLUMN carrier")
    op.execute("DROP TABLE functions")
    op.execute(f"DROP DOMAIN {', '.join(DOMAINS)}")
