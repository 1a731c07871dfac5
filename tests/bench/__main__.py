"""`python -m tests.bench NAME [options]`: one benchmark by its name; without one, their list."""

import importlib
import pkgutil
import sys
from pathlib import Path

NO_BENCHMARKS = {
    "__main__", "answers", "figures", "limited_polls", "limited_starts", "noop", "poll", "polled", "pollers",
    "strict_answers", "usage",
}  # fmt: skip


def names() -> list[str]:
    return sorted(
        module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.name not in NO_BENCHMARKS
    )


def main() -> None:
    name, options = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name not in names():
        sys.exit(f"usage: python -m tests.bench {{{'|'.join(names())}}} [--help]")
    sys.argv = [f"python -m tests.bench {name}", *options]
    importlib.import_module(f"tests.bench.{name}").main()


if __name__ == "__main__":
    main()
