"""Owners: whom a task belongs to, and the triggers by which the tasks follow the owner's row.

The triggers make it a fact of the database: whatever deletes, changes or empties the owner's table (the ORM, a bulk
statement, psql) takes the tasks along, and no task is written for an owner that is not there. Three ways to install
them: `follow` (metadata.create_all), `install` (an Alembic revision), `triggers` (plain SQL, for psql -f).

Limits. Under REPEATABLE READ the snapshot of the one who deletes an owner may be older than a task that was committed
meanwhile, which then stays. DROP TABLE fires no trigger. Rows deleted from a partition or an inheriting table by its
own name are not seen. Who renames or moves the table drops the triggers before and installs them after.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any
from uuid import UUID

from sqlalchemy import DDL, Table, Uuid, event, inspect
from sqlalchemy.orm import InstanceState, Mapper, Session

from ticker.errors import BadInput
from ticker.sql import statements
from ticker.tables import NAME_AT_MOST

# ------------------------------------------------------------------------------------------------- who owns a task

CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})  # PostgreSQL's [[:cntrl:]] in any locale, and what is no UTF-8


@dataclass(frozen=True, slots=True)
class Owner:
    """The full name of the owner's table and the text of its key; both empty: nobody."""

    type: str
    id: str

    def __post_init__(self) -> None:
        if (self.type, self.id) != ("", ""):
            _check_text("owner_type", self.type)
            _check_text("owner_id", self.id)


NOBODY = Owner("", "")


def identify(db: object, owner: object) -> Owner:
    """Whom `owner` names: None, an Owner, a pair of texts, a text type:id, or a mapped object, flushed if pending."""
    if owner is None:
        return NOBODY
    if isinstance(owner, Owner):
        return owner
    if isinstance(owner, str):
        if ":" not in owner:
            raise BadInput("owner", owner, "names no owner; write type:id, such as mail_channels:5")
        return _named(*owner.split(":", 1))
    if isinstance(owner, tuple | list) and len(owner) == 2:
        return _named(*owner)
    state = inspect(owner, raiseerr=False)
    if isinstance(state, InstanceState):
        return _mapped(db, state)
    raise BadInput("owner", owner, "is no owner: neither a mapped object, a pair of texts nor a text type:id")


def _named(type_: str, id_: str) -> Owner:
    owner = Owner(type_, id_)
    if owner == NOBODY:
        raise BadInput("owner", (type_, id_), "is empty; None stands for no owner")
    return owner


def _mapped(db: object, state: InstanceState[Any]) -> Owner:
    name, session = state.class_.__name__, state.session  # never its repr, which may load from the database
    if state.deleted or state.was_deleted or (session and state.obj() in session.deleted):
        raise BadInput("owner", name, "is deleted")
    table = _base_table(state.mapper)
    if state.pending and session:
        if isinstance(db, Session) and db is not session:
            raise BadInput("owner", name, "is new in another session, whose rows this one cannot see")
        session.flush()
    if state.identity is None:
        raise BadInput("owner", name, "is in no session and has no key; add it to the session first")
    return Owner(table.fullname, _key_text(state.mapper, state.identity))


def _base_table(mapper: Mapper[Any]) -> Table:
    """The table of the key: the base table under joined and single inheritance, its own under concrete."""
    found = {column.table for column in mapper.primary_key}
    table = found.pop()
    if found or not isinstance(table, Table):
        raise BadInput("owner", mapper.class_.__name__, "is not mapped to one table with a primary key")
    return table


def _key_text(mapper: Mapper[Any], identity: Sequence[object]) -> str:
    """As PostgreSQL prints it: key::text, or json_build_array(...)::text of a composite key."""
    values = []
    for column, value in zip(mapper.primary_key, identity, strict=True):
        if isinstance(value, bool | Enum) or not isinstance(value, int | str | UUID):
            raise BadInput(column.name, value, "is no key of an owner: int, str and UUID are; name it by a pair of texts")
        if isinstance(value, UUID) or isinstance(column.type, Uuid):
            value = str(UUID(str(value)))
        values.append(value)
    return str(values[0]) if len(values) == 1 else json.dumps(values, ensure_ascii=False)


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadInput(field, value, f"is no text, but of type {type(value).__name__}")
    if not 0 < len(value) <= NAME_AT_MOST:
        raise BadInput(field, value, f"has {len(value)} characters; 1 to {NAME_AT_MOST} are allowed")
    if any(unicodedata.category(character) in CONTROL for character in value):
        raise BadInput(field, value, f"has a control character; 1 to {NAME_AT_MOST} printable ones are allowed")


