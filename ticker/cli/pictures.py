"""Writes pictures to files."""

from pathlib import Path

from ticker.errors import BadInput


def check(path: str) -> None:
    """Raises BadInput if the folder of the file does not exist."""
    if not Path(path).absolute().parent.is_dir():
        raise BadInput("--svg", path, "is in a folder that does not exist; choose another path")


def write(path: str, picture: str) -> None:
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput("--svg", path, f"cannot be written: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Returns the message of a file system error."""
    return (getattr(error, "strerror", None) or str(error)).lower()
