"""Reads the tables that come with the package. The timing rules were specified with these tables."""

from importlib.resources import files

_TABLES = files("ticker.replay").joinpath("tables")
_ENDING = ".md"


def names() -> list[str]:
    return sorted(entry.name.removesuffix(_ENDING) for entry in _TABLES.iterdir() if entry.name.endswith(_ENDING))


def text(name: str) -> str:
    """Returns the text of the table file with this name, which is one of `names`."""
    return _TABLES.joinpath(name + _ENDING).read_text(encoding="utf-8")
