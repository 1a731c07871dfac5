"""Reads the budget."""

import tomllib
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "budget.toml"


def budget() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())