# ------------------------------------------------------------------------------------------------ ways to install


def triggers(
    table: object,
    *,
    key: str | Sequence[str] | None = None,
    active_when: str | None = None,
    schema: str = "ticker",
    table_schema: str | None = None,
) -> list[str]:
    """The statements that let tasks follow the rows of `table`: a mapped class, a Table, or a text (crm.)mail_channels.

    They may run again at any time, and with another condition. Who runs them owns the functions and lends them its
    rights on both tables. `key` defaults to the primary key, for a text to "id". `table_schema` says where the table
    is if its name does not ("public"); a text is not split at its dot then. `active_when` is a condition over the
    owner's columns, NULL counting as false; it is read with search_path pg_catalog, so what an extension or
    you defined needs its schema.
    """
    of = _followed(table, key, table_schema, active_when, schema)
    return [*_deleted(of), *_truncated(of), *_changed(of), *_guarded(of), _brought_up_to_date(of)]


def drop_triggers(table: object, *, schema: str = "ticker") -> list[str]:
    """The statements that remove all of it again; the tasks stay. The table may be gone already."""
    of = _followed(table, "id", None, None, schema)
    # CASCADE: nothing but a trigger can depend on a trigger function
    return [f"DROP FUNCTION IF EXISTS {of.function(event)} CASCADE;" for event in EVENTS]


def install(op: Any, table: object, **options: Any) -> None:
    """In an Alembic revision's upgrade(): `install(op, "mail_channels", active_when="enabled")`. Options: `triggers`."""
    _execute(op, triggers(table, **options))


def uninstall(op: Any, table: object, *, schema: str = "ticker") -> None:
    """In an Alembic revision's downgrade()."""
    _execute(op, drop_triggers(table, schema=schema))


def follow(target: object, **options: Any) -> None:
    """Lets metadata.create_all and drop_all install and remove them. `ticker db upgrade` comes first; options: `triggers`."""
    table = target if isinstance(target, Table) else _base_table(_mapper(target))
    drops = drop_triggers(target, schema=options.get("schema", "ticker"))
    for name, texts in (("after_create", triggers(target, **options)), ("before_drop", drops)):
        for text in texts:
            event.listen(table, name, DDL(text.replace("%", "%%")).execute_if(dialect="postgresql"))


def _execute(op: Any, texts: Sequence[str]) -> None:
    """Not op.execute, which takes :name for a parameter."""
    context = op.get_context()
    for text in texts:
        if context.as_sql:
            context.impl.static_output(text)
        else:
            context.connection.exec_driver_sql(text, execution_options={"no_parameters": True})


# --------------------------------------------------------------------------------------------------- the statements

EVENTS = ("deleted", "truncated", "changed", "guarded")

# pg_temp last: an empty search_path still looks for types in pg_temp first, so that a caller's temporary domain "text"
# would run its CHECK with the definer's rights. No sequential scan: a plan kept since the tables were small would
# compare each of 10,000 ids with each task.
SETTINGS = "SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off"

DUE_IF_ACTIVATED = """next_run = CASE WHEN {active} AND NOT t.owner_active AND kind = 'interval' AND next_run IS NOT NULL
                         THEN clock_timestamp() ELSE next_run END"""


@dataclass(frozen=True, slots=True)
class _Followed:
    """An owner's table, with what the statements need of it, quoted for SQL."""

    type: str
    relation: str
    key: tuple[str, ...]
    columns: frozenset[str] | None  # None: not known
    active_when: str | None
    schema: str

    def function(self, event: str) -> str:
        return f"{_quoted(self.schema)}.{_quoted(_short('owner', event, self.type))}()"

    @property
    def tasks(self) -> str:
        return f"{_quoted(self.schema)}.tasks"

    @property
    def of_type(self) -> str:
        return "owner_type = '{}'".format(self.type.replace("'", "''"))

    def id(self, row: str) -> str:
        """The owner's id, in the collation of tasks.owner_id, whose index would not serve another."""
        keys = [f"{row}.{column}" for column in self.key]
        text = keys[0] if len(keys) == 1 else f"json_build_array({', '.join(keys)})"
        return f'{text}::text COLLATE "default"'

    def active(self, row: str = "") -> str:
        """The condition, true or false, over the columns of `row`, or over bare ones."""
        if self.active_when is None:
            return "true"
        condition = "".join(_qualified(self.active_when, self.columns, row)) if row else self.active_when
        return f"(({condition}) IS TRUE)"


