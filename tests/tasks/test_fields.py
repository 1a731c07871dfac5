"""Tests of the table of a task's fields: the places that repeat it, and everything generated from it."""

import inspect
import re
from typing import Any, get_type_hints

import pytest
from click.testing import CliRunner

import ticker
from tests.documents import fields as document
from tests.sentences import sentence
from ticker import owners
from ticker.cli import main
from ticker.db import tables
from ticker.errors import BadInput
from ticker.tasks import fields
from ticker.tasks.fields import DEFAULTS, FIELDS, SETTINGS, Task
from ticker.tasks.sorts import Field
from ticker.tasks.sync import Declared

BESIDE = {"db", "function", "name", "owner", "first", "by", "return"}
each_field = pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)


# ------------------------------------------------------------------------------------------------- what repeats it


def test_register_takes_the_fields_of_the_table_with_their_types():
    types = get_type_hints(ticker.register)
    assert {name: kind for name, kind in types.items() if name not in BESIDE} == get_type_hints(fields.TaskFields)
    assert [name for name in inspect.signature(ticker.register).parameters if name not in BESIDE] == [*SETTINGS]


@pytest.mark.slow
def test_register_hands_on_what_it_is_given(environ, db):
    said = {name: value for name, value in VALUES.items() if name in SETTINGS}
    task = ticker.register(db, "poll", **said)
    for name in said:
        assert getattr(task, FIELDS[name].column) != FIELDS[name].default, name


@each_field
def test_each_field_has_a_column_and_every_task_shows_it(field):
    assert field.column in tables.tasks.c or field.name == "args"  # which stands in kwargs
    assert field.column in get_type_hints(Task)


def test_the_reference_is_made_from_the_table():
    assert document.FILE.read_text(encoding="utf-8") == document.text(), "run: python -m tests.documents.fields"


# ------------------------------------------------------------------------------------------- what is made from it


def value_of(field: Field) -> Any:
    """Returns a value that is not the default."""
    values = {"number": 7, "flag": not field.default, "json": {"a": 1}, "text": "20s"}
    values["json"] = [1, "a"] if field.name == "args" else values["json"]
    return field.schema["enum"][-1] if field.kind == "choice" else values[field.kind]


VALUES = {
    **{field.name: value_of(field) for field in FIELDS.values() if not field.is_schedule and field.name != "within"},
    "every": "10m", "box": "2m", "stretch": "1h", "starts": "2100-01-01T09:00:00Z", "ends": "2100-01-02T09:00:00Z", "during": "9-17",
}  # fmt: skip


def test_an_edit_of_each_field_is_recorded(environ, db):
    task = ticker.register(db, "other", name="poll", every="5m")
    ticker.edit(db, task, **VALUES)
    words = " ".join(words for (words,) in db.execute("SELECT words FROM ticker.events WHERE what = 'edited'"))
    assert {name for name in VALUES if not re.search(rf"(^|, ){name}(:| changed)", words)} == {"enabled", "args"}
    assert words.startswith("function: other -> 20s, kwargs changed,")  # which are stored with args


@pytest.mark.slow
def test_the_default_tasks_of_owners_have_each_field(environ, db):
    db.execute("CREATE TABLE channels (id bigint PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("channels")))
    said = {name: value for name, value in VALUES.items() if name in SETTINGS and name != "ends" and name != "remove"}
    ticker.defaults(db, "channels", [ticker.Wanted(function="poll", **said)])
    db.execute("INSERT INTO channels VALUES (1)")
    [made], alone = ticker.list_tasks(db), ticker.register(db, "poll", name="alone", **said)
    assert {column: getattr(made, column) for column in DEFAULTS} == {
        column: getattr(alone, column) for column in DEFAULTS
    }


@pytest.mark.parametrize("command", ["add", "edit"])
def test_the_command_line_has_an_option_for_each_field(command):
    said = CliRunner().invoke(main, [command, "--help"]).output
    for field in SETTINGS.values():
        assert f" --{field.name.replace('_', '-')}" in said


@each_field
def test_the_limits_that_are_described_are_those_that_are_checked(field):
    for value in (*field.schema.get("enum", ()), *limits(field.schema)):
        fields.check({field.name: value})
    for value in beyond(field.schema):
        with pytest.raises(BadInput):
            fields.check({field.name: value})


def limits(schema: Any) -> list[Any]:
    texts = ["x" * schema[name] for name in ("minLength", "maxLength") if name in schema]
    return texts + [schema[name] for name in ("minimum", "maximum") if name in schema]


def beyond(schema: Any) -> list[Any]:
    least, most = schema.get("minimum"), schema.get("maximum")
    found: list[Any] = ["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else []
    found += [""] if "minLength" in schema else ["no such word"] if "enum" in schema else []
    return found + ([] if least is None else [least - 1]) + ([] if most is None else [most + 1])


# --------------------------------------------------------------------------------------------------- unknown names


@pytest.mark.parametrize(
    "call",
    [
        lambda db: ticker.edit(db, 1, evry="1m"),
        lambda db: ticker.register(db, "poll", evry="1m"),
        lambda db: ticker.Wanted(function="poll", evry="1m"),
        lambda db: ticker.reconcile(db, "a:1", [{"function": "poll", "evry": "1m"}]),
        lambda _: Declared("poll", "myapp", {"evry": "1m"}).checked(),
    ],
    ids=["edit", "register", "Wanted", "reconcile", "@task"],
)
def test_an_unknown_field_is_named_with_the_one_that_was_meant(call):
    with pytest.raises(BadInput, match=r"'evry' .*'every'"):
        call(None)


def test_an_unknown_option_is_named_with_the_one_that_was_meant():
    said = CliRunner().invoke(main, ["edit", "1", "--evry", "1m"])
    assert said.exit_code == 2 and "--every" in said.output


def test_a_name_that_is_like_no_field_gets_no_guess():
    with pytest.raises(BadInput, check=sentence("errors.no_field_of_a_task").within):
        ticker.edit(None, 1, xyzzy=1)


def test_wanted_shows_its_fields():
    assert [*inspect.signature(ticker.Wanted).parameters] == ["function", "name", *SETTINGS]
    assert repr(ticker.Wanted(function="poll", every="1m")).startswith("Wanted(function='poll', name=None, every='1m',")
