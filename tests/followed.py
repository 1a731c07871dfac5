"""A table of owners, and what became of their tasks."""

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

ACTIVE = "enabled and not paused"


class Base(DeclarativeBase):
    pass


class Channel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    kind: Mapped[str] = mapped_column(default="channel")
    enabled: Mapped[bool] = mapped_column(default=True)
    paused: Mapped[bool | None] = mapped_column(default=False)
    note: Mapped[str] = mapped_column(default="")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "channel"}  # noqa: RUF012 - SQLAlchemy's own way


def put(db, statements):
    db.execute("\n".join(statements))


ADD = """INSERT INTO ticker.tasks (owner_type, owner_id, name, function, kind, every_ms, box_ms, grace_ms, queue, next_run)
    VALUES (%s, %s, 'fetch', 'fetch', 'interval', 60000, 30000, 1000, 'polling', '2020-01-01Z') RETURNING owner_active"""


def add(db, type_, id_):
    """A task in one statement, with no word of Python's between: what the triggers made of it."""
    return db.execute(ADD, (type_, id_)).fetchall()


def states(db, type_="mail_channels"):
    query = "SELECT owner_id, owner_active FROM ticker.tasks WHERE owner_type = %s ORDER BY owner_id"
    return dict(db.execute(query, [type_]).fetchall())


def leftovers(db):
    """What is installed: functions of the schema, and triggers on any table, beside the tables' own."""
    return db.execute(
        "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'ticker'::regnamespace"
        " AND proname LIKE 'owner\\_%%'"
        " UNION ALL SELECT relname, pg_get_viewdef(oid) FROM pg_class WHERE relname LIKE 'owner\\_rows\\_%%'"
        " UNION ALL SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgname !~ '^(tasks|limits|pauses|runs)_'"
        " ORDER BY 1, 2"
    ).fetchall()
