"""Finds the entries that were taken over by the metadata of their tasks: an entry is taken once its task is committed."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from ticker import settings
from ticker.db import connections
from ticker.importing.found import BY
from ticker.importing.take_over import TAKEN_FROM

TAKEN = """
SELECT t.metadata -> '{key}' ->> 'id', t.name FROM "{schema}".tasks t WHERE t.metadata -> '{key}' ->> 'source' = %s ORDER BY t.name
"""
FORGET = """
UPDATE "{schema}".tasks SET metadata = metadata - '{key}' WHERE metadata -> '{key}' ->> 'source' = %s
AND metadata -> '{key}' ->> 'id' = ANY (%s) AND set_config('ticker.by', %s, true) IS NOT NULL
"""


def taken(source: str) -> list[tuple[str, str]]:
    """Returns the ids of the entries and the names of their tasks. There are none without our tables, which a plan does not need."""
    if not settings.current().database_url:
        return []
    with connected("") as db:
        schema = settings.current().schema
        if db.execute("SELECT to_regclass(%s)", [f'"{schema}".tasks']).fetchone() == (None,):
            return []
        return db.execute(TAKEN.format(schema=schema, key=TAKEN_FROM), [source]).fetchall()


def forget(source: str, ids: Sequence[str]) -> None:
    """Removes from the tasks where they came from."""
    with connected("") as db:
        db.execute(FORGET.format(schema=settings.current().schema, key=TAKEN_FROM), [source, [*ids], BY])


@contextmanager
def connected(where: str) -> Iterator[connections.Connection]:
    """Opens a connection to a database that --from names, or to DATABASE_URL."""
    variable = "--from" if where else "DATABASE_URL"
    url = settings.psycopg_url(where, variable) if where else settings.current().require_database()
    with (
        connections.translated(variable),
        closing(connections.connect(url, name="ticker-import", variable=variable)) as connection,
    ):
        yield connection
