"""Reads the Lua scripts that Redis runs. The first lines of each file describe its arguments and its answer."""

from importlib.resources import files


def script(name: str, package: str = "ticker.queue") -> str:
    """Returns the text of the script `name`.lua in a package."""
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")
