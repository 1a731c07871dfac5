"""Lists owners, and counts their tasks by state. Owners in trouble come first."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ticker.db.steps import Steps, reads
from ticker.read.tasks import limited
from ticker.tasks import checks, identity
from ticker.tasks.fields import Owned
from ticker.tasks.filters import late_ms
from ticker.tasks.rows import query

CROWD = 50_000  # tasks in trouble; if there are more, their owners are found by a walk through all tasks, by owner


@dataclass(frozen=True, slots=True)
class OwnerStatus(Owned):
    """Counts of an owner's tasks. Times are in UTC.

    `subject` is that of the owner's tasks, the first one if there are several, or None. `late`: due for longer than a tick and the task's tolerance, and not started. `paused`: paused by a user or by the
    ticker. `inactive`: disabled, or of an inactive owner. `last_success` is the latest success of any of the tasks.
    `next_run` is the earliest next run of those that may run.
    """

    owner_type: str
    owner_id: str
    subject: str | None
    tasks: int
    failing: int
    late: int
    paused: int
    inactive: int
    last_success: datetime | None
    next_run: datetime | None

    derived = ("owner",)

    @property
    def in_trouble(self) -> bool:
        """Whether any of the owner's tasks is failing or late. Such owners come first."""
        return bool(self.failing or self.late)


@reads
def list_owners(
    *, owner_type: str | None = None, failing: bool = False, late: bool = False, paused: bool = False,
    after: OwnerStatus | None = None, limit: int = 100,
) -> Steps[list[OwnerStatus]]:  # fmt: skip
    """Returns up to `limit` owners that have tasks: those in trouble first, otherwise by type and id.

    With `failing`, `late` or `paused` (which includes inactive tasks), returns only owners with such a task, by type
    and id. `after` is the last owner of the previous page. An owner whose trouble began or ended since then may appear
    twice or not at all.
    """
    is_filtered = failing or late or paused
    rank = 0 if after is None or is_filtered or after.in_trouble else 1  # a filtered list has no second half
    rows = yield query(
        "list_owners", owner_type=None if owner_type is None else checks.plain("owner_type", owner_type), owner_id=None,
        failing=failing or not is_filtered, late=late or not is_filtered, paused=paused, is_filtered=is_filtered,
        late_ms=late_ms(), crowd=CROWD, limit=limited(limit), after_rank=rank,
        after_type=after.owner_type if after else "", after_id=after.owner_id if after else "",
    )  # fmt: skip
    return [OwnerStatus(**row) for row in rows]


@reads
def owner_status(owner: Any) -> Steps[OwnerStatus | None]:
    """Returns the counts of one owner's tasks, or None if it has none."""
    ref = identity.identify(owner)
    rows = yield query(
        "list_owners", owner_type=ref.type, owner_id=ref.id, failing=False, late=False, paused=False, is_filtered=True,
        late_ms=late_ms(), crowd=CROWD, limit=1, after_rank=0, after_type="", after_id="",
    )  # fmt: skip
    return OwnerStatus(**rows[0]) if rows else None
