"""Compares the refusals of a source's entries with a golden file, tests/importing/refusals/SOURCE.toml.

`pytest --rewrite-sentences` writes it.
"""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests import sentences
from ticker.importing.found import Found

FOLDER = Path(__file__).parent / "refusals"


def check_refusals(source: str, founds: Iterable[Found], of: str) -> None:
    observed = {found.id: list(found.refusals) for found in founds if found.refusals}
    file = FOLDER / f"{source}.toml"
    golden = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if sentences.rewriting:
        golden[of] = observed
        file.write_text("\n".join(map(section, sorted(golden.items()))), encoding="utf-8")
    assert observed == golden[of]


def section(named: tuple[str, dict[str, list[str]]]) -> str:
    name, refusals = named
    return f"[{name}]\n" + "".join(
        f"{json.dumps(id_)} = {json.dumps(texts, ensure_ascii=False)}\n" for id_, texts in sorted(refusals.items())
    )
