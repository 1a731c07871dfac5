"""When a task's schedule begins and ends, how often it runs in all, and what becomes of what was missed."""

from alembic import op

revision = "0002"
down_revision = "0001"

DOMAINS = {
    "ticker_max_runs": "INTEGER CHECK (VALUE BETWEEN 1 AND 1000000000)",
    "ticker_started": "INTEGER CHECK (VALUE >= 0)",
    "ticker_catch_up": "TEXT CHECK (VALUE IN ('one', 'none'))",
}


def upgrade() -> None:
    for name, rule in DOMAINS.items():
        op.execute(f"CREATE DOMAIN {name} AS {rule}")
    op.execute(
        "ALTER TABLE tasks ADD COLUMN starts_at ticker_moment, ADD COLUMN ends_at ticker_moment, "
        "ADD COLUMN max_runs ticker_max_runs, ADD COLUMN started ticker_started DEFAULT 0 NOT NULL, "
        "ADD COLUMN catch_up ticker_catch_up DEFAULT 'one' NOT NULL, ADD COLUMN remove BOOLEAN DEFAULT false NOT NULL"
    )
    op.execute("ALTER TABLE tasks ADD CONSTRAINT tasks_bounds CHECK (starts_at <= ends_at)")
    op.execute("CREATE INDEX tasks_done_once ON tasks (id) WHERE kind = 'once' AND remove AND next_run IS NULL")


def downgrade() -> None:
    op.execute("DROP INDEX tasks_done_once")
    op.execute(
        "ALTER TABLE tasks DROP COLUMN starts_at, DROP COLUMN ends_at, DROP COLUMN max_runs, DROP COLUMN started, "
        "DROP COLUMN catch_up, DROP COLUMN remove"
    )
    op.execute(f"DROP DOMAIN {', '.join(DOMAINS)}")
