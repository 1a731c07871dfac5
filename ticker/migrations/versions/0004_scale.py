"""For many tasks: a place of its own in the interval for each, batches of jobs, and tables that stay small."""

from alembic import op

revision = "0004"
down_revision = "0003"

# 28 bits of a hash, as a part of the interval: an interval is at most 2^35 ms, and a bigint has 63 bits.
PHASE = (
    "CASE WHEN spread AND kind = 'interval' THEN ('x' || substr(md5(owner_type || '/' || owner_id || '/' || name), 1, 7))"
    "::bit(28)::bigint * every_ms / 268435456 END"
)

FUNCTIONS = """CREATE TABLE functions (
    name TEXT NOT NULL,
    batch INTEGER DEFAULT 1 NOT NULL,
    announced_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name),
    CONSTRAINT functions_name CHECK (name <> '' AND length(name) <= 200 AND name !~ '[[:cntrl:]]'),
    CONSTRAINT functions_batch CHECK (batch BETWEEN 1 AND 100),
    CONSTRAINT functions_finite CHECK (announced_at BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z')
)"""


def upgrade() -> None:
    op.execute("ALTER TABLE tasks ADD COLUMN spread BOOLEAN DEFAULT false NOT NULL")
    op.execute(f"ALTER TABLE tasks ADD COLUMN phase_ms BIGINT GENERATED ALWAYS AS ({PHASE}) STORED")
    op.execute("ALTER TABLE tasks ADD COLUMN carrier TEXT")
    op.execute("ALTER TABLE tasks ADD CONSTRAINT tasks_carrier CHECK (length(carrier) <= 200)")
    op.execute(FUNCTIONS)


def downgrade() -> None:
    op.execute("ALTER TABLE tasks DROP COLUMN phase_ms, DROP COLUMN spread, DROP COLUMN carrier")
    op.execute("DROP TABLE functions")
