"""`ticker db check` and `ticker owners --orphans`: triggers that are missing or do not fit, and tasks whose owners are gone."""

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.followed import ACTIVE, FORMER_TRIGGERS, add, put, states
from tests.harness import command
from tests.sentences import sentence
from ticker import owners

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

FITS = {"fits": True, "problems": []}


@pytest.fixture
def former(db):
    """Owners 1 to 3 whose table has the triggers of an older release."""
    db.execute(
        "CREATE TABLE mail_channels (id bigint PRIMARY KEY, enabled boolean DEFAULT true, paused boolean DEFAULT false);"
        " INSERT INTO mail_channels SELECT generate_series(1, 3)"
    )
    db.execute(FORMER_TRIGGERS)
    for id_ in "123":
        add(db, "mail_channels", id_)


def gone(db, ids):
    """Deletes owners as if their table had no triggers."""
    db.execute(
        f"SET session_replication_role = replica; DELETE FROM mail_channels WHERE id IN ({ids}); RESET session_replication_role"
    )


def problem():
    [told] = answer("db", "check", code=1)["problems"]
    return told


# ------------------------------------------------------------------------------------------------- triggers that do not fit


def test_triggers_of_an_older_release_work_and_are_named_until_they_are_installed_again(former, db):
    db.execute("DELETE FROM mail_channels WHERE id = 1; UPDATE mail_channels SET paused = true WHERE id = 2")
    assert states(db) == {"2": False, "3": True}
    assert answer("db", "check") == FITS
    _, err = command("db", "check")
    assert sentence(
        "doctor.outdated_triggers", table="mail_channels", remedy='owners.install(op, "mail_channels")'
    ).within(err)
    put(db, owners.triggers("mail_channels", active_when=ACTIVE))
    assert (answer("db", "check"), command("db", "check")[1]) == (FITS, "")


@pytest.mark.parametrize(("column", "named"), [("id", "o.id"), ("enabled", '"enabled"')])
def test_triggers_of_an_older_release_that_no_longer_compile_are_a_problem(former, db, column, named):
    db.execute(f"ALTER TABLE mail_channels RENAME {column} TO renamed")
    unfit = sentence("doctor.unfit_triggers", table="mail_channels", error=f"column {named} does not exist",
                     remedy='owners.install(op, "mail_channels")')  # fmt: skip
    assert unfit == problem()
    assert unfit.within(
        next(note["sentence"] for note in answer("doctor", code=1)["notes"] if note["check"] == "owners")
    )
    key, condition = ("renamed", ACTIVE) if column == "id" else ("id", "renamed and not paused")
    put(db, owners.triggers("mail_channels", key=key, active_when=condition))
    db.execute(f"DELETE FROM mail_channels WHERE {key} = 2")
    assert (answer("db", "check"), states(db)) == (FITS, {"1": True, "3": True})


def test_triggers_whose_functions_went_with_a_column_are_a_problem(channels, db):
    db.execute("ALTER TABLE mail_channels DROP enabled CASCADE")  # as a migration of Django does
    assert "owner_active_mail_channels" in problem()
    put(db, owners.triggers("mail_channels", active_when="not paused"))
    assert answer("db", "check") == FITS


def test_a_condition_of_several_lines_and_the_functions_of_others_are_read(db):
    db.execute('CREATE TABLE mail_channels (id int PRIMARY KEY, a int, " AND " int)')
    put(db, owners.triggers("mail_channels", active_when='a = 1\n AND " AND " = 2\n'))
    assert answer("db", "check") == FITS
    db.execute("CREATE SCHEMA other; CREATE FUNCTION other.owner_guarded_x() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
               " CREATE TRIGGER x BEFORE INSERT ON ticker.tasks FOR EACH ROW EXECUTE FUNCTION other.owner_guarded_x()")  # fmt: skip
    assert answer("db", "check") == FITS


# ---------------------------------------------------------------------------------------------------- owners that are gone


@pytest.mark.parametrize(
    "drop", ["DROP TABLE mail_channels CASCADE", "DROP TABLE mail_channels CASCADE; DELETE FROM ticker.tasks"]
)
def test_a_table_that_is_gone_is_named_with_what_to_do(channels, db, drop):
    db.execute(drop)
    remedies = {
        "remove": "ticker owners --type mail_channels --orphans --remove",
        "drop": 'owners.drop_triggers("mail_channels")',
    }
    assert sentence("doctor.table_is_gone", table="mail_channels", **remedies) == problem()
    command("owners", "--type", "mail_channels", "--orphans", "--remove")
    put(db, owners.drop_triggers("mail_channels"))
    assert (answer("db", "check"), states(db)) == (FITS, {})


