"""Subjects that the triggers keep in step with a column or an expression of the owner's row (`subject_from`)."""

import psycopg
import pytest

import ticker
from tests.cli.answers import answer
from tests.followed import add, put
from tests.sentences import sentence
from ticker import Wanted, owners
from ticker.errors import BadInput
from ticker.tasks.owner_types import function_name, guard_name

pytestmark = pytest.mark.slow

MAILBOX = "\"user\" || '@' || host"


@pytest.fixture
def boxes(db):
    """Two mailboxes, of which each task has the address as its subject."""
    db.execute(
        'CREATE TABLE boxes (id bigint PRIMARY KEY, "user" text, host varchar, enabled boolean DEFAULT true);'
        "INSERT INTO boxes VALUES (1, 'ada', 'example.org'), (2, 'bob', 'example.org')"
    )
    put(db, owners.triggers("boxes", active_when="enabled", subject_from=MAILBOX))
    return db


def subjects(db, type_="boxes"):
    query = "SELECT owner_id, subject FROM ticker.tasks WHERE owner_type = %s ORDER BY owner_id, name"
    return db.execute(query, [type_]).fetchall()


def test_a_task_has_the_subject_of_its_owner_from_its_first_statement_on(boxes, db):
    assert add(db, "boxes", "1") == [(True,)]
    assert ticker.register(db, "poll", owner="boxes:2", every="1m").subject == "bob@example.org"
    made = ticker.register_many(db, [{"function": "sync", "owner": f"boxes:{n}", "every": "1m"} for n in (1, 2)])
    assert {task.subject for task in ticker.list_tasks(db, function="sync")} == {"ada@example.org", "bob@example.org"}
    assert len(made.ids) == 2


@pytest.mark.parametrize(
    "change",
    ["UPDATE boxes SET host = 'acme.example'", "UPDATE boxes SET host = 'acme.example', id = id + 0, enabled = false",
     "ALTER TABLE boxes RENAME host TO server; UPDATE boxes SET server = 'acme.example'"],
)  # fmt: skip
def test_it_follows_the_row(boxes, db, change):
    add(db, "boxes", "1")
    add(db, "boxes", "2")
    db.execute(change)
    assert subjects(db) == [("1", "ada@acme.example"), ("2", "bob@acme.example")]


def test_it_follows_a_changed_key_and_an_event_records_the_change(boxes, db):
    task = ticker.register(db, "poll", owner="boxes:1", every="1m")
    db.execute("UPDATE boxes SET id = 9, \"user\" = 'eve' WHERE id = 1")
    assert subjects(db) == [("9", "eve@example.org")]
    events = db.execute("SELECT words FROM ticker.events WHERE task_id = %s AND what = 'edited'", [task.id]).fetchall()
    assert events == [("subject: ada@example.org -> eve@example.org",)]


def test_other_changes_of_the_row_cost_nothing(boxes, db):
    add(db, "boxes", "1")
    before = db.execute("SELECT xmin FROM ticker.tasks").fetchall()
    db.execute("ALTER TABLE boxes ADD note text; UPDATE boxes SET note = 'x'")
    assert db.execute("SELECT xmin FROM ticker.tasks").fetchall() == before


@pytest.mark.parametrize(
    ("host", "subject"),
    [(None, ""), ("x" * 5000, "ada@" + "x" * 196), ("a\tb\nc", "ada@a b c"), ("\x1b[31m", "ada@ [31m"), ("", "ada@")],
)
def test_no_row_of_the_owner_is_refused_because_of_its_subject(boxes, db, host, subject):
    add(db, "boxes", "1")
    db.execute("UPDATE boxes SET host = %s WHERE id = 1", [host])
    assert subjects(db) == [("1", subject)]
    assert ticker.register(db, "poll", owner="boxes:1", every="1m").subject == subject


def test_default_tasks_have_it_and_cannot_have_another(boxes, db):
    ticker.defaults(db, "boxes", [Wanted(function="poll", every="1m")])
    db.execute("INSERT INTO boxes VALUES (3, 'eve', 'example.org')")
    assert subjects(db) == [("3", "eve@example.org")]
    with pytest.raises(BadInput) as caught:
        ticker.defaults(db, "boxes", [Wanted(function="poll", every="1m", subject="mine")])
    assert sentence("errors.subject_is_kept", subject="'mine'", type="boxes") == str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda db, task: ticker.register(db, "sync", owner="boxes:1", every="1m", subject="mine"),
        lambda db, task: ticker.register(db, "poll", owner="boxes:1", every="1m", subject="mine"),
        lambda db, task: ticker.edit(db, task, subject="mine"),
        lambda db, task: ticker.edit(db, task, subject="", every="9m"),
        lambda db, task: ticker.register_many(db, [
            {"function": "sync", "owner": "boxes:1", "every": "1m", "subject": "mine"},
            {"function": "sync", "owner": "boxes:2", "every": "1m"},
        ]),
        lambda db, task: ticker.reconcile(db, "boxes:1", [Wanted(function="poll", every="1m", subject="mine")]),
    ],
)  # fmt: skip
def test_nothing_else_writes_it(boxes, db, write):
    task = ticker.register(db, "poll", owner="boxes:1", every="1m")
    before = db.execute("SELECT t::text FROM ticker.tasks t").fetchall()
    with pytest.raises(BadInput, match="subject") as caught:
        write(db, task)
    assert caught.value.field == "subject"
    assert db.execute("SELECT t::text FROM ticker.tasks t").fetchall() == before
    assert ticker.edit(db, task, subject=task.subject, every="2m").subject == task.subject


def test_a_change_of_many_names_those_that_it_cannot_change(boxes, db):
    add(db, "boxes", "1")
    ticker.register(db, "poll", every="1m")
    plan = ticker.bulk(db, {}, "edit", subject="mine")
    assert (plan.changed, plan.refused) == (1, 1)


