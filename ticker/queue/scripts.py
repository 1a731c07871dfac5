"""Reads the Lua scripts that Redis runs. The first lines of each file describe its arguments and its answer."""

from importlib.resources import files

from rq import Queue

PREFIX = Queue.redis_queues_keys.removesuffix(":queues")
"""How the names of RQ's keys begin: `rq`, or what RQ_KEY_PREFIX says from RQ 3 on. In the scripts, it is `rq`."""


def script(name: str, package: str = "ticker.queue") -> str:
    """Returns the text of the script `name`.lua in a package, with RQ's prefix."""
    return files(package).joinpath(f"{name}.lua").read_text(encoding="utf-8").replace("'rq:", f"'{PREFIX}:")
