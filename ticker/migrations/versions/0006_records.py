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


def upgrade() -> None:
    restrict_events(WHAT)


def downgrade() -> None:
    kept = ", ".join(repr(what) for what in WHAT_BEFORE)
    op.execute(f"DELETE FROM events WHERE what NOT IN ({kept})")
    restrict_events(WHAT_BEFORE)


def restrict_events(kinds: tuple[str, ...]) -> None:
    op.execute("ALTER DOMAIN ticker_what DROP CONSTRAINT ticker_what_check")
    op.execute(
        f"ALTER DOMAIN ticker_what ADD CONSTRAINT ticker_what_check CHECK (VALUE IN ({', '.join(map(repr, kinds))}))"
    )
