"""Through the command `ticker`."""

import re
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

import ticker
from tests.bad_input.rows import ANY_TEXT, NO_INTERVAL, NO_NAME, NO_OWNER, NO_SPAN, SLOWLY
from ticker.cli import main

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

OPTIONS = {"every": NO_INTERVAL, "tolerance": NO_SPAN, "box": NO_SPAN, "queue": NO_NAME, "name": NO_NAME, "owner": NO_OWNER,
           "kwargs": ["[]", "x", "{", '{"a": NaN}', '{"a": 1e999}', "[" * 10_000, '{"a": ' * 251 + "1" + "}" * 251,
                      '{"a": "%s"}' % ("x" * 65_536), '{"a": "\\ud800"}', '{"a": "\\u0000"}', "5", "null", '"x"'],
           "args": ["{}", "x", "[", "[NaN]", "[1e999]", "[" * 10_000, "[" * 250 + "]" * 250, '["\\u0000"]', "5", "null", '"x"'],
           "first": ["yesterday", "2026-01-01", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00", "-1s", "367d"]}  # fmt: skip


def command(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_line_refuses_every_text_of_the_rows_in_one_sentence(environ: dict[str, str], db: Db, redis: Redis) -> None:  # fmt: skip
    for option, values in OPTIONS.items():
        for value in [value for value in values if isinstance(value, str)]:
            said = {"every": "1m", option: value}
            words = [f"--{name}={text}" for name, text in said.items()]
            code, out, err = command("add", "poll", *words)
            assert (code, out) == (2, ""), (words, out, err)
            assert re.fullmatch(rf"error: ({option}|owner_\w+): [^\n]{{5,300}}\n", err), err
    assert ticker.list_tasks(db) == [] and redis.keys() == []


@SLOWLY
@given(
    words=st.lists(
        st.sampled_from(["add", "edit", "list", "pause", "resume", "run-now", "remove", "runs", "health", "doctor", "db",
                         "check", "sql", "poll", "--every", "--owner", "--kwargs", "--json", "--limit", "--until", "--by",
                         "--outcome", "--max-age", "1m", "t:1", "0", "-1", "{}", "''", "9" * 30]) | ANY_TEXT,
        max_size=6,
    )
)  # fmt: skip
def test_whatever_words_are_given_the_answer_is_a_known_exit_code_and_no_error_of_our_own(
    words: list[str], environ: dict[str, str]
) -> None:
    code, _, err = command(*words)
    assert code in (0, 1, 2), (words, err)
    assert "TICKER_DEBUG" not in err and "Traceback" not in err, (words, err)
