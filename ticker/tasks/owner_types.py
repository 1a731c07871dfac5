"""Names the triggers of a type of owner, and warns if there are none when its first task is registered."""

import hashlib
import json

from ticker import settings
from ticker.db.steps import Steps
from ticker.errors import BadInput, ConfigurationError, did_you_mean
from ticker.tasks import identity
from ticker.tasks.rows import query

NAME_BYTES = 63  # PostgreSQL truncates longer names
HOW = "(docs/concepts/owners.md)"

_external: set[str] = set()


def external(*types: str) -> None:
    """Declares, for this process, types of owners that are not rows of tables in this database, such as `crm`.

    Their first registration needs no warning. Only `unregister` deletes the tasks of such an owner.
    """
    for type_ in types:
        identity.check_text("owner_type", type_)
    _external.update(types)


def warnings(type_: str) -> Steps[tuple[str, ...]]:
    """Returns a warning if no task of this type exists yet, and no trigger follows it. Raises BadInput with
    TICKER_STRICT_OWNERS.
    """
    if not type_ or type_ in _external:
        return ()
    config = settings.current()
    [row] = yield query("owner_type", type=type_, trigger=trigger_name(config.schema, "deleted", type_))
    if row["standing"] == "known":
        return ()
    if row["standing"] == "table":
        problem = f"is a table that {has_no_trigger(type_)}"
    else:
        near = did_you_mean(type_, [guard["type"] for guard in (yield query("guards"))])
        problem = (
            f"is not the name of a table with ticker triggers{near}, so nothing deletes the tasks of its owners; if they are not rows "
            f"of this database: owners.external({json.dumps(type_)}) {HOW}"
        )
    refusal = BadInput("owner", type_, problem)
    if config.strict_owners:
        raise refusal
    return (str(refusal),)


def has_no_trigger(type_: str) -> str:
    return f"has no ticker trigger, so tasks outlive the owners deleted from it; {install('the trigger', type_)}"


def install(what: str, type_: str) -> str:
    return (
        f"install {what} in a migration: owners.install(op, {json.dumps(type_)}), or with psql: owners.triggers {HOW}"
    )


def hidden(type_: str, role: str, text: str) -> ConfigurationError:
    """Returns the error for a role that cannot see every row of a table."""
    return ConfigurationError(
        f"{role} cannot see every row of {type_}: {text}; let it read the views of the ticker's schema, and install the triggers "
        "as a role that sees all rows: one with BYPASSRLS, or the owner of the table without FORCE ROW LEVEL SECURITY"
    )


# ------------------------------------------------------------------------------------------------------------- names


def function_name(part: str, type_: str) -> str:
    return _short(f"owner_{part}_{type_}")


def guard_name(type_: str, part: str = "guard") -> str:
    """Returns the name of a function that `guard_owner`, a trigger function of our tables, calls for a type."""
    return f"owner_{part}_{hashlib.sha256(type_.encode()).hexdigest()[:32]}"


def trigger_name(schema: str, event: str, type_: str) -> str:
    return _short(f"{schema}_{event}_{type_}")


def quoted(text: str, quote: str = '"') -> str:
    return f"{quote}{text.replace(quote, 2 * quote)}{quote}"


def _short(name: str) -> str:
    """Returns the name or, if it is too long, a shorter one that ends in its hash."""
    data = name.encode()
    if len(data) <= NAME_BYTES:
        return name
    return f"{data[: NAME_BYTES - 17].decode(errors='ignore')}_{hashlib.sha256(data).hexdigest()[:16]}"
