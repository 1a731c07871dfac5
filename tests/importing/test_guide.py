"""docs/guides/from-crontab-and-json.md, run command by command: what it shows is what the commands print."""

import re
import shlex

import pytest
from click.testing import CliRunner

from tests.running import ROOT
from ticker.cli import main

PAGE = (ROOT / "docs/guides/from-crontab-and-json.md").read_text()
TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")


def shown():
    """Returns the commands of the page, each with the words that it prints."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        for step in block.replace("\\\n", " ").split("$ ")[1:]:
            line, _, printed = step.partition("\n")
            yield line, [word for word in printed.split() if "…" not in word and not TIME.search(word)]


@pytest.mark.slow
def test_the_guide_shows_what_the_commands_print(db, environ, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    crontab = re.search(r"^```text\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "crontab.txt").write_text(crontab)
    printed = []
    for line, words in shown():
        command, _, file = line.partition(" > ")
        if "import json --from" in line:
            db.execute("TRUNCATE ticker.tasks CASCADE")
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        leaves = "import crontab" in line  # one entry is refused
        assert result.exit_code == leaves, (line, result.output)
        if file:
            (tmp_path / file).write_text(result.stdout)
        assert [word for word in words if word not in result.output.split()] == [], line
        printed += words
    assert len(printed) > 100
