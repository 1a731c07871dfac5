"""`ticker db upgrade --check` and `ticker owners --orphans`: triggers that are missing or do not fit, and tasks whose owners are gone."""

import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.followed import add, put, states
from tests.harness import command
from tests.sentences import sentence
from ticker import owners

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

FITS = {"fits": True, "problems": []}


def gone(db, ids):
    """Deletes owners as if their table had no triggers."""
    db.execute(
        f"SET session_replication_role = replica; DELETE FROM mail_channels WHERE id IN ({ids}); RESET session_replication_role"
    )


def problem():
    [told] = answer("db", "upgrade", "--check", code=1)["problems"]
    return told


# ------------------------------------------------------------------------------------------------- triggers that do not fit


def test_triggers_whose_functions_went_with_a_column_are_a_problem(channels, db):
    db.execute("ALTER TABLE mail_channels DROP enabled CASCADE")  # as a migration of Django does
    remedy = 'owners.install(op, "mail_channels")'
    assert sentence("doctor.dropped_triggers", table="mail_channels", remedy=remedy) == problem()
    put(db, owners.triggers("mail_channels", active_when="not paused"))
    assert answer("db", "upgrade", "--check") == FITS


def test_a_condition_of_several_lines_and_the_functions_of_others_are_read(db):
    db.execute('CREATE TABLE mail_channels (id int PRIMARY KEY, a int, " AND " int)')
    put(db, owners.triggers("mail_channels", active_when='a = 1\n AND " AND " = 2\n'))
    assert answer("db", "upgrade", "--check") == FITS
    db.execute(
        "CREATE SCHEMA other; CREATE FUNCTION other.owner_guard_x(text) RETURNS boolean LANGUAGE sql SECURITY DEFINER RETURN true"
    )
    assert answer("db", "upgrade", "--check") == FITS


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
    assert (answer("db", "upgrade", "--check"), states(db)) == (FITS, {})


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


def test_a_table_whose_triggers_were_dropped_in_part_is_not_looked_at_either(channels, db):
    db.execute("ALTER TABLE mail_channels DROP enabled CASCADE")
    assert problem() in command("owners", "--orphans")[1]
    assert answer("owners", "--orphans") == []


def test_orphans_are_listed_and_their_tasks_removed_and_no_others(channels, db):
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
    from ticker.tasks import owner_checks

    gone(db, "1, 2")
    found = owner_checks.orphans(db, "ticker", None, 10)
    db.execute("INSERT INTO mail_channels (id) VALUES (1)")
    assert (owner_checks.remove(db, "ticker", found, "me"), states(db)) == (1, {"1": True, "3": True})


def test_a_renamed_table_whose_triggers_were_dropped_in_part_loses_no_task(channels, db):
    db.execute("ALTER TABLE mail_channels DROP enabled CASCADE; ALTER TABLE mail_channels RENAME TO mailboxes")
    assert "dropped" in problem()
    assert answer("owners", "--orphans") == []
    command("owners", "--orphans", "--remove")
    assert states(db) == {"1": True, "2": True, "3": True}


def test_what_cannot_be_combined_with_orphans_is_refused():
    assert "--remove needs --orphans" in refused("owners", "--remove")
    assert sentence("cli.orphans_alone").within(refused("owners", "--orphans", "--late"))