def _deleted(of: _Followed) -> Iterator[str]:
    yield from _trigger(
        of, "deleted", f"AFTER DELETE ON {of.relation} REFERENCING OLD TABLE AS gone FOR EACH STATEMENT",
        f"""
    DELETE FROM {of.tasks} WHERE {of.of_type} AND owner_id = ANY (ARRAY(SELECT {of.id("g")} FROM gone g));
    RETURN NULL;""",
    )  # fmt: skip


def _truncated(of: _Followed) -> Iterator[str]:
    yield from _trigger(
        of, "truncated", f"AFTER TRUNCATE ON {of.relation} FOR EACH STATEMENT",
        f"""
    DELETE FROM {of.tasks} WHERE {of.of_type};
    RETURN NULL;""",
    )  # fmt: skip


def _changed(of: _Followed) -> Iterator[str]:
    """Row by row and only WHEN needed; with transition tables unrelated updates would cost six times as much."""
    rekeyed = f"{of.id('OLD')} <> {of.id('NEW')}"
    changed = rekeyed if of.active_when is None else f"{of.active('OLD')} <> {of.active('NEW')} OR {rekeyed}"
    yield from _trigger(
        of, "changed", f"AFTER UPDATE ON {of.relation} FOR EACH ROW WHEN ({changed})",
        f"""
    UPDATE {of.tasks} t SET owner_active = {of.active("NEW")},
        {DUE_IF_ACTIVATED.format(active=of.active("NEW"))}
    WHERE {of.of_type} AND owner_id = {of.id("OLD")} AND owner_active <> {of.active("NEW")};
    IF {rekeyed} THEN
        UPDATE {of.tasks} SET owner_id = {of.id("NEW")} WHERE {of.of_type} AND owner_id = {of.id("OLD")};
    END IF;
    RETURN NULL;""",
    )  # fmt: skip


def _guarded(of: _Followed) -> Iterator[str]:
    """A task whose owner is not there, by exactly this id, is not written.

    The lock makes a DELETE of the owner wait for the task, and the task for the DELETE; with a condition any UPDATE,
    which KEY SHARE would let pass: its trigger would miss the new task, and the task the new condition.
    """
    names = [f"ticker_key_{number}" for number in range(len(of.key))]
    values = ["NEW.owner_id"] if len(names) == 1 else [f"NEW.owner_id::json ->> {n}" for n in range(len(names))]
    pairs = list(zip(names, of.key, strict=True))
    yield from _trigger(
        of, "guarded", f"BEFORE INSERT OR UPDATE OF owner_type, owner_id ON {of.tasks} FOR EACH ROW WHEN (NEW.{of.of_type})",
        f"""
    BEGIN
        {" ".join(f"{name} := {value};" for name, value in zip(names, values, strict=True))}
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        RETURN NULL;
    END;
    SELECT {of.active()} INTO NEW.owner_active FROM {of.relation} o
    WHERE {" AND ".join(f"o.{column} = {name}" for name, column in pairs)} AND {of.id("o")} = NEW.owner_id
    FOR {"KEY SHARE" if of.active_when is None else "NO KEY UPDATE"};
    IF FOUND THEN
        RETURN NEW;
    END IF;
    RETURN NULL;""",
        declare=" ".join(f"{name} {of.relation}.{column}%TYPE;" for name, column in pairs),
    )  # fmt: skip


def _brought_up_to_date(of: _Followed) -> str:
    """What was registered before, or under another condition; it also refuses a condition that is no SQL."""
    return f"""UPDATE {of.tasks} t SET owner_active = o.active,
    {DUE_IF_ACTIVATED.format(active="o.active")}
FROM (SELECT {of.id("o")} AS id, {of.active()} AS active FROM {of.relation} o) o
WHERE t.{of.of_type} AND t.owner_id = o.id AND t.owner_active <> o.active;"""


def _trigger(of: _Followed, event: str, when: str, body: str, declare: str = "") -> Iterator[str]:
    """The function, its right to be called by nobody else (one could hang it on a table of one's own), the trigger."""
    text = f"\n#variable_conflict use_column\nDECLARE {declare}\nBEGIN{body}\nEND "
    dollar = next(mark for n in count() if (mark := f"$ticker{n}$") not in text)
    function = of.function(event)
    name = _quoted(_short(of.schema, event, of.type))
    yield f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql\n{SETTINGS} AS {dollar}{text}{dollar};"
    yield f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC;"
    yield f"CREATE OR REPLACE TRIGGER {name} {when} EXECUTE FUNCTION {function};"


