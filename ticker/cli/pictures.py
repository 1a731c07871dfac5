"""A picture as a file."""

from pathlib import Path

from ticker.errors import BadInput


def check(path: str) -> None:
    """Before anything is asked for nothing."""
    if not Path(path).absolute().parent.is_dir():
        raise BadInput("--svg", path, "is in no folder that exists; write another name")


def write(path: str, picture: str) -> None:
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput("--svg", path, f"cannot be written: {reason(error)}") from None


def reason(error: Exception) -> str:
    """An error of the file system in its own words."""
    return (getattr(error, "strerror", None) or str(error)).lower()
