"""One record for each occurrence: each waiting one knows its job, and what happens to a record is an event."""

from alembic import op

revision = "0006"
down_revision = "0005"

WHAT = (
    "paused", "auto_paused", "resumed", "disabled", "enabled", "owner_inactive", "owner_active", "edited", "deleted",
    "slowed", "restored", "failed", "recovered", "dead_man", "redelivered", "end_recorded_late", "stale", "adopted",
)  # fmt: skip
WHAT_BEFORE = tuple(
    what for what in WHAT
    if what not in ("edited", "deleted", "redelivered", "end_recorded_late", "stale", "adopted")
)  # fmt: skip


# If an occurrence has several records, an upgrade keeps the one that started, or else the oldest.
ONE_RECORD = """DELETE FROM runs r USING (
    SELECT id, row_number() OVER (PARTITION BY task_id, occurrence ORDER BY started_at IS NULL, id) AS place
    FROM runs WHERE kind = 'scheduled') d
WHERE r.id = d.id AND d.place > 1"""

# An occurrence as in the ids of jobs.
MICROS = """CREATE FUNCTION micros(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM at) * 1000000)::bigint::text"""

# The record of an occurrence. VOLATILE: each call sees everything that was committed before it.
RECORD_OF = """CREATE FUNCTION record_of(task bigint, at timestamptz) RETURNS bigint LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT id FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled';
END"""

# As in 0003.
IS_OVER = """CREATE FUNCTION is_over(task bigint, at timestamptz) RETURNS boolean LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled' AND started_at IS NOT NULL)
    OR EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND started_at IS NULL
               AND (reason = 'expired' OR outcome = 'lost'));
END"""


def upgrade() -> None:
    restrict_events(WHAT)
    op.execute("DROP FUNCTION is_over(bigint, timestamptz)")
    op.execute(ONE_RECORD)
    op.execute("DROP INDEX runs_started_once, runs_given_up")
    op.execute("CREATE UNIQUE INDEX runs_one_record ON runs (task_id, occurrence) WHERE kind = 'scheduled'")
    op.execute(RECORD_OF)
    op.execute(MICROS)
    op.execute("CREATE DOMAIN ticker_batch_jobs AS JSONB CHECK (jsonb_typeof(VALUE) = 'object')")
    op.execute(
        "ALTER TABLE tasks ALTER carrier TYPE ticker_batch_jobs USING CASE WHEN carrier IS NOT NULL AND waiting <> '{}'"
        " THEN jsonb_build_object(micros(waiting[cardinality(waiting)]), carrier) END"
    )
    op.execute("ALTER TABLE tasks RENAME carrier TO batch_jobs")


def downgrade() -> None:
    op.execute("ALTER TABLE tasks RENAME batch_jobs TO carrier")
    op.execute(
        "ALTER TABLE tasks ALTER carrier TYPE ticker_short"
        " USING carrier ->> (extract(epoch FROM waiting[cardinality(waiting)]) * 1000000)::bigint::text"
    )
    op.execute("DROP DOMAIN ticker_batch_jobs")
    op.execute("DROP FUNCTION micros(timestamptz)")
    op.execute("DROP FUNCTION record_of(bigint, timestamptz)")
    op.execute("DROP INDEX runs_one_record")
    op.execute(
        "CREATE UNIQUE INDEX runs_started_once ON runs (task_id, occurrence)"
        " WHERE kind = 'scheduled' AND started_at IS NOT NULL"
    )
    op.execute(
        "CREATE INDEX runs_given_up ON runs (task_id, occurrence)"
        " WHERE started_at IS NULL AND (reason = 'expired' OR outcome = 'lost')"
    )
    op.execute(IS_OVER)
    kept = ", ".join(repr(what) for what in WHAT_BEFORE)
    op.execute(f"DELETE FROM events WHERE what NOT IN ({kept})")
    restrict_events(WHAT_BEFORE)


def restrict_events(kinds: tuple[str, ...]) -> None:
    op.execute("ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check")
    op.execute(
        f"ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN ({', '.join(map(repr, kinds))}))"
    )
