"""What `ticker worker` is told wrongly is one sentence, never a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT
from ticker.errors import ConfigurationError
from wrappers.__main__ import as_rq_reads
from wrappers.pipeline import registry
from wrappers.rq import options
from wrappers.shadowing import shadowing


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--url", "http://:secret@x"], "--url: that text cannot be read; write redis://"),
        (["--url", "redis://x:nine"], "--url: that text cannot be read; write redis://"),
        (["--config", "nope"], "--config: there is no module 'nope' on the import path"),
        (["--config", ".conf"], "--config: '.conf' is no module's full name"),
        (["--worker-class", "nope.No"], "--worker-class: 'nope.No' is no class on the import path that is a BaseWorker"),
        (["--worker-class", "rq.Queue"], "--worker-class: 'rq.Queue' is no class on the import path that is a BaseWorker"),
        (["--job-class", "os.path"], "--job-class: 'os.path' is no class on the import path that is a Job"),
        (["--queue-class", "No"], "--queue-class: 'No' is no class on the import path that is a Queue"),
        (["--connection-class", ""], "--connection-class: '' is no class on the import path that is a Redis"),
        (["--serializer", "os.path"], "--serializer: 'os.path' is nothing on the import path that has dumps and loads"),
        (["--exception-handler", "nope.no"], "--exception-handler: there is no function 'nope.no' on the import path"),
        (["--logging_level", "LOUD"], "--logging_level: 'LOUD' is none of CRITICAL, FATAL, ERROR"),
    ],
)  # fmt: skip
def test_an_option_that_rq_would_only_miss_with_a_traceback_is_refused_in_one_sentence(words, sentence):
    with pytest.raises(ConfigurationError) as refused:
        options.check(as_rq_reads((*words, "polling")).params)
    assert str(refused.value).startswith(sentence)
    assert "secret" not in str(refused.value)


def test_options_that_rq_understands_pass():
    words = ("--url", "redis://localhost:6379/1", "--job-class", "rq.job.Job", "--serializer", "json", "--config",
             "tests.sample_tasks", "--exception-handler", "tests.sample_tasks.trace", "--logging_level", "INFO")  # fmt: skip
    options.check(as_rq_reads((*words, "polling")).params)


@pytest.mark.parametrize(
    "module", [".polls", "..", "tests..polls", "tests.", "tests/sample_tasks.py", "tests.sample_tasks.plain"]
)
def test_tasks_that_name_no_module_are_refused_in_one_sentence(module):
    with pytest.raises(ConfigurationError, match=r"^--tasks \(TICKER_TASKS\): [^\n]+$"):
        registry.load([module])


@pytest.mark.parametrize(
    "words", [["--tasks", ".polls"], ["--tasks", "tests.sample_tasks", "--worker-class", "nope.No"]]
)
def test_the_command_ends_with_that_sentence_and_exit_code_78(environ, words):
    command = [sys.executable, "-m", "wrappers", *words, "--burst", "polling"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert done.stderr.startswith("error: --")


LAUNCHERS = {"ticker worker": ["ticker", "worker"], "python -m wrappers": ["wrappers"]}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_help_begins_with_our_options_and_shows_those_of_rq(launcher, tmp_path):
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Usage: ticker worker --tasks MODULE") and "--worker-class" in done.stdout


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
    sentence = (
        f"{tmp_path}/{file} has the name of the package {package} of rq-ticker, and Python can import only one of them;"
        " rename it"
    )
    assert (done.returncode, done.stdout, done.stderr) == (78, "", f"error: {sentence}\n")


def test_a_folder_without_such_a_module_and_a_checkout_of_ours_pass(tmp_path):
    (tmp_path / "ticker").mkdir()  # not a package: Python goes on to ours
    assert shadowing(tmp_path) == shadowing(ROOT) == ""


BROKEN = {
    "1 / 0": r"ZeroDivisionError: division by zero, in \S*/broken\.py, line 2",
    "import nothere": r"ModuleNotFoundError: No module named 'nothere', in \S*/broken\.py, line 2",
    "def": r"SyntaxError: invalid syntax, in \S*/broken\.py, line 2",
}


@pytest.mark.parametrize("command", [["wrappers", "--burst"], ["ticker", "sync"]])
@pytest.mark.parametrize("line", BROKEN)
def test_a_module_whose_import_fails_is_one_sentence_with_the_place_and_exit_code_78(environ, tmp_path, line, command):
    (tmp_path / "broken.py").write_text(f"#\n{line}\n")
    env = os.environ | environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", *command, "--tasks", "broken"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    said = rf"error: --tasks \(TICKER_TASKS\): the import of 'broken' fails: {BROKEN[line]}; TICKER_DEBUG=1 shows the traceback\n"
    assert (done.returncode, done.stdout) == (78, "")
    assert re.fullmatch(said, done.stderr), done.stderr
    done = subprocess.run(
        command, cwd=ROOT, env=env | {"TICKER_DEBUG": "1"}, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" in done.stderr and done.stderr.count("error: --tasks") == 1
