"""Reads the Lua scripts that Redis runs. Each stands in a file, with its arguments and answer in its first lines."""

from importlib.resources import files


def script(name: str, package: str = "ticker.queue") -> str:
    """Returns the text of the script in `name`.lua of a package."""
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8")
