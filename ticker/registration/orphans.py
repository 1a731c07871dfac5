"""Finds and deletes tasks whose owners have no row any more, because they were deleted while their table had no
triggers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ticker.registration import owner_checks


@dataclass(frozen=True, slots=True)
class Orphans:
    """An owner that is gone, and how many tasks it has left."""

    owner_type: str
    owner_id: str
    tasks: int

    @property
    def owner(self) -> str:
        return f"{self.owner_type}:{self.owner_id}"


def orphans(db: Any, schema: str, type_: str | None, limit: int) -> list[Orphans]:
    """Returns up to `limit` owners that are gone and have tasks, by type and id. Reads the tables of owners that have
    triggers.
    """
    found: list[Orphans] = []
    for named, condition in owner_checks.without_owner(db, schema, type_):
        counts = (
            f'SELECT owner_id, count(*) FROM "{schema}".tasks t WHERE {condition} GROUP BY owner_id ORDER BY owner_id'
        )
        with owner_checks.nothing_hidden(db, schema, named):
            found += [Orphans(named, *row) for row in db.execute(f"{counts} LIMIT {limit - len(found)}")]
    return found


def remove(db: Any, schema: str, gone: Iterable[Orphans], by: str) -> int:
    """Deletes the tasks of these owners, by type, unless they have a row by now. Returns how many it deleted."""
    removed = 0
    for type_, those in groupby(gone, key=lambda one: one.owner_type):
        for _, condition in owner_checks.without_owner(db, schema, type_):
            delete = f"""DELETE FROM "{schema}".tasks WHERE id = ANY (ARRAY(SELECT id FROM "{schema}".tasks t
                WHERE {condition.replace("%", "%%")} AND owner_id = ANY (%s) ORDER BY id FOR UPDATE))"""
            with owner_checks.nothing_hidden(db, schema, type_):
                db.execute("SELECT set_config('ticker.by', %s, true)", [by])
                removed += db.execute(delete, [[one.owner_id for one in those]]).rowcount
    return removed
