"""Through the environment: exit code 78 and one sentence, never a traceback, never a secret."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bad_input.rows import ANY_TEXT
from tests.refusals import SECRET
from tests.running import ROOT
from ticker.cli import main
from ticker.errors import ConfigurationError
from ticker.settings import Settings, from_environment
from wrappers.__main__ import main as work

NOWHERE = {"DATABASE_URL": f"postgresql://u:{SECRET}@127.0.0.1:1/app", "REDIS_URL": f"redis://:{SECRET}@127.0.0.1:1/0"}
COMMANDS = {
    "run": ["ticker", "run"], "tick": ["ticker", "tick"], "list": ["ticker", "list"],
    "upgrade": ["ticker", "db", "upgrade"], "demo": ["ticker", "demo"],
    "worker": ["wrappers", "--tasks", "tests.sample_tasks", "polling"],
}  # fmt: skip
WRONG = [
    ({"TICKER_TICK": "0"}, "TICKER_TICK: '0' is under the limit of 100ms"),
    ({"TICKER_TICK": "1e308"}, "TICKER_TICK: '1e308' is no duration"),
    ({"TICKER_BATCH": "2" * 400}, "TICKER_BATCH: '2222"),
    ({"TICKER_SCHEMA": "a\x1b[31m"}, r"TICKER_SCHEMA: 'a\x1b[31m' is no schema name"),
    ({"TICKER_CLOCK_DIFFERENCE": "0"}, "TICKER_CLOCK_DIFFERENCE: '0' is under the limit of 1s"),
    ({"DATABASE_URL": f"mysql://u:{SECRET}@h/x"}, "DATABASE_URL: 'mysql://…' is no PostgreSQL URL"),
    ({"DATABASE_URL": f"postgresql://u:{SECRET}/@h/x"}, "DATABASE_URL: what follows :// cannot be read"),
    ({"DATABASE_URL": ""}, "DATABASE_URL is not set"),
    (NOWHERE, "PostgreSQL (DATABASE_URL) does not answer"),
]


@pytest.mark.parametrize("name", ["run", "tick", "list", "upgrade", "worker"])
@pytest.mark.parametrize(("wrong", "sentence"), WRONG, ids=[f"{[*wrong]}" for wrong, _ in WRONG])
def test_a_wrong_environment_is_78_and_one_sentence(
    name: str, wrong: dict[str, str], sentence: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in wrong.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TICKER_TASKS", "tests.sample_tasks")
    monkeypatch.setattr(sys, "path", [*sys.path])
    program, *words = COMMANDS[name]
    result = CliRunner().invoke(main if program == "ticker" else work, words)
    assert (result.exit_code, result.stdout) == (78, "")
    assert result.stderr.startswith(f"error: {sentence}") and result.stderr.count("\n") == 1
    assert SECRET not in result.output


@pytest.mark.parametrize("name", [*COMMANDS])
def test_with_both_servers_absent_a_real_process_ends_so_too(name: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TICKER_")} | NOWHERE
    done = subprocess.run(
        [sys.executable, "-m", *COMMANDS[name]], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )
    told = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 78, told
    assert told[-1].startswith("error: PostgreSQL (DATABASE_URL) does not answer: ") and len(told) <= 2
    assert SECRET not in str(told)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["TICKER_TICK", "TICKER_BATCH", "TICKER_SCHEMA", "TICKER_RESULT_TTL", "TICKER_HARD_LIMIT",
                         "TICKER_LOOK_AHEAD", "TICKER_CLOCK_DIFFERENCE", "TICKER_TASKS", "DATABASE_URL", "REDIS_URL"]),
        ANY_TEXT | st.sampled_from(["postgresql://u:p@h/x", "redis://h", "unix:///s", "0", "1s"]),
    )
)  # fmt: skip
def test_whatever_the_environment_says_it_is_settings_or_one_sentence(environ: dict[str, str]) -> None:
    try:
        found = from_environment(environ)
        assert isinstance(found, Settings)
        found.require_database(), found.require_redis()
    except ConfigurationError as error:
        assert str(error).isprintable() and len(str(error)) < 300
