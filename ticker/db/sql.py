"""Reads the statements in the folder `sql`, once, and runs a statement on whatever connection it is handed.

Both the ticker and a worker's horse use it; it imports neither SQLAlchemy nor psycopg until it meets one.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from ticker.errors import BadInput
from ticker.settings import schema_name

Row = Mapping[str, Any]
Execute = Callable[..., list[Row]]
"""`execute(name, **parameters) -> rows`: one named statement on one connection."""

JSONB = 3802  # the number of that type in every PostgreSQL

_PARAMETER = re.compile(r"%\((\w+)\)s")
_PART = re.compile(r"^-- (name|rule): (\w+)\n", re.MULTILINE)
_RULE = re.compile(r"\{(\w+)(?: (\w+))?\}")


@cache
def statements(schema: str, settings: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Returns all statements by name, without comments, with the schema's quoted name and the rules filled in.

    `settings` are the columns of a task's fields. Without them, the statements that list them are left out.
    """
    named, rules = _document(schema)
    rules = {**rules, "settings": listed(settings, "t")}
    return {name: _filled(text, rules) for name, text in named.items() if settings or "{settings" not in text}


@cache
def _document(schema: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the statements and the rules as they stand in the folder, without comments, for this schema."""
    quoted = f'"{schema_name("schema", schema)}"'
    parts = {"name": dict[str, str](), "rule": dict[str, str]()}
    folder = files("ticker.db").joinpath("sql")
    for file in (file for file in folder.iterdir() if file.name.endswith(".sql")):
        _, *texts = _PART.split(file.read_text(encoding="utf-8").replace("{schema}", quoted))
        for kind, name, text in zip(texts[::3], texts[1::3], texts[2::3], strict=True):
            if name in parts[kind]:
                raise ValueError(f"{kind} {name} stands twice in ticker/db/sql")
            parts[kind][name] = re.sub(r"^--.*\n?", "", text, flags=re.MULTILINE).strip()
    return parts["name"], parts["rule"]


def rule(name: str, schema: str, alias: str) -> str:
    """Returns a rule for a table with that alias, for statements that are not in the folder."""
    return _for_table(_filled(_document(schema)[1][name], _document(schema)[1]), alias)


def _filled(text: str, rules: Mapping[str, str]) -> str:
    """Returns a statement, or a rule, with the rules that it uses filled in."""
    return _RULE.sub(lambda named: _for_table(_filled(rules[named[1]], rules), named[2]), text)


def listed(names: Iterable[str], alias: str = "") -> str:
    """Returns the columns as SQL, qualified by the alias if there is one."""
    return ", ".join(f"{alias}.{name}" if alias else name for name in names)


def _for_table(rule: str, alias: str | None) -> str:
    """Returns a rule, which is written for a table with the alias t, for another one, or for the only table."""
    return re.sub(r"\bt\.", f"{alias}." if alias else "", rule)


def on(db: Any, schema: str, settings: tuple[str, ...] = ()) -> Execute:
    """Runs statements on a SQLAlchemy Session or Connection, Django's or a psycopg connection, inside its transaction."""
    texts = statements(schema, settings)
    run = _runner(db)

    def execute(name: str, /, **parameters: Any) -> list[Row]:
        return run(texts[name], parameters)

    return execute


def run(db: Any, text: str) -> list[Row]:
    """A statement that names a table of the application, and so is none of the document's. It takes no parameters."""
    return _runner(db)(text.replace("%", "%%"), {})


def _runner(db: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
    """Recognised by what they can do, so that a scoped_session works and no library is imported to ask."""
    if inspect.iscoroutinefunction(getattr(db, "execute", None)):
        raise BadInput("db", db, "is asynchronous; write: await session.run_sync(lambda s: ticker.register(s, ...))")
    if hasattr(db, "exec_driver_sql"):
        return lambda sql, parameters: _sqlalchemy(db, sql, parameters)
    if hasattr(db, "flush") and hasattr(db, "connection"):
        return lambda sql, parameters: _sqlalchemy(db.connection(), sql, parameters)
    if hasattr(db, "pgconn"):
        return lambda sql, parameters: _psycopg(db, sql, parameters)
    if hasattr(db, "ensure_connection"):  # Django's
        db.ensure_connection()
        return _runner(db.connection)
    raise BadInput("db", db, "is neither a SQLAlchemy Session or Connection nor a psycopg connection")


def _sqlalchemy(connection: Any, sql: str, parameters: dict[str, Any]) -> list[Row]:
    if connection.dialect.driver != "psycopg":
        raise BadInput("db", connection.dialect.driver, "is not the driver psycopg (3): use postgresql+psycopg://")
    result = connection.exec_driver_sql(sql, parameters)
    return list(result.mappings()) if result.returns_rows else []


def _psycopg(connection: Any, sql: str, parameters: dict[str, Any]) -> list[Row]:
    from psycopg import RawCursor
    from psycopg.rows import dict_row

    text, names = _numbered(sql)
    values = [parameters[name] for name in names]
    if hasattr(connection, "run"):  # ours: outside a transaction, each statement is one
        return _in_utc(connection, connection.run(text, values))
    with RawCursor(connection, row_factory=dict_row) as cursor:
        _read_json(connection, cursor)
        cursor.execute(text, values, binary=not reads_iso(connection))
        answered = (
            cursor.pgresult is not None and cursor.pgresult.nfields > 0
        )  # `description` would describe each column
        rows: list[Row] = cursor.fetchall() if answered else []  # type: ignore[assignment]
        return _in_utc(connection, rows)


def reads_iso(connection: Any) -> bool:
    """Returns whether the session writes times in ISO, the only format that psycopg reads as text."""
    return (connection.pgconn.parameter_status(b"DateStyle") or b"ISO").startswith(b"ISO")


def _in_utc(connection: Any, rows: list[Row]) -> list[Row]:
    """Returns the rows with times in UTC. In the session's zone, sums across a clock change would be an hour off."""
    if connection.pgconn.parameter_status(b"TimeZone") in (b"UTC", b"Etc/UTC"):
        return rows
    return [{name: _time_in_utc(value) for name, value in row.items()} for row in rows]


def _time_in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list) and value and isinstance(value[0], datetime):
        return [time.astimezone(UTC) for time in value]
    return value


def _read_json(connection: Any, cursor: Any) -> None:
    """Django has its connections hand out jsonb as text."""
    from psycopg.pq import Format
    from psycopg.types.json import JsonbLoader

    if not issubclass(connection.adapters.get_loader(JSONB, Format.TEXT), JsonbLoader):
        cursor.adapters.register_loader("jsonb", JsonbLoader)


@cache
def _numbered(sql: str) -> tuple[str, Sequence[str]]:
    """The statement with PostgreSQL's own $1, $2 ... for its parameters, whose names come with it.

    psycopg does the same, in every call anew where a statement has over 4,096 characters: a sixth of what a start takes.
    """
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
    return text.replace("%%", "%"), names
