"""Builds and installs the triggers by which tasks follow their owner's row. `ticker.owners` is the public interface."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

from sqlalchemy import Table, event
from sqlalchemy.engine.mock import MockConnection
from sqlalchemy.exc import DBAPIError

from ticker.db.drivers import answer_of
from ticker.db.sql import listed, rule
from ticker.errors import BadInput
from ticker.settings import current, schema_name
from ticker.tasks.fields import COLUMNS
from ticker.tasks.identity import check_text, schema_on
from ticker.tasks.mapped import PER_SCHEMA, Described, base_table, mapper_of, table_of
from ticker.tasks.owner_triggers_sql import (
    EVENTS,
    INSERT_DEFAULT_TASKS,
    INSTALL,
    NAMED,
    OF_THIS_TYPE,
    PARSED,
    PARTS,
    REFUSED,
    RESERVED,
    SETTINGS,
    SUBJECT,
)
from ticker.tasks.owner_types import function_name, guard_name, quoted, trigger_name

ROWS = ("o", "OLD", "NEW")
Expression = Callable[[str], str]
"""Returns a condition or a subject as SQL over a row."""
CONDITION = "(({}) IS TRUE)"
OPTIONS = {
    "active_when": ("condition", "owners are always active", CONDITION),
    "subject_from": ("expression", "tasks have subjects of their own", "({})::text"),
}
"""What an option is, when it is None, and the form of its SQL."""
ASKED = ("guard", "named")
"""The functions that `guard_owner` calls for a type."""
ATTEMPTS = 20  # to get the locks of an installation, about a second apart

# ------------------------------------------------------------------------------------------------ ways to install


class Options(TypedDict, total=False):
    """The options of `triggers`."""

    key: str | Sequence[str] | None
    active_when: str | None
    subject_from: str | None
    schema: str | None
    table_schema: str | None


def triggers(
    table: object,
    *,
    key: str | Sequence[str] | None = None,
    active_when: str | None = None,
    subject_from: str | None = None,
    schema: str | None = None,
    table_schema: str | None = None,
) -> list[str]:
    """Returns the SQL that makes tasks follow the rows of a table: a mapped class, a Table, a Django model or a name.

    It is one statement, which can run again at any time, even with another condition. The role that runs it owns the
    functions, which use its rights on both tables. `key` defaults to the primary key, or to "id" if only a name is
    passed. `table_schema` defaults to the schema of the class, Table or model, or to that in the name, or else to
    "public"; if it is passed, the name is not split at its dot. A table that `per_schema` declares needs
    `table_schema`. `schema` is the schema of our tables, and defaults to TICKER_SCHEMA. `active_when` is a condition
    over the owner's columns; NULL counts as false. `subject_from` is one of these columns, such as `host`, or an SQL
    expression over them; it sets the subject of all tasks of the owner, and any other subject is refused. A condition
    or expression that depends on the session's search_path is refused, because triggers do not have it. The error
    shows the spelling that names each schema.
    """
    type_, relation, keys, columns = _placed(table, key, table_schema)
    condition, subject = (
        None if text is None else partial(_over, _checked(option, text), columns, form=OPTIONS[option][2])
        for option, text in (("active_when", active_when), ("subject_from", subject_from))
    )
    return installation(type_, relation, keys, condition, subject, schema or current().schema)


def installation(
    type_: str,
    relation: str,
    keys: Sequence[str],
    condition: Expression | None,
    subject: Expression | None,
    schema: str,
) -> list[str]:
    """Returns the statement of `triggers` for a quoted table."""
    names = _names(type_, schema)
    parts = {
        **names, **_keys(tuple(map(quoted, keys)), relation, names["key"]),
        **{f"active_{row}": condition(row) if condition else "true" for row in ROWS},
        "settings": SETTINGS, "resumed": rule("resumed", schema, "t"),
        "relation": relation, "type": _text(type_), "tasks": f"{quoted(schema)}.tasks",
        "templates": f"{quoted(schema)}.templates", "lock": "NO KEY UPDATE" if condition or subject else "KEY SHARE",
        "refused": REFUSED, "attempts": str(ATTEMPTS), "relation_name": _text(relation), "schema_name": _text(quoted(schema)),
        "name_of_id": _text(function_name("id", type_)), "functions": _array(_function_names(type_).values()),
        "guard_owner_name": _text(f"{quoted(schema)}.guard_owner()"),
        "keys": _array(keys),
    }  # fmt: skip
    parts |= {"made": _made(**parts), "which": OF_THIS_TYPE.format(**parts)}
    for part, option, returned, expression in (
        ("active", "active_when", "boolean", parts["active_o"]),
        ("subject", "subject_from", "text", subject("o") if subject else "NULL::text"),
    ):
        parts[f"parsed_{part}"] = PARSED.format(
            function=parts[part], name=_text(f"{parts[part]}({relation})"), option=option, sort=OPTIONS[option][0],
            returned=returned, expression=expression, relation=relation, refused=REFUSED, spelled=rule("spelled", schema, "t"),
        )  # fmt: skip
    return [INSTALL.format(**parts | _named(subject, parts))]


def _named(subject: Expression | None, parts: dict[str, str]) -> dict[str, str]:
    """Returns SQL that gives tasks the subject of their owner: new ones, those of a changed owner, and existing ones."""
    if subject is None:
        dropped = f"DROP FUNCTION IF EXISTS {parts['named']}(text);"
        return {
            "name_new": dropped,
            "name_changed": "",
            "name_existing": "",
            "or_subject": "",
            "asked": f"{parts['guard']}(text)",
        }
    of_row, old, new = (
        SUBJECT.format(subject=one) for one in ("v.subject", f"{parts['subject']}(OLD)", f"{parts['subject']}(NEW)")
    )
    of_type = f"UPDATE {parts['tasks']} t SET subject = "
    held = f"CASE TG_OP WHEN 'INSERT' THEN {parts['id']}(NEW) ELSE {parts['id']}(OLD) END"
    return {
        "name_new": NAMED.format(**parts, subject_of_v=of_row),
        "name_changed": f"""IF TG_OP = 'INSERT' OR {old} <> {new} THEN
        {of_type}{new} WHERE subject <> {new} AND id = ANY (ARRAY(SELECT id FROM {parts["tasks"]}
            WHERE owner_type = {parts["type"]} AND owner_id = {held} ORDER BY id FOR NO KEY UPDATE));
    END IF;""",
        "name_existing": f"{of_type}{of_row} FROM {parts['rows']} v"
        f" WHERE owner_type = {parts['type']} AND owner_id = v.id AND t.subject <> {of_row};",
        "or_subject": f" OR {subject('OLD')} IS DISTINCT FROM {subject('NEW')}",
        "asked": f"{parts['guard']}(text), {parts['named']}(text)",
    }


def drop_triggers(table: object, *, schema: str | None = None, table_schema: str | None = None) -> list[str]:
    """Returns the statements that remove the triggers and functions. The tasks stay. The table need not exist any more."""
    names = _names(_described(table, table_schema)[0], schema or current().schema)
    # CASCADE: only a trigger can depend on a trigger function
    dropped = [f"DROP FUNCTION IF EXISTS {names[event]}() CASCADE;" for event in EVENTS]
    dropped += [f"DROP FUNCTION IF EXISTS {names[part]};" for part in ASKED]
    dropped += [f"DROP VIEW IF EXISTS {names['rows']};"]
    return dropped + [f"DROP FUNCTION IF EXISTS {names[part]};" for part in PARTS]


def install(op: Any, table: object, **options: Unpack[Options]) -> None:
    """Installs the triggers in upgrade() of an Alembic revision: `install(op, "mail_channels", active_when="enabled")`."""
    _run_in(op, triggers_on(op.get_context().connection, table, options))


def uninstall(op: Any, table: object, *, schema: str | None = None, table_schema: str | None = None) -> None:
    """Removes the triggers in downgrade() of an Alembic revision."""
    _run_in(op, drop_triggers_on(op.get_context().connection, table, Options(schema=schema, table_schema=table_schema)))


def follow(target: object, **options: Unpack[Options]) -> None:
    """Makes metadata.create_all install the triggers, and drop_all remove them. Run `ticker db upgrade` first."""
    table = target if isinstance(target, Table) else base_table(mapper_of(target))
    triggers(target, **(Options(table_schema="public") | options))  # raises BadInput here rather than in create_all
    event.listen(table, "after_create", lambda _, db, **__: _run(db, triggers_on(db, target, options)))
    event.listen(table, "before_drop", lambda _, db, **__: _run(db, drop_triggers_on(db, target, options)))


def per_schema(*tables: object) -> None:
    """Declares, for this process, tables that exist once in each tenant's schema. Their owners' type is `SCHEMA.table`.

    `tables` are mapped classes, Tables, Django models or names. The connection of an object determines its schema, by
    its `schema_translate_map` or `search_path`. The same applies to `install`, `uninstall`, `follow` and `FollowOwner`.
    Other functions need `table_schema`.
    """
    for table in tables:
        type_ = _read(table)[0]
        check_text("table", type_)
        PER_SCHEMA.add(type_)


def triggers_on(db: Any, table: object, options: Options) -> list[str]:
    """Returns the statements of `triggers`. The connection determines the schema of a table that `per_schema` declares."""
    return triggers(table, **(options | {"table_schema": _schema_on(db, table, options)}))


def drop_triggers_on(db: Any, table: object, options: Options) -> list[str]:
    """Returns the statements of `drop_triggers`, for the same schema."""
    return drop_triggers(table, schema=options.get("schema"), table_schema=_schema_on(db, table, options))


def _schema_on(db: Any, table: object, options: Options) -> str | None:
    (type_, where, name, *_), given = _read(table), options.get("table_schema")
    is_offline = isinstance(db, MockConnection)  # Alembic's --sql
    return given if given or is_offline or type_ not in PER_SCHEMA else schema_on(db, where, name)


def type_of(table: object, table_schema: str | None = None) -> str:
    """Returns the type of the owners in a table. For a table that `per_schema` declares, it depends on `table_schema`."""
    type_ = _described(table, table_schema)[0]
    check_text("table", type_)
    return type_


def tasks_of_existing(type_: str, schema: str) -> str:
    """Returns the statement, without parameters, that creates the missing default tasks of all owners of a followed
    type.
    """
    parts = {"tasks": f"{quoted(schema)}.tasks", "templates": f"{quoted(schema)}.templates", "type": _text(type_)}
    rows, which = _names(type_, schema)["rows"], OF_THIS_TYPE.format(**parts)
    return f"{_made(**parts)} {rows} o ON true {which} RETURNING id"


def _made(**parts: str) -> str:
    """Returns the beginning of the statement that creates default tasks."""
    fields = {"fields": listed(COLUMNS), "fields_of_t": listed(COLUMNS, "t")}
    return INSERT_DEFAULT_TASKS.format(**parts, **fields, defaults=quoted(json.dumps(COLUMNS), "'"))


def _run_in(op: Any, texts: Iterable[str]) -> None:
    """Runs the statements without op.execute, which would take :name for a parameter."""
    context = op.get_context()
    if not context.as_sql:
        return _run(context.connection, texts)
    for text in texts:
        context.impl.static_output(text)
    return None


def _run(connection: Any, texts: Iterable[str]) -> None:
    if connection.dialect.name != "postgresql":  # for example, an application's tests on SQLite
        return
    for text in texts:
        try:
            connection.exec_driver_sql(text, execution_options={"no_parameters": True})  # % does not mark a parameter
        except DBAPIError as error:
            state, problem = answer_of(error)
            if state != REFUSED:
                raise
            raise BadInput("table", None, problem) from None  # SQLAlchemy's error has the whole statement


# --------------------------------------------------------------------------------------------------- the statements


def _names(type_: str, schema: str) -> dict[str, str]:
    """Returns names of at most 63 bytes for the functions, the view and the triggers."""
    where = quoted(schema_name("schema", schema))
    names = {name: f"{where}.{quoted(text)}" for name, text in _function_names(type_).items()}
    names["rows"] = f"{where}.{quoted(function_name('rows', type_))}"
    return names | {
        f"on_{event}": quoted(trigger_name(schema, event, type_)) for event in (*EVENTS, "moved", "arrived")
    }


def _function_names(type_: str) -> dict[str, str]:
    return {name: function_name(name, type_) for name in EVENTS + PARTS} | {
        name: guard_name(type_, name) for name in ASKED
    }


def _text(text: str) -> str:
    return quoted(text, "'")


def _array(texts: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(map(_text, texts))}]"


def _keys(columns: tuple[str, ...], relation: str, key: str) -> dict[str, str]:
    """Returns SQL that converts a key to the owner's id and back. The id has the collation that the index on owner_id
    needs.
    """
    names = [f"ticker_key_{n}" for n in range(len(columns))]
    is_one = len(columns) == 1
    values = ["owner"] if is_one else [f"owner::json ->> {n}" for n in range(len(columns))]
    answers = [f"{key}(owner)"] if is_one else [f"({key}(owner)).{name}" for name in names]
    return {
        **{f"id_{row}": _id(columns, row) for row in ROWS},
        "values": _array(answers),
        "columns": ", ".join(f"ticker_o.{column} AS {name}" for name, column in zip(names, columns, strict=True)),
        "declared": ", ".join(
            f"OUT {name} {relation}.{column}%TYPE" for name, column in zip(names, columns, strict=True)
        ),
        "assigned": " ".join(f"{name} := {value};" for name, value in zip(names, values, strict=True)),
    }


def _id(columns: tuple[str, ...], row: str) -> str:
    keys = [f"{row}.{column}" for column in columns]
    text = keys[0] if len(keys) == 1 else f"json_build_array({', '.join(keys)})"
    return f'({text})::text COLLATE "default"'


def _placed(
    table: object, key: str | Sequence[str] | None, table_schema: str | None
) -> tuple[str, str, tuple[str, ...], frozenset[str] | None]:
    """Returns the owner's type, its quoted table, its key, and its columns if they are known."""
    type_, where, name, own_key, columns = _described(table, table_schema)
    keys = own_key if key is None else (key,) if isinstance(key, str) else tuple(key)
    where = where or "public"
    for field, text in (("table", type_), *(("key", column) for column in keys), ("table_schema", where)):
        check_text(field, text)
        if RESERVED in text:
            raise BadInput(
                field, text, f"has {RESERVED!r}, which begins a delimiter of the trigger functions; rename it"
            )
    if not keys:
        raise BadInput("table", type_, "has no primary key; pass the columns of its key: key=(...)")
    return type_, f"{quoted(where)}.{quoted(name)}", keys, columns


