"""The committed pages that are generated from the code match it."""

import re

import pytest

from tests.documents import commands, settings
from tests.documents.pages import PAGES
from ticker.cli import main
from ticker.db import tables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.FILE.name)
def test_the_committed_page_is_what_its_generator_prints(page):
    assert page.FILE.read_text(encoding="utf-8") == page.text(), "run: python -m tests.documents"


def test_the_settings_are_those_that_are_read():
    listed = [name for group in settings.GROUPS.values() for name in group]
    assert sorted(listed) == sorted(name for name, _ in settings.settings_read())


def test_every_command_has_a_heading():
    headings = re.findall(r"^## `ticker (?:db )?([a-z-]+)`$", commands.text(), flags=re.MULTILINE)
    assert set(headings) == (set(main.commands) | set(main.commands["db"].load().commands)) - {"db"}
    assert commands.PAGES.keys() <= {name for name, _ in commands.commands(main)}


def test_every_column_is_in_the_page_of_the_tables():
    [page] = [page for page in PAGES if page.FILE.name == "sql.md"]
    sections = re.split(r"^## ", page.text(), flags=re.MULTILINE)[1:]
    shown = {
        section[1 : section.index("`", 1)]: re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE)
        for section in sections
    }
    assert shown == {table.name: [column.name for column in table.columns] for table in tables.metadata.sorted_tables}
