"""What `ticker worker` is told wrongly is one sentence, never a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT
from tests.sentences import sentence
from ticker.errors import ConfigurationError
from wrappers.__main__ import as_rq_reads
from wrappers.pipeline import registry
from wrappers.rq import options
from wrappers.shadowing import shadowing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://:secret@x"], sentence("errors.url_cannot_be_read", option="--url", remedy="redis://")),
        (["--url", "redis://x:nine"], sentence("errors.url_cannot_be_read", option="--url", remedy="redis://")),
        (["--config", "nope"], sentence("errors.no_module", option="--config", module="'nope'")),
        (["--config", ".conf"], sentence("errors.no_full_name", option="--config", module="'.conf'")),
        (["--worker-class", "nope.No"], sentence("errors.no_class_that_is_a", option="--worker-class", value="'nope.No'", base="BaseWorker")),
        (["--worker-class", "rq.Queue"], sentence("errors.no_class_that_is_a", option="--worker-class", value="'rq.Queue'", base="BaseWorker")),
        (["--job-class", "os.path"], sentence("errors.no_class_that_is_a", option="--job-class", value="'os.path'", base="Job")),
        (["--queue-class", "No"], sentence("errors.no_class_that_is_a", option="--queue-class", value="'No'", base="Queue")),
        (["--connection-class", ""], sentence("errors.no_class_that_is_a", option="--connection-class", value="''", base="Redis")),
        (["--serializer", "os.path"], sentence("errors.no_serializer", option="--serializer", value="'os.path'")),
        (["--exception-handler", "nope.no"], sentence("errors.no_function", option="--exception-handler", value="'nope.no'")),
        (["--logging_level", "LOUD"], sentence("errors.none_of_them", field="--logging_level", value="'LOUD'", values="CRITICAL, FATAL, ERROR")),
    ],
)  # fmt: skip
def test_an_option_that_rq_would_only_miss_with_a_traceback_is_refused_in_one_sentence(words, said):
    with pytest.raises(ConfigurationError) as refused:
        options.check(as_rq_reads((*words, "polling")).params)
    assert said.begins(refused.value)
    assert "secret" not in str(refused.value)


def test_options_that_rq_understands_pass():
    words = ("--url", "redis://localhost:6379/1", "--job-class", "rq.job.Job", "--serializer", "rq.serializers.JSONSerializer", "--config",
             "tests.sample_tasks", "--exception-handler", "tests.sample_tasks.trace", "--logging_level", "INFO")  # fmt: skip
    options.check(as_rq_reads((*words, "polling")).params)


@pytest.mark.parametrize(
    "module", [".polls", "..", "tests..polls", "tests.", "tests/sample_tasks.py", "tests.sample_tasks.plain"]
)
def test_tasks_that_name_no_module_are_refused_in_one_sentence(module):
    with pytest.raises(ConfigurationError, match=r"^--tasks \(TICKER_TASKS\): [^\n]+$"):
        registry.load([module])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--tasks", ".polls"], ["--tasks", "tests.sample_tasks", "--worker-class", "nope.No"]]
)
def test_the_command_ends_with_that_sentence_and_exit_code_78(environ, words):
    command = [sys.executable, "-m", "wrappers", *words, "--burst", "polling"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert done.stderr.startswith("error: --")


LAUNCHERS = {"ticker worker": ["ticker", "worker"], "python -m wrappers": ["wrappers"]}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_help_begins_with_our_options_and_shows_those_of_rq(launcher, tmp_path):
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage: ticker worker --tasks MODULE") and "--worker-class" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "file", "package"),
    [
        ("ticker worker", "wrappers.py", "wrappers"),
        ("ticker worker", "ticker/__init__.py", "ticker"),
        ("python -m wrappers", "ticker.py", "ticker"),
    ],
)
def test_a_module_of_the_application_with_the_name_of_a_package_of_ours_is_named_in_one_sentence(
    launcher, file, package, tmp_path
):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("raise SystemExit(1)")
    start = [str(Path(sys.executable).parent / "ticker"), "worker"] if launcher == "ticker worker" else [
        sys.executable, "-m", "wrappers"]  # fmt: skip
    done = subprocess.run([*start, "polling"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    said = sentence("cli.error_shadowed", file=f"{tmp_path}/{file}", package=package)
    assert (done.returncode, done.stdout, done.stderr) == (78, "", said)


def test_a_folder_without_such_a_module_and_a_checkout_of_ours_pass(tmp_path):
    (tmp_path / "ticker").mkdir()  # not a package: Python goes on to ours
    assert shadowing(tmp_path) == shadowing(ROOT) == ""


BROKEN = {
    "1 / 0": r"ZeroDivisionError: division by zero, in \S*/broken\.py, line 2",
    "import nothere": r"ModuleNotFoundError: No module named 'nothere', in \S*/broken\.py, line 2",
    "def": r"SyntaxError: invalid syntax, in \S*/broken\.py, line 2",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", [["wrappers", "--burst"], ["ticker", "sync"]])
@pytest.mark.parametrize("line", BROKEN)
def test_a_module_whose_import_fails_is_one_sentence_with_the_place_and_exit_code_78(environ, tmp_path, line, command):
    (tmp_path / "broken.py").write_text(f"#\n{line}\n")
    env = os.environ | environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", *command, "--tasks", "broken"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    said = sentence(
        "cli.error_import_fails",
        setting="--tasks (TICKER_TASKS)",
        module="'broken'",
        error=re.compile(BROKEN[line]),
        remedy="TICKER_DEBUG=1",
    )
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == said
    done = subprocess.run(
        command, cwd=ROOT, env=env | {"TICKER_DEBUG": "1"}, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" in done.stderr and done.stderr.count("error: --tasks") == 1
