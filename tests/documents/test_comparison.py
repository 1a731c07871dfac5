"""The comparison with other schedulers: every cell is filled, and each system has its sources in the version it names."""

import re

from tests.running import ROOT

PAGE = (ROOT / "docs" / "concepts" / "comparison.md").read_text(encoding="utf-8")
HEAD, _, *ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
[SOURCES] = re.findall(r"<!--(.*?)-->", PAGE, flags=re.DOTALL)


def test_every_row_says_something_of_every_system():
    assert len(ROWS) >= 10
    assert all(len(row) == len(HEAD) and all(cell.strip() for cell in row) for row in ROWS)


def test_the_sources_are_those_of_the_versions_in_the_heading():
    versions = [re.findall(r"\d+\.\d+\.\d+", system) for system in HEAD[2:]]
    assert versions == [[version] for version in re.findall(r"^[\w-]+/[\w-]+, ([\d.]+)", SOURCES, flags=re.MULTILINE)]


def test_each_system_is_the_better_choice_for_somebody():
    better = PAGE[PAGE.index("## When another one") : PAGE.index("## When not to use")]
    names = [re.sub(r" \(.*|[\d.]+ *$|`", "", system).strip() for system in HEAD[2:]]
    assert [
        re.sub(r"`| 3$", "", name) for name in re.findall(r"^\* \*\*(.+?)\*\*", better, flags=re.MULTILINE)
    ] == names