# -------------------------------------------------------------------------------------------- names and conditions


def _followed(
    table: object, key: str | Sequence[str] | None, table_schema: str | None, active_when: str | None, schema: str
) -> _Followed:
    statements(schema)  # refuses what is no schema name
    type_, where, name, own_key, columns = _described(table, split=table_schema is None)
    keys = own_key if key is None else (key,) if isinstance(key, str) else tuple(key)
    for field, text in [("table", type_), *(("key", column) for column in keys)]:
        _check_text(field, text)
    if not keys:
        raise BadInput("table", type_, "has no primary key; say which columns are its key: key=(...)")
    relation = f"{_quoted(table_schema or where or 'public')}.{_quoted(name)}"
    _check_condition(active_when)
    return _Followed(type_, relation, tuple(map(_quoted, keys)), columns, active_when, schema)


def _described(table: object, split: bool) -> tuple[str, str | None, str, tuple[str, ...], frozenset[str] | None]:
    """A table's full name, schema, name, key and columns."""
    if isinstance(table, str):
        where, dot, name = table.partition(".") if split else ("", "", table)
        return table, where if dot else None, name if dot else table, ("id",), None
    mapper = None if isinstance(table, Table) else _mapper(table)
    found = table if isinstance(table, Table) else _base_table(_mapper(table))
    key = found.primary_key.columns if mapper is None else mapper.primary_key
    return found.fullname, found.schema, found.name, tuple(c.name for c in key), frozenset(c.name for c in found.columns)


def _mapper(target: object) -> Mapper[Any]:
    mapper = inspect(target, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise BadInput("table", target, "is neither a mapped class, a Table nor the name of a table")
    return mapper


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _short(*parts: str) -> str:
    """A name of at most 63 bytes, which is where PostgreSQL cuts; a longer one ends in its hash."""
    name = "_".join(parts).encode()
    if len(name) <= 63:
        return name.decode()
    return f"{name[:46].decode(errors='ignore')}_{hashlib.sha256(name).hexdigest()[:16]}"


TOKEN = re.compile(
    r"""(?P<text>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*') | (?P<name>"(?:[^"]|"")+" | [^\W\d][\w$]*)
      | \d[\w.]* | \s+ | :: | .""",
    re.VERBOSE | re.DOTALL,
)
KEYWORDS = frozenset(
    ["all", "and", "any", "array", "as", "asymmetric", "at", "between", "both", "case", "collate", "current_catalog", "current_date", "current_role", "current_time", "current_timestamp", "current_user", "distinct", "document", "else", "end", "escape", "false", "from", "ilike", "in", "is", "isnull", "json", "leading", "like", "localtime", "localtimestamp", "normalized", "not", "notnull", "null", "or", "overlaps", "precision", "session_user", "similar", "some", "symmetric", "system_user", "then", "time", "to", "trailing", "true", "unknown", "user", "varying", "when", "with", "without", "zone"]
)


def _qualified(condition: str, columns: frozenset[str] | None, row: str) -> Iterator[str]:
    """The condition's tokens, its columns as `row`.column; without known columns, every name that can be one."""
    tokens = list(TOKEN.finditer(condition))
    solid = [""] + [token[0].lower() for token in tokens if not token[0].isspace()] + [""]
    position = 0
    for token in tokens:
        position += not token[0].isspace()
        named = token["name"] and solid[position - 1] not in (".", "::", "as", "collate")
        called = solid[position + 1] in ("(", ".") or solid[position + 1].endswith("'")
        yield f"{row}.{token[0]}" if named and not called and _is_column(token[0], columns) else token[0]


def _is_column(name: str, columns: frozenset[str] | None) -> bool:
    if columns is None:
        return name.lower() not in KEYWORDS
    return (name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()) in columns


def _check_condition(condition: str | None) -> None:
    if condition is None:
        return
    if not isinstance(condition, str) or not condition.strip():
        raise BadInput("active_when", condition, "is no SQL condition; None stands for always active")
    for refused in (";", "--", "/*", "$$", "\0"):
        if refused in condition:
            raise BadInput("active_when", condition, f"has {refused!r}, which a condition cannot have")
    if any(token[0] in ("'", '"') for token in TOKEN.finditer(condition)):
        raise BadInput("active_when", condition, "has a quote without its end")
