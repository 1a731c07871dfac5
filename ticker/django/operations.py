"""Defines operations for migrations: our tables, and the triggers by which tasks follow the rows of a model."""

from collections.abc import Iterable, Iterator
from threading import Event
from typing import Any, Unpack

from django.db.migrations.operations import RunPython
from django.db.migrations.operations.base import Operation

from ticker import migrations, owners
from ticker.db import drivers
from ticker.db.checks import NO_REVISION, REVISION, Revision, pending
from ticker.settings import current
from ticker.tasks.owner_triggers import drop_triggers_on, triggers_on


class Tables(RunPython):
    """Upgrades our tables to the newest revision, as `ticker db upgrade` does. Backwards, `drop` drops them."""

    def __init__(self, *, drop: bool = False) -> None:
        def upgrade(_: Any, editor: Any) -> None:
            _execute(editor, _upgrade(editor.connection))

        def remove(_: Any, editor: Any) -> None:
            if drop:
                _execute(editor, [migrations.drop(current().schema)])

        super().__init__(upgrade, remove)


class FollowOwner(RunPython):
    """Makes tasks follow the rows of a model: `FollowOwner("myapp.MailChannel", active_when="enabled")`.

    `options` are those of `owners.triggers`. `instead_of` is the operation that this one replaces. Backwards restores
    it.
    """

    reduces_to_sql = True
    deconstruct = Operation.deconstruct

    def __init__(self, model: str, instead_of: "FollowOwner | None" = None, **options: Unpack[owners.Options]) -> None:
        def install(apps: Any, editor: Any) -> None:
            _execute(editor, triggers_on(editor.connection, apps.get_model(model), options))

        def remove(apps: Any, editor: Any) -> None:
            _execute(editor, drop_triggers_on(editor.connection, apps.get_model(model), options))

        super().__init__(install, instead_of.code if instead_of else remove)


def _upgrade(connection: Any) -> Iterator[str]:
    """Yields the SQL of the upgrade, if there is one to make. Other upgrades wait until the transaction ends."""
    schema, driver = current().schema, drivers.of(connection)
    table = f'"{schema}".ticker_version'
    with driver.transaction(writes=True):
        attempts = 0
        while not _is_alone(connection):
            attempts += 1
            migrations.check_wait(attempts, _fetch_one(connection, migrations.HOLDER))
            Event().wait(migrations.LOCK_WAIT)
        [there] = driver.fetch("SELECT to_regclass(%(table)s) IS NOT NULL AS has_revision", {"table": table})
        rows = driver.fetch(REVISION.format(schema=schema), {}) if there["has_revision"] else []
    found = Revision(rows[0]["version_num"], rows[0]["oldest"]) if rows else NO_REVISION
    if pending(found, schema):
        yield migrations.script(schema, found.name)


def _is_alone(connection: Any) -> bool:
    """Takes the lock of upgrades, or returns False."""
    return bool(_fetch_one(connection, f"SELECT pg_try_advisory_xact_lock({migrations.UPGRADE_LOCK})"))


def _fetch_one(connection: Any, query: str) -> Any:
    """Returns a value. Keeps no snapshot, for which CREATE INDEX CONCURRENTLY would wait: a statement with parameters may
    keep one until the next statement.
    """
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def _execute(editor: Any, statements: Iterable[str]) -> None:
    if editor.connection.vendor == "postgresql":
        for statement in statements:
            editor.execute(statement, params=None)
