"""What the pages for contributors name is there: files, tests, rooms and links."""

import ast
import re

from tests.running import ROOT

PAGES = sorted((ROOT / ".github").rglob("*.md"))
GUIDE = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
OF_EXAMPLES = re.compile(r"/(?:test_)?(?:chat|sun|0003_note|note|revisions/0003)\.(?:py|sql)$")


def test_the_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_every_file_that_is_named_exists():
    paths = set(re.findall(r"(?<![\w/.])(?:ticker|wrappers|tests|docs|\.ci)/[\w./-]*\w", GUIDE))
    named = sorted(path for path in paths if not OF_EXAMPLES.search(path))
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUIDE)
    assert len(named) >= 10
    for path, name in named:
        functions = [node for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)]
        assert name in {function.name for function in functions}, (path, name)


def test_every_room_has_a_line():
    folders = [path.parent for package in ("ticker", "wrappers") for path in (ROOT / package).glob("*/__init__.py")]
    assert set(re.findall(r"^\| `((?:ticker|wrappers)/\w+)` \|", GUIDE, flags=re.MULTILINE)) == {
        folder.relative_to(ROOT).as_posix() for folder in folders
    }


def test_every_hook_is_a_command_of_the_lane_that_has_to_pass():
    hooks = re.findall(r"entry: uv (run .+)$", (ROOT / ".pre-commit-config.yaml").read_text(), flags=re.MULTILINE)
    lane = (ROOT / ".ci" / "run").read_text()
    assert len(hooks) == 4
    assert all(hook.removesuffix(" --force-exclude") in lane for hook in hooks)