def _described(table: object, table_schema: str | None) -> Described:
    """Returns the type of a table's owners, and the table's schema, name and key, and its columns if they are known."""
    type_, where, name, key, columns = _read(table, split=table_schema is None)
    if type_ in PER_SCHEMA:
        if not table_schema:
            raise BadInput("table", type_, "exists in each tenant's schema (owners.per_schema); pass table_schema=")
        type_ = f"{table_schema}.{name}"
    return Described(type_, table_schema or where, name, key, columns)


def _read(table: object, split: bool = True) -> Described:
    if not isinstance(table, str):
        return table_of(table)
    where, _, name = table.rpartition(".") if split else ("", "", table)
    return Described(table, where, name, ("id",), None)


TOKEN = re.compile(
    r"""(?P<text>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*') | (?P<name>"(?:[^"]|"")+" | [^\W\d][\w$]*)
      | \d[\w.]* | :: | \s+ | .""",
    re.VERBOSE | re.DOTALL,
)
KEYWORDS = frozenset(
    """all and any array as asymmetric at between both case collate current_catalog current_date current_role
    current_time current_timestamp current_user distinct document else end escape false from ilike in is isnull json
    leading like localtime localtimestamp normalized not notnull null or overlaps precision session_user similar some
    symmetric system_user then time to trailing true unknown user varying when with without zone""".split()  # noqa: SIM905 - as a list it is 60 lines
)


