"""When a task's schedule begins and ends, how often it runs in all, and what becomes of what was missed."""

from alembic import op

revision = "0002"
down_revision = "0001"

FINITE = " AND ".join(
    f"{column} BETWEEN '1970-01-01T00:00:00Z' AND '9999-12-31T00:00:00Z'" for column in ("starts_at", "ends_at")
)

# Whether an occurrence has started, or was given up. VOLATILE: each call sees what has been committed by then.
IS_OVER = """CREATE FUNCTION is_over(task bigint, at timestamptz) RETURNS boolean LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled' AND started_at IS NOT NULL)
    OR EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND started_at IS NULL
               AND (reason = 'expired' OR outcome = 'lost'));
END"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE tasks ADD COLUMN starts_at TIMESTAMP WITH TIME ZONE, ADD COLUMN ends_at TIMESTAMP WITH TIME ZONE, "
        "ADD COLUMN max_runs INTEGER, ADD COLUMN started INTEGER DEFAULT 0 NOT NULL, "
        "ADD COLUMN catch_up TEXT DEFAULT 'one' NOT NULL, ADD COLUMN keep BOOLEAN DEFAULT true NOT NULL"
    )
    op.execute(
        "ALTER TABLE tasks ADD CONSTRAINT tasks_bounds "
        "CHECK (starts_at <= ends_at AND max_runs BETWEEN 1 AND 1000000000 AND started >= 0), "
        f"ADD CONSTRAINT tasks_bounds_finite CHECK ({FINITE}), "
        "ADD CONSTRAINT tasks_catch_up CHECK (catch_up IN ('one', 'none'))"
    )
    op.execute("CREATE INDEX tasks_done_once ON tasks (id) WHERE kind = 'once' AND NOT keep AND next_run IS NULL")
    op.execute(IS_OVER)


def downgrade() -> None:
    op.execute("DROP FUNCTION is_over(bigint, timestamptz)")
    op.execute("DROP INDEX tasks_done_once")
    op.execute(
        "ALTER TABLE tasks DROP COLUMN starts_at, DROP COLUMN ends_at, DROP COLUMN max_runs, DROP COLUMN started, "
        "DROP COLUMN catch_up, DROP COLUMN keep"
    )
