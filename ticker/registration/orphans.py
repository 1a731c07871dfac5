"""Finds and deletes tasks whose owners have no row any more, because they were deleted while their table had no triggers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ticker.db.steps import Steps, writes
from ticker.registration import owner_checks
from ticker.tasks import rows as task_rows


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
    """Returns up to `limit` owners that are gone and have tasks, by type and id. Reads the tables of owners that have triggers."""
    found: list[Orphans] = []
    for named, condition in owner_checks.without_owner(db, schema, type_):
        counts = (
            f'SELECT owner_id, count(*) FROM "{schema}".tasks t WHERE {condition} GROUP BY owner_id ORDER BY owner_id'
        )
        found += [Orphans(named, *row) for row in db.execute(f"{counts} LIMIT {limit - len(found)}")]
    return found


def remove(db: Any, schema: str, gone: Iterable[Orphans], by: str) -> int:
    """Deletes the tasks of these owners, by type, unless they have a row by now. Returns how many it deleted."""
    removed = 0
    for type_, those in groupby(gone, key=lambda one: one.owner_type):
        for _, condition in owner_checks.without_owner(db, schema, type_):
            where = f"{condition.replace('%', '%%')} AND owner_id = ANY (%s)"
            rows = db.execute(
                f'SELECT id FROM "{schema}".tasks t WHERE {where} ORDER BY id FOR UPDATE',
                [[one.owner_id for one in those]],
            )
            removed += _delete(db, [id_ for (id_,) in rows], by)
    return removed


@writes
def _delete(ids: Sequence[int], by: str) -> Steps[int]:
    return len((yield from task_rows.written("delete_tasks", by=by, ids=ids)))
