"""The programs and commands in the documents are ones that Python, and `ticker`, understand."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.documents import commands
from tests.running import ROOT
from ticker.cli import main

PAGES = [ROOT / "README.md", ROOT / "tests/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
KNOWN = dict(commands.commands(main))
RELAYED = {"worker"}  # it takes the options of rq worker
PROGRAM = re.compile(r"^( *)```python\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]+`|^    \S[^\n]*$", flags=re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^ *(?:`|\$ |\w+: |.*&& |ExecStart=\S*/)?ticker (?=[a-z])([^`#|&;\n]*)", flags=re.MULTILINE)
OF_EACH = {"--help", "--json"}
named = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@named
def test_programs_in_python_can_be_compiled(page):
    for _, program in PROGRAM.findall(page.read_text(encoding="utf-8")):
        compile(dedent(program), str(page), "exec", dont_inherit=True)


@named
def test_commands_exist_and_take_the_options_that_are_shown(page):
    for name, options in shown(page):
        assert name in KNOWN, name
        taken = {option for one in commands.options(KNOWN[name]) for option in (*one.opts, *one.secondary_opts)}
        assert name in RELAYED or options <= taken | OF_EACH, (name, options - taken)


def shown(page: Path) -> Iterator[tuple[str, set[str]]]:
    """Returns the commands in the code of a page, with their options."""
    for code in CODE.findall(page.read_text(encoding="utf-8")):
        for line in COMMAND.findall(code):
            words = [word.strip("[],.\"'") for word in line.split()]
            name = " ".join(words[:2]) if words[0] == "db" else words[0]
            options = {word.partition("=")[0] for word in words if re.match("--[a-z]", word)}
            yield name, options


def test_the_commands_of_code_are_found_and_those_of_prose_are_not(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "A\nticker asks `ticker why TASK --at 09:00`, and:\n\n```sh\nx && ticker db adopt [--resume]  # y\n```\n"
    )
    assert list(shown(page)) == [("why", {"--at"}), ("db adopt", {"--resume"})]
