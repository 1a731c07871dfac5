"""Provides triggers that make tasks follow their owner's row.

The triggers work in the database: when an ORM, a bulk statement or psql changes or deletes rows of the owners' table,
or truncates it, the tasks are changed or deleted, too. A task cannot be written for an owner that does not exist. There
are three ways to install them: `follow` (metadata.create_all), `install` (an Alembic revision) and `triggers` (plain
SQL, for psql -f).

Limits: a transaction under REPEATABLE READ that deletes or disables an owner does not see tasks that were committed
after its snapshot, and leaves them unchanged. A DELETE that names a partition or an inheriting table fires no trigger.
If two owners swap their keys in one statement, their tasks are not swapped. PostgreSQL follows renamed columns, and
refuses to drop the table, or a column of the key or the condition. Drop the triggers before you change the type of such
a column, and install them again afterwards. After you rename the table, run `ticker owners --rename`. The first task of
a type without triggers is registered with a warning, unless `external` declares that its owners are not rows here.
"""

from ticker.tasks.identity import NOBODY, Owner, identify
from ticker.tasks.owner_triggers import (
    Options,
    drop_triggers,
    follow,
    install,
    per_schema,
    tasks_of_existing,
    triggers,
    type_of,
    uninstall,
)
from ticker.tasks.owner_types import external

__all__ = [
    "NOBODY", "Owner", "Options", "external", "per_schema", "identify", "triggers", "drop_triggers", "install", "uninstall", "follow",
    "type_of", "tasks_of_existing",
]  # fmt: skip