def test_the_dropped_table_of_an_older_release_is_named_too(former, db):
    db.execute("DROP TABLE mail_channels")
    assert "mail_channels is gone" in problem()
    assert answer("owners", "--orphans")[0] == {
        "owner": "mail_channels:1",
        "owner_type": "mail_channels",
        "owner_id": "1",
        "tasks": 1,
    }


def test_a_table_that_was_made_again_without_triggers_is_no_table_that_is_gone(channels, db):
    db.execute(
        "DROP TABLE mail_channels CASCADE; DELETE FROM ticker.tasks; CREATE TABLE mail_channels (id bigint PRIMARY KEY)"
    )
    assert sentence("errors.no_trigger_of_ours", table="mail_channels").begins(problem())


def test_a_table_without_triggers_is_not_looked_at_for_orphans_and_that_is_said(db):
    db.execute("CREATE TABLE mail_channels (id bigint PRIMARY KEY)")
    add(db, "mail_channels", "1")
    out, err = command("owners", "--orphans")
    assert out == f"{sentence('cli.no_orphans_where_triggers_are')}\n"
    assert sentence("cli.orphans_not_looked_at", table="mail_channels").begins(err)
    assert command("owners", "--orphans", "--type", "crm") == (f"{sentence('cli.no_orphans')}\n", "")


def test_a_table_whose_triggers_do_not_fit_is_not_looked_at_either(former, db):
    db.execute("ALTER TABLE mail_channels RENAME id TO renamed")
    assert "triggers of table" in command("owners", "--orphans")[1]
    for (name,) in db.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'mail_channels'::regclass AND NOT tgisinternal"
    ).fetchall():
        db.execute(f'DROP TRIGGER "{name}" ON mail_channels')
    assert sentence("cli.orphans_not_looked_at", table="mail_channels").begins(command("owners", "--orphans")[1])


@pytest.mark.parametrize("by", ["channels", "former"])
def test_orphans_are_listed_and_their_tasks_removed_and_no_others(request, db, by):
    request.getfixturevalue(by)
    ticker.register(db, "poll", every="1m", owner="mail_channels:2")
    ticker.register(db, "poll", every="1m", owner="crm:9")
    assert command("owners", "--orphans") == (f"{sentence('cli.no_orphans')}\n", "")
    gone(db, "1, 2")
    assert [(one["owner"], one["tasks"]) for one in answer("owners", "--orphans")] == [
        ("mail_channels:1", 1),
        ("mail_channels:2", 2),
    ]
    assert answer("owners", "--orphans", "--type", "crm") == []
    assert len(ticker.list_tasks(db, owner_type="mail_channels")) == 4
    out, err = command("owners", "--orphans", "--remove", "--limit", "1")
    assert (out.splitlines()[-1], "more than 1" in err) == ("removed 1 task", True)
    assert command("owners", "--orphans", "--remove")[0].splitlines()[-1] == "removed 2 tasks"
    assert states(db) == {"3": True}
    assert ticker.list_tasks(db, owner="crm:9") != []
    assert db.execute(
        "SELECT count(*), count(nullif(by, '')) FROM ticker.events WHERE what = 'deleted'"
    ).fetchone() == (3, 3)


def test_an_orphan_whose_row_is_back_keeps_its_tasks(channels, db):
    from ticker.registration import orphans

    gone(db, "1, 2")
    found = orphans.orphans(db, "ticker", None, 10)
    db.execute("INSERT INTO mail_channels (id) VALUES (1)")
    assert (orphans.remove(db, "ticker", found, "me"), states(db)) == (1, {"1": True, "3": True})


def test_orphans_of_triggers_that_do_not_fit_are_left_out(former, db):
    gone(db, "1")
    db.execute("ALTER TABLE mail_channels RENAME id TO renamed")
    assert answer("owners", "--orphans") == []


def test_what_cannot_be_combined_with_orphans_is_refused():
    assert "--remove needs --orphans" in refused("owners", "--remove")
    assert sentence("cli.orphans_alone").within(refused("owners", "--orphans", "--late"))
