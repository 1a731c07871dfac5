"""What users may import, what it costs, and who may import whom."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

import ticker
import wrappers
from ticker import errors

ROOT = Path(ticker.__file__).parent.parent


def test_the_door_of_ticker_is_this_and_no_more():
    assert ticker.__all__ == [
        "register", "register_many", "unregister", "reconcile", "edit", "pause", "resume", "pause_all", "resume_all", "run_now", "stop", "bulk", "defaults", "limit", "unlimit", "release",
        "get", "list_tasks", "list_owners", "list_limits", "list_pauses", "list_runs", "get_run", "why", "journal", "drops", "validate",
        "Preview", "Why", "JournalEntry", "Drops", "RunRecord", "FullRun", "Task", "Wanted", "Registered", "Bulk", "Owner", "OwnerStatus", "Limit", "LimitStatus", "Pause",
        "Kind", "Outcome", "Reason",
        "TickerError", "BadInput", "UnknownTask", "UnknownRun", "UnknownOwner", "ConfigurationError",
        "Unavailable", "DatabaseUnavailable", "RowLocked", "BulkStopped", "QueueUnavailable", "TickerWarning",
    ]  # fmt: skip


def test_the_door_of_wrappers_is_this_and_no_more():
    assert wrappers.__all__ == [
        "task",
        "limit",
        "Run",
        "Quota",
        "HoldLost",
        "SlowDown",
        "SoftLimit",
        "NOTHING_TO_DO",
        "shared",
        "run",
        "run_batch",
        "Worker",
    ]


@pytest.mark.parametrize("package", [ticker, wrappers], ids=["ticker", "wrappers"])
def test_every_name_of_a_door_is_there_and_documented(package):
    for name in package.__all__:
        assert (getattr(package, name).__doc__ or "").strip(), name


@pytest.mark.parametrize("package", [ticker, wrappers], ids=["ticker", "wrappers"])
def test_dir_lists_the_public_names(package):
    assert dir(package) == sorted(package.__all__)


def test_a_star_import_brings_every_name():
    names: dict[str, object] = {}
    exec("from ticker import *\nfrom wrappers import *", names)
    assert names.keys() >= {*ticker.__all__, *wrappers.__all__}


@pytest.mark.parametrize("package", [ticker, wrappers], ids=["ticker", "wrappers"])
def test_a_name_that_is_not_there_is_an_ordinary_attribute_error(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'regsiter'"):
        package.regsiter  # noqa: B018
    assert not hasattr(package, "__wrapped__")


def test_every_error_of_the_door_is_a_ticker_error_and_every_error_is_at_the_door():
    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert tree == {name for name in ticker.__all__ if name in vars(errors)}
    tree.remove("TickerWarning")
    assert all(issubclass(getattr(ticker, name), ticker.TickerError) for name in tree)
    assert issubclass(ticker.BadInput, ValueError)
    assert issubclass(ticker.UnknownTask, LookupError) and issubclass(ticker.UnknownOwner, LookupError)
    assert issubclass(ticker.UnknownRun, LookupError)


# -------------------------------------------------------------------------------------------------- what it costs


def imported_by(statement: str) -> set[str]:
    """The top-level packages that a new Python has loaded after the statement."""
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=True
    )
    return set(json.loads(done.stdout))


HEAVY = {"sqlalchemy", "alembic", "apscheduler", "rich", "hypothesis", "starlette", "uvicorn", "cronsim"}


def test_importing_ticker_loads_no_library_at_all():
    loaded = imported_by("import ticker")
    assert "ticker" in loaded
    assert not loaded & {*HEAVY, "psycopg", "redis", "rq", "click", "wrappers"}


@pytest.mark.slow
def test_doctor_of_tables_as_they_were_made_loads_no_library_that_compares_them(environ):
    loaded = imported_by(
        "from click.testing import CliRunner; from ticker.cli import main\n"
        "said = CliRunner().invoke(main, ['doctor', '--json']).output\nassert '\"check\": \"tables\"' in said, said"
    )
    assert not loaded & HEAVY


@pytest.mark.slow
def test_importing_wrappers_loads_only_what_a_horse_needs():
    loaded = imported_by("from wrappers import run")
    assert {"wrappers", "ticker", "rq", "psycopg"} <= loaded
    assert not loaded & HEAVY


@pytest.mark.slow
def test_what_a_horse_calls_loads_no_more_than_that():
    assert not imported_by("from wrappers import run, task\nfrom wrappers.layers import AROUND") & HEAVY


# ------------------------------------------------------------------------------------------------ who imports whom


def imports_of(file: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it: the full names of `from a import b` are a and a.b."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
def test_ticker_never_imports_wrappers_except_in_its_command_line_its_demo_and_its_test_kit():
    faces = {ROOT / "ticker" / "cli", ROOT / "ticker" / "demo", ROOT / "ticker" / "testing"}
    offenders = [
        file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / "ticker").rglob("*.py"))
        if not faces & set(file.parents) and any(name.partition(".")[0] == "wrappers" for name in imports_of(file))
    ]
    assert offenders == []


@pytest.mark.slow
def test_nothing_imports_the_tests_and_only_the_plugin_imports_pytest():
    plugin = ROOT / "ticker" / "testing" / "plugin.py"
    for package in ("ticker", "wrappers"):
        for file in (ROOT / package).rglob("*.py"):
            unwanted = {"tests"} if file == plugin else {"tests", "pytest"}
            assert not any(name.partition(".")[0] in unwanted for name in imports_of(file)), file


@pytest.mark.slow
def test_no_module_imports_a_test_module():
    """Shared code is in `tests/factories.py`, `harness.py`, `running.py`, or in a helper module of their folder."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    test_modules = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.match("test_*.py")}
    assert [(file, name) for file in files for name in imports_of(file) if name in test_modules] == []