def test_existing_tasks_get_it_when_it_is_installed_and_keep_it_when_it_leaves(db):
    db.execute("CREATE TABLE boxes (id int PRIMARY KEY, host text); INSERT INTO boxes VALUES (1, 'a'), (2, 'b')")
    put(db, owners.triggers("boxes"))
    for id_ in "12":
        ticker.register(db, "poll", owner=f"boxes:{id_}", every="1m", subject="old")
    put(db, owners.triggers("boxes", subject_from="upper(host)"))
    assert subjects(db) == [("1", "A"), ("2", "B")]
    put(db, owners.triggers("boxes"))
    db.execute("UPDATE boxes SET host = 'c'")
    assert subjects(db) == [("1", "A"), ("2", "B")]
    assert ticker.edit(db, ticker.list_tasks(db)[0], subject="mine").subject == "mine"


def test_a_row_that_moves_between_partitions_keeps_it_in_step(db):
    db.execute(
        "CREATE TABLE boxes (id int, region text, host text) PARTITION BY LIST (region);"
        "CREATE TABLE boxes_eu PARTITION OF boxes FOR VALUES IN ('eu'); CREATE TABLE boxes_us PARTITION OF boxes FOR VALUES IN ('us');"
        "INSERT INTO boxes VALUES (1, 'eu', 'a')"
    )
    put(db, owners.triggers("boxes", key="id", subject_from="host || ', ' || region"))
    add(db, "boxes", "1")
    db.execute("UPDATE boxes SET region = 'us'")
    assert subjects(db) == [("1", "a, us")]


def test_a_renamed_type_keeps_its_subjects(boxes, db, environ):
    add(db, "boxes", "1")
    db.execute("ALTER TABLE boxes RENAME TO mailboxes")
    answer("owners", "--rename", "boxes", "mailboxes")
    db.execute("UPDATE mailboxes SET host = 'acme.example'")
    assert subjects(db, "mailboxes") == [("1", "ada@acme.example")]


@pytest.mark.parametrize("expression", ["", "  ", "host; DROP TABLE boxes", "host -- x", "'x", "host /*", "$$x$$", 5])
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(BadInput) as caught:
        owners.triggers("boxes", subject_from=expression)
    assert caught.value.field == "subject_from"


def test_what_others_plant_in_a_schema_of_the_path_is_never_called(db):
    """An expression that would bind to something of the path is refused, with the spelling that binds."""
    db.execute(
        "CREATE TABLE channels (id int PRIMARY KEY, host varchar); CREATE TABLE public.loot (who text);"
        "CREATE FUNCTION public.upper(a varchar) RETURNS text LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO public.loot VALUES (current_user); RETURN a; END$$;"
        "CREATE FUNCTION public.ours(a varchar) RETURNS text LANGUAGE sql RETURN 'ours'"
    )
    for expression, said in (("upper(host)", "public.upper(host)"), ("ours(host)", "public.ours(host)")):
        with pytest.raises(psycopg.DatabaseError) as caught:
            put(db, owners.triggers("channels", subject_from=expression))
        assert "subject_from=" in str(caught.value) and said in str(caught.value)
    put(db, owners.triggers("channels", subject_from="public.ours(host)"))
    db.execute("INSERT INTO channels VALUES (1, 'a')")
    assert add(db, "channels", "1") == [(True,)]
    assert subjects(db, "channels") == [("1", "ours")]
    assert db.execute("SELECT * FROM public.loot").fetchall() == []


def test_only_a_function_with_its_own_owners_rights_gives_a_subject(db):
    db.execute(
        f"CREATE FUNCTION ticker.{guard_name('boxes', 'named')}(text) RETURNS text LANGUAGE plpgsql"
        " AS 'BEGIN RAISE EXCEPTION ''called''; END'"
    )
    assert add(db, "boxes", "1") == [(True,)]
    assert ticker.register(db, "poll", owner="boxes:1", every="1m", subject="mine").subject == "mine"


@pytest.mark.usefixtures("environ")
def test_a_function_of_another_role_in_the_expression_is_named(db):
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, host varchar)")
    db.execute("CREATE FUNCTION public.named(varchar) RETURNS text LANGUAGE sql RETURN 'x'")
    put(db, owners.triggers("channels", subject_from="public.named(host)"))
    db.execute("ALTER FUNCTION public.named(varchar) OWNER TO pg_monitor")
    remedy = 'owners.install(op, "channels")'
    planted = sentence("doctor.planted", table="channels", objects="public.named(character varying)", remedy=remedy)
    assert answer("db", "upgrade", "--check", code=1)["problems"] == [planted]


def test_the_functions_belong_to_whoever_installed_them_and_nobody_else_calls_them(boxes, db):
    names = [guard_name("boxes", "named"), function_name("changed", "boxes")]
    rows = db.execute(
        "SELECT proname FROM pg_proc WHERE proname = ANY (%s) AND has_function_privilege('public', oid, 'EXECUTE')",
        [names],
    )
    assert rows.fetchall() == []
    put(db, owners.drop_triggers("boxes"))
    assert db.execute("SELECT proname FROM pg_proc WHERE proname LIKE 'owner\\_%%'").fetchall() == []


def test_an_insert_that_waits_for_a_change_of_its_owner_has_the_new_subject(boxes, db, database_url):
    with psycopg.connect(database_url) as other:
        other.execute("UPDATE boxes SET host = 'acme.example' WHERE id = 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            db.execute("SET lock_timeout = '50ms'")
            add(db, "boxes", "1")
        other.commit()
    add(db, "boxes", "1")
    assert subjects(db) == [("1", "ada@acme.example")]
