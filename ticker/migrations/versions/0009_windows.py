"""Spread cron and calendar tasks over a window."""

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
