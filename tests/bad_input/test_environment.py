"""Through the environment: exit code 78 and one sentence, never a traceback, never a secret."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.bad_input.rows import ANY_TEXT
from tests.refusals import SECRET
from tests.running import ROOT
from tests.sentences import Sentence, sentence
from ticker.cli import main
from ticker.errors import ConfigurationError
from ticker.settings import Settings, from_environment
from wrappers.__main__ import main as work

pytestmark = pytest.mark.slow

NOWHERE = {"DATABASE_URL": f"postgresql://u:{SECRET}@127.0.0.1:1/app", "REDIS_URL": f"redis://:{SECRET}@127.0.0.1:1/0"}
COMMANDS = {
    "run": ["ticker", "run"], "tick": ["ticker", "tick"], "list": ["ticker", "list"],
    "upgrade": ["ticker", "db", "upgrade"],
    "worker": ["wrappers", "--tasks", "tests.sample_tasks", "polling"],
}  # fmt: skip
WRONG = [
    ({"TICKER_TICK": "0"}, sentence("errors.under_the_limit", field="TICKER_TICK", value="'0'", limit="100ms")),
    ({"TICKER_TICK": "1e308"}, sentence("errors.no_duration", field="TICKER_TICK", value="'1e308'")),
    ({"TICKER_BATCH": "2" * 400}, sentence("errors.field_and_value", field="TICKER_BATCH", value="'2222")),
    ({"TICKER_SCHEMA": "a\x1b[31m"}, sentence("errors.is_no_schema_name", field="TICKER_SCHEMA", value="'a\\x1b[31m'")),
    (
        {"DATABASE_URL": f"mysql://u:{SECRET}@h/x"},
        sentence("errors.no_postgresql_url", setting="DATABASE_URL", value="'mysql://…'"),
    ),
    ({"DATABASE_URL": f"postgresql://u:{SECRET}/@h/x"}, sentence("errors.url_unreadable", setting="DATABASE_URL")),
    ({"DATABASE_URL": ""}, sentence("errors.is_not_set", setting="DATABASE_URL")),
    (NOWHERE, sentence("errors.database_unavailable", setting="DATABASE_URL")),
]


@pytest.mark.parametrize("name", ["run", "tick", "list", "upgrade", "worker"])
@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[f"{[*wrong]}" for wrong, _ in WRONG])
def test_a_wrong_environment_is_78_and_one_sentence(
    name: str, wrong: dict[str, str], said: Sentence, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in wrong.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("TICKER_TASKS", "tests.sample_tasks")
    monkeypatch.setattr(sys, "path", [*sys.path])
    program, *words = COMMANDS[name]
    result = CliRunner().invoke(main if program == "ticker" else work, words)
    assert (result.exit_code, result.stdout) == (78, "")
    assert result.stderr.startswith("error: ") and said.begins(result.stderr[7:]) and result.stderr.count("\n") == 1
    assert SECRET not in result.output


@pytest.mark.parametrize("name", [*COMMANDS])
def test_with_both_servers_absent_a_real_process_ends_so_too(name: str) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TICKER_")} | NOWHERE
    done = subprocess.run(
        [sys.executable, "-m", *COMMANDS[name]], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60
    )
    told = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 78, told
    assert sentence("cli.error_database_as", setting="DATABASE_URL").begins(told[-1]) and len(told) <= 2
    assert SECRET not in str(told)


@given(
    st.dictionaries(
        st.sampled_from(["TICKER_TICK", "TICKER_BATCH", "TICKER_SCHEMA", "TICKER_RESULT_TTL", "TICKER_HARD_LIMIT",
                         "TICKER_TASKS", "DATABASE_URL", "REDIS_URL"]),
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