# ----------------------------------------------------------------------------------------------------------- circles


@pytest.mark.slow
def test_no_files_import_each_other_in_a_circle():
    assert circles(ROOT / "ticker", ROOT / "wrappers") == []


def test_a_circle_is_found_through_imports_in_functions_but_not_through_those_for_types(tmp_path):
    texts = {
        "__init__": "from package.first import name",
        "first": "from package import second",
        "second": "def load():\n    from package.third import name",
        "third": "import package.first\nfrom package import typed",
        "typed": "if TYPE_CHECKING:\n    from package import third",
    }
    (tmp_path / "package").mkdir()
    for name, text in texts.items():
        (tmp_path / "package" / f"{name}.py").write_text(text)
    assert circles(tmp_path / "package") == [["package.first", "package.second", "package.third"]]


def circles(*packages: Path) -> list[list[str]]:
    """The groups of files that import each other, directly or through others. Imports for types alone do not count."""
    files = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for package in packages
        for file in package.rglob("*.py")
    }
    direct = {name: {*loaded_by(file, files.keys())} for name, file in files.items()}

    def reached(name: str, seen: set[str]) -> set[str]:
        for other in direct[name] - seen:
            seen.add(other)
            reached(other, seen)
        return seen

    beyond = {name: reached(name, set()) for name in files}
    groups = {frozenset(other for other in beyond[name] if name in beyond[other]) for name in files}
    return sorted(sorted(group) for group in groups if group)


@pytest.mark.parametrize("package", [ticker, wrappers], ids=["ticker", "wrappers"])
def test_no_constant_of_a_module_is_defined_twice(package):
    """The second value would also be that of the first one's users."""
    for file in Path(package.__file__).parent.rglob("*.py"):
        assigned = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
        names = [
            part.id
            for node in assigned
            for target in node.targets
            for part in ast.walk(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
        assert len(names) == len(set(names)), (file, names)


def loaded_by(file: Path, modules: Set[str]) -> Iterator[str]:
    """The modules of ours that a file imports at run time: `from a import b` imports a.b if that is a module, or a."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for_types = {part for block in blocks for statement in block.body for part in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in for_types:
            yield from modules & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node not in for_types:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from modules & {name if name in modules else node.module for name in names}
