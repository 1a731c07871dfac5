"""The statements in ticker/db/sql: PostgreSQL takes each as it stands, and each call names the parameters that it has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ticker
from ticker.db import sql
from ticker.db.drivers import numbered
from ticker.model import DueTask
from ticker.tasks.rows import ALL_SEEN, LISTS

ROOT = Path(ticker.__file__).parent.parent
STATEMENTS = sql.statements("ticker", LISTS)
JSONB = 3802  # the number of that type in every PostgreSQL
RUN_BY = {"execute", "_execute", "written", "query"}


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Each call that names a statement and all its parameters: where it stands, the statement, and the parameters."""
    for file in sorted([*ROOT.glob("ticker/**/*.py"), *ROOT.glob("wrappers/**/*.py")]):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and called(node) in RUN_BY:
                names = {keyword.arg for keyword in node.keywords}
                texts = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
                if len(texts) == 1 and None not in names:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", texts[0], {str(name) for name in names}


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call():  # on(db)("name", ...)
            return "execute"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEMENTS)
def test_postgresql_prepares_each_statement(name: str, db: psycopg.Connection) -> None:  # type: ignore[type-arg]
    text, parameters = numbered(STATEMENTS[name])
    answer = db.pgconn.prepare(b"it", text.encode())
    assert answer.status == psycopg.pq.ExecStatus.COMMAND_OK, answer.error_message.decode()
    assert db.pgconn.describe_prepared(b"it").nparams == len(parameters)


def test_operations_read_json_as_text(db: psycopg.Connection) -> None:  # type: ignore[type-arg]
    """What a driver makes of jsonb is for the application to set."""
    for file in ("register.sql", "read.sql"):
        text = (ROOT / "ticker" / "db" / "sql" / file).read_text(encoding="utf-8")
        for name in re.findall(r"^-- name: (\w+)$", text, flags=re.MULTILINE):
            db.pgconn.prepare(b"it", numbered(STATEMENTS[name])[0].encode())
            answer = db.pgconn.describe_prepared(b"it")
            found = [answer.fname(column) for column in range(answer.nfields) if answer.ftype(column) == JSONB]
            assert (name, found) == (name, [])


@pytest.mark.slow
def test_each_call_names_the_parameters_of_its_statement() -> None:
    found = list(calls())
    assert len(found) > 60
    for place, name, names in found:
        if name in STATEMENTS:
            wanted = set(numbered(STATEMENTS[name])[1])
            own = wanted & {"now", *ALL_SEEN}  # `query` passes these itself, and `execute` passes `now`
            assert (place, names | own) == (place, wanted)


def test_no_rule_is_left_unfilled_or_unused() -> None:
    assert not any("{" in text.replace("'{", "") for text in STATEMENTS.values())
    folder = ROOT / "ticker" / "db" / "sql"
    whole = "\n".join(file.read_text(encoding="utf-8") for file in folder.iterdir())
    for line in (folder / "rules.sql").read_text(encoding="utf-8").splitlines():
        if line.startswith("-- rule: "):
            rule = line.removeprefix("-- rule: ")
            assert "{" + rule + "}" in whole or "{" + rule + " " in whole, rule


def test_a_claim_returns_the_fields_of_a_due_task_in_their_order(db: psycopg.Connection[Any]) -> None:
    ticker.register(db, "poll", every="1m")
    [(now,)] = db.execute("SELECT clock_timestamp()").fetchall()
    [row] = sql.on(db, "ticker")("claim_due", now=now, look_ahead=0, limit=1, without=[])
    assert tuple(row) == DueTask._fields
