"""What people do to a task is an event: who edited, enabled, disabled or deleted it."""

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
