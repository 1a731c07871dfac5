"""Owners: the triggers by which tasks follow their owner's row (who is an owner: `identity`).

The triggers make it a fact of the database: whatever deletes, changes or empties the owner's table (the ORM, a bulk
statement, psql) takes the tasks along, and no task is written for an owner that is not there. Three ways to install
them: `follow` (metadata.create_all), `install` (an Alembic revision), `triggers` (plain SQL, for psql -f).

Limits: one who deletes or disables an owner under REPEATABLE READ does not see a task that was committed after his
snapshot, and leaves it as it is. DROP TABLE fires no trigger; nor does a DELETE on a partition or an inheriting
table by its own name. Two owners that swap their keys in one statement swap no tasks. Before a rename of the table,
drop the triggers; install them after it.
"""

from ticker.registration.owner_triggers import (
    Options,
    adding_trigger,
    drop_triggers,
    follow,
    install,
    orphans,
    tasks_of_existing,
    triggers,
    type_of,
    unfollowed,
    uninstall,
)
from ticker.tasks.identity import NOBODY, Owner, identify

__all__ = [
    "NOBODY", "Owner", "Options", "identify", "triggers", "drop_triggers", "install", "uninstall", "follow",
    "type_of", "adding_trigger", "tasks_of_existing", "unfollowed", "orphans",
]  # fmt: skip
