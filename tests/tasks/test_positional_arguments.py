"""Positional arguments: `args` is a field beside `kwargs`, and stands in the column `kwargs`, under `*`."""

import json

import pytest
from click.testing import CliRunner

import ticker
from tests.sentences import sentence
from ticker import BadInput, Wanted, owners
from ticker.cli import main
from ticker.tasks import sync
from ticker.tasks.sync import Declared

ARGS, KWARGS = ["imap.example.org", 5], {"folder": "INBOX"}
STORED = {"*": ARGS, **KWARGS}
TOO_LARGE = sentence("errors.arguments_too_large", most="65536")


def stored(db):
    return [value for (value,) in db.execute("SELECT kwargs FROM ticker.tasks ORDER BY id")]


def poll(db, **fields):
    task = ticker.register(db, "poll", every="1m", **fields)
    assert ticker.get(db, task) == task
    return task.args, task.kwargs


def test_a_task_shows_both_kinds_of_arguments_apart(db):
    assert poll(db, args=ARGS, kwargs=KWARGS) == (ARGS, KWARGS)
    assert stored(db) == [STORED]


def test_each_kind_stays_as_it_is_where_only_the_other_is_given(db):
    poll(db, args=tuple(ARGS), kwargs=KWARGS)
    assert poll(db, kwargs={"folder": "Sent"}) == (ARGS, {"folder": "Sent"})
    assert poll(db, args=[7]) == ([7], {"folder": "Sent"})
    edited = ticker.edit(db, "poll", args=[8])
    assert (edited.args, edited.kwargs) == ([8], {"folder": "Sent"})
    assert poll(db, args=[7], kwargs=KWARGS) == ([8], KWARGS)  # [7] was registered before, and the edit stays
    assert poll(db, args=[]) == ([], KWARGS)
    assert stored(db) == [KWARGS]


def test_every_way_to_register_stores_them(db):
    db.execute("CREATE TABLE boxes (id bigint PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("boxes")))
    ticker.defaults(db, "boxes", [Wanted(function="poll", every="1m", args=ARGS, kwargs=KWARGS)])
    db.execute("INSERT INTO boxes VALUES (1)")
    item = {"function": "poll", "every": "1m", "args": ARGS, "kwargs": KWARGS}
    ticker.reconcile(db, "feeds:1", [item])
    many = [
        {**item, "owner": "feeds:2"},
        {**item, "owner": "feeds:3", "kwargs": None},
        {**item, "owner": "feeds:4", "args": []},
    ]
    ticker.register_many(db, many)
    assert ticker.register_many(db, many).changed == 0
    sync.sync(db, [Declared("poll", "myapp", {"every": "1m", "args": ARGS, "kwargs": KWARGS})], {}, ["myapp"])
    assert stored(db) == [STORED, STORED, STORED, {"*": ARGS}, KWARGS, STORED]


def test_a_declaration_that_drops_them_removes_them(db):
    for said in ({"args": ARGS}, {}):
        sync.sync(db, [Declared("poll", "myapp", {"every": "1m", "kwargs": KWARGS, **said})], {}, ["myapp"])
    assert stored(db) == [KWARGS]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kwargs": {"*": [1]}}, sentence("errors.reserved_argument", name="'*'", remedy="args")),
        ({"args": "imap"}, sentence("errors.no_json_array", type="str")),
        ({"args": {"a": 1}}, sentence("errors.no_json_array", type="dict")),
        ({"args": [float("nan")]}, sentence("errors.text_is_not_json", field="args")),
        ({"args": ["x" * 40_000], "kwargs": {"a": "x" * 40_000}}, TOO_LARGE),
    ],
    ids=lambda value: "",
)
@pytest.mark.parametrize("many", [False, True])
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(given, said, many, db):
    with pytest.raises(BadInput, check=said.within):
        if many:
            ticker.register_many(
                db, [{"function": "poll", "every": "1m"}, {"function": "peek", "every": "1m", **given}]
            )
        else:
            ticker.register(db, "poll", every="1m", **given)
    assert stored(db) == []


def test_arguments_that_do_not_fit_together_with_those_of_the_task_are_refused(db):
    poll(db, args=["x" * 40_000])
    with pytest.raises(BadInput, check=TOO_LARGE.within):
        ticker.edit(db, "poll", kwargs={"a": "x" * 40_000})
    [plan] = ticker.bulk(db, {"name": "poll"}, "edit", kwargs={"a": "x" * 40_000}).refusals
    assert TOO_LARGE.within(plan.words)


def test_a_row_whose_positional_arguments_are_no_list_is_listed(db):
    poll(db)
    db.execute("""UPDATE ticker.tasks SET kwargs = '{"*": 5}'""")
    [task] = ticker.list_tasks(db)
    assert (task.args, task.kwargs) == ([], {"*": 5})


def test_neither_an_event_nor_a_plan_shows_them(db):
    poll(db, args=["s3cret"])
    plan = ticker.bulk(db, {"name": "poll"}, "edit", apply=True, args=["other s3cret"])
    assert [group.words for group in plan.changes] == ["args changed"]
    assert db.execute("SELECT words FROM ticker.events").fetchall() == [("kwargs changed",)]


def run(*words: str) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_line_takes_and_shows_them(environ, db):
    run("add", "poll", "--every", "1m", "--args", json.dumps(ARGS), "--kwargs", json.dumps(KWARGS))
    assert '["imap.example.org", 5] {"folder": "INBOX"}' in run("list", "poll")
    run("edit", "poll", "--args", "[6]")
    [task] = json.loads(run("list", "--json"))
    assert (task["args"], task["kwargs"]) == ([6], KWARGS)
    bad = CliRunner().invoke(main, ["edit", "poll", "--args", "{"])
    assert bad.exit_code == 2 and sentence("errors.text_is_not_json", field="args").within(bad.output)
