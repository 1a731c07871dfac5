"""Names the functions and triggers of a type of owner. Imports no SQLAlchemy."""

import hashlib

NAME_BYTES = 63  # PostgreSQL truncates longer names


def function_name(part: str, type_: str) -> str:
    return _short(f"owner_{part}_{type_}")


def guard_name(type_: str) -> str:
    """Returns the name of the function that `guard_owner`, a trigger function of our tables, calls for a type."""
    return f"owner_guard_{hashlib.sha256(type_.encode()).hexdigest()[:32]}"


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
