"""The mark of the installation to which the tables belong."""

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    pass


def downgrade() -> None:
    pass