def _over(expression: str, columns: frozenset[str] | None, row: str, form: str = CONDITION) -> str:
    """Returns the expression with `row` before each column, or before each possible column, in this form."""
    tokens = list(TOKEN.finditer(expression))
    solid = ["", *(token[0].lower() for token in tokens if not token[0].isspace()), ""]
    position, read = 0, list[str]()
    for token in tokens:
        position += not token[0].isspace()
        before, after = solid[position - 1], solid[position + 1]
        is_name = token["name"] and before not in (".", "::", "as", "collate")
        is_other = after in ("(", ".") or after.endswith("'")  # a function, a schema, a type before its literal
        read.append(f"{row}.{token[0]}" if is_name and not is_other and _is_column(token[0], columns) else token[0])
    return form.replace("{}", "".join(read))


def deparsed(condition: str, row: str) -> str:
    """Returns an expression that PostgreSQL has deparsed from a function of a row `o` for another row."""
    tokens = [token[0] for token in TOKEN.finditer(condition)]
    rows = {n + 1 for n in range(len(tokens)) if tokens[n : n + 4] == ["(", "o", ")", "."]}
    return "".join(row if n in rows else token for n, token in enumerate(tokens))


def _is_column(name: str, columns: frozenset[str] | None) -> bool:
    if columns is None:
        return name.lower() not in KEYWORDS
    return unquoted(name) in columns


def unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _checked(option: str, expression: object) -> str:
    sort, otherwise, _ = OPTIONS[option]
    if not isinstance(expression, str) or not expression.strip():
        raise BadInput(option, expression, f"is not an SQL {sort}; pass None if {otherwise}")
    for refused in (";", "--", "/*", "$$", RESERVED, "\0"):
        if refused in expression:
            raise BadInput(
                option,
                expression,
                f"has {refused!r}, which is not allowed in {'an' if sort == 'expression' else 'a'} {sort}",
            )
    if any(token[0] in ("'", '"') for token in TOKEN.finditer(expression)):
        raise BadInput(option, expression, "has a quote that is not closed")
    return expression
