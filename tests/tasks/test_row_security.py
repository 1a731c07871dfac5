"""Owners that the caller cannot see: nothing is removed because of them, and each refusal says what to do."""

from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

import ticker
from tests.cli.answers import answer, refused
from tests.conftest import admin
from tests.drivers.doors import DOORS
from tests.followed import ACTIVE, Channel, add, put, states
from tests.harness import command
from tests.rights import PASSWORD, with_user
from tests.sentences import sentence
from ticker import owners
from ticker.db.connections import connect
from ticker.errors import ConfigurationError, UnknownOwner
from ticker.tasks import owner_checks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ", "channels")]

ALL = {"1": True, "2": True, "3": True}
WANTED = [ticker.Wanted(function="poll", every="1m")]
HIDE = """ALTER TABLE mail_channels ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON mail_channels USING (id::text = current_setting('app.channel', true))"""


FORCED = "; ALTER TABLE mail_channels FORCE ROW LEVEL SECURITY, OWNER TO {0}; ALTER VIEW ticker.owner_rows_mail_channels OWNER TO {0}"
"""As if this role, which is subject to the policy, had installed the triggers."""


@pytest.fixture
def role(servers, db):
    """A role that may read owners, and read and write everything of ours. It owns nothing, and no policy lets it pass."""
    name = f"test_role_{uuid4().hex[:8]}"
    admin(servers, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    db.execute(f"GRANT USAGE ON SCHEMA ticker TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA ticker TO {name};"
               f" GRANT SELECT ON mail_channels TO {name}; GRANT CREATE, USAGE ON SCHEMA ticker, public TO {name}")  # fmt: skip
    yield name
    db.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}")
    admin(servers, f"DROP ROLE {name}")


@pytest.fixture
def as_role(role, database_url, monkeypatch):
    """The URL of that role, which commands use, too."""
    monkeypatch.setenv("DATABASE_URL", url := with_user(database_url, role))
    return url


def hidden(role, error='query would be affected by row-level security policy for table "mail_channels"'):
    return sentence("errors.owners_out_of_sight", type="mail_channels", role=role, error=error)


# ------------------------------------------------------------------------------------------------------------- orphans


def test_owners_that_a_policy_hides_are_no_orphans(db, role, as_role):
    db.execute(HIDE + FORCED.format(role))
    db.execute("ALTER TABLE mail_channels DISABLE TRIGGER USER; DELETE FROM mail_channels WHERE id = 3;"
               " ALTER TABLE mail_channels ENABLE TRIGGER USER")  # fmt: skip
    for words in (["--orphans"], ["--orphans", "--remove"], ["--orphans", "--remove", "--type", "mail_channels"]):
        assert hidden(role) == refused("owners", *words, code=78)
    notes = {note["check"]: note for note in answer("doctor", code=1)["notes"]}
    assert notes["owners"]["status"] == "not checked" and hidden(role) == notes["owners"]["sentence"]
    assert states(db) == ALL


def test_the_triggers_of_a_role_that_sees_all_owners_let_others_find_orphans(db, role, as_role):
    db.execute(HIDE)
    db.execute(
        "SET session_replication_role = replica; DELETE FROM mail_channels WHERE id = 3; RESET session_replication_role"
    )
    assert [one["owner"] for one in answer("owners", "--orphans")] == ["mail_channels:3"]
    assert command("owners", "--orphans", "--remove")[0].splitlines()[-1] == "removed 1 task"
    assert states(db) == {"1": True, "2": True}


@pytest.mark.parametrize("autocommit", [True, False])
def test_row_security_is_afterwards_as_it_was(db, role, as_role, autocommit):
    db.execute(FORCED.format(role).removeprefix(";"))
    with closing(connect(as_role)) as connection:
        connection.autocommit = autocommit
        for setting in ("on", "off"):
            connection.execute(f"SET row_security = {setting}")
            assert owner_checks.orphans(connection, "ticker", None, 10) == []
            assert owner_checks.remove(connection, "ticker", [owner_checks.Orphans("mail_channels", "1", 1)], "me") == 0
            assert connection.execute("SHOW row_security").fetchone() == (setting,)
            connection.commit()
            db.execute("ALTER TABLE mail_channels ENABLE ROW LEVEL SECURITY")
            for refusing in (
                lambda: owner_checks.orphans(connection, "ticker", None, 10),
                lambda: owner_checks.remove(
                    connection, "ticker", [owner_checks.Orphans("mail_channels", "1", 1)], "me"
                ),
            ):
                with pytest.raises(ConfigurationError):
                    refusing()
                assert connection.execute("SHOW row_security").fetchone() == (setting,)
            connection.commit()
            db.execute("ALTER TABLE mail_channels DISABLE ROW LEVEL SECURITY")
    assert states(db) == ALL


def test_what_is_removed_is_decided_when_it_is_removed(db, role, as_role):
    """Owners that are back, or have come out of sight, since they were listed keep their tasks."""
    listed = [owner_checks.Orphans("mail_channels", id_, 1) for id_ in "123"]
    with closing(connect(as_role)) as connection:
        assert owner_checks.remove(connection, "ticker", listed, "me") == 0
        db.execute(HIDE + FORCED.format(role))
        with pytest.raises(ConfigurationError, check=lambda error: hidden(role) == error):
            owner_checks.remove(connection, "ticker", listed, "me")
    assert states(db) == ALL


# ------------------------------------------------------------------------------- other owners that cannot be seen (S17)


@pytest.mark.parametrize("relation", ["view owner_rows_mail_channels", "table mail_channels"])
def test_a_table_that_may_not_be_read_loses_no_task(db, role, as_role, relation):
    """Neither if the caller may not read the view, nor if the view's owner may not read the table."""
    if relation.startswith("view"):
        db.execute(f"REVOKE ALL ON ticker.owner_rows_mail_channels FROM {role}")
    else:
        db.execute(
            f"ALTER VIEW ticker.owner_rows_mail_channels OWNER TO {role}; REVOKE SELECT ON mail_channels FROM {role}"
        )
    assert hidden(role, f"permission denied for {relation}") == refused("owners", "--orphans", "--remove", code=78)
    assert states(db) == ALL


@pytest.mark.parametrize("after", ["", "; DROP TRIGGER ticker_deleted_mail_channels ON crm.mail_channels"])
def test_a_table_in_a_schema_out_of_reach_loses_no_task(db, role, as_role, after):
    db.execute("CREATE SCHEMA crm; CREATE TABLE crm.mail_channels (id bigint PRIMARY KEY)")
    put(db, owners.drop_triggers("mail_channels"))
    put(db, owners.triggers("mail_channels", table_schema="crm"))
    db.execute(
        f"GRANT SELECT ON ticker.owner_rows_mail_channels TO {role}; INSERT INTO crm.mail_channels VALUES (1), (2), (3){after}"
    )
    assert command("owners", "--orphans", "--remove")[0].splitlines()[-1] == "removed 0 tasks"
    assert states(db) == ALL


def test_rows_of_partitions_and_inheriting_tables_without_rights_are_seen(db, role, as_role):
    db.execute("""CREATE TABLE seats (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE seats_1 PARTITION OF seats FOR VALUES FROM (1) TO (10);
        ALTER TABLE seats_1 ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON seats_1 USING (false);
        CREATE TABLE rooms (id int PRIMARY KEY); CREATE TABLE halls () INHERITS (rooms);
        ALTER TABLE halls ENABLE ROW LEVEL SECURITY;
        INSERT INTO seats VALUES (1); INSERT INTO rooms VALUES (1); INSERT INTO halls VALUES (2)""")
    for table, ids in (("seats", "1"), ("rooms", "12")):
        put(db, owners.triggers(table))
        for id_ in ids:
            add(db, table, id_)
    db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA ticker TO {role}")
    assert command("owners", "--orphans", "--remove")[0].splitlines()[-1] == "removed 0 tasks"
    assert (states(db, "seats"), states(db, "rooms")) == ({"1": True}, {"1": True, "2": True})


@pytest.mark.parametrize(
    "instead",
    ["", "CREATE VIEW mail_channels AS SELECT * FROM moved WHERE id < 3", "CREATE TABLE mail_channels (LIKE moved)"],
)
@pytest.mark.parametrize("after", ["", "; DROP TRIGGER ticker_deleted_mail_channels ON moved"])
def test_another_relation_of_the_tables_name_decides_nothing(db, instead, after):
    """As in a migration without downtime, or of a table that is split by tenant."""
    db.execute(f"ALTER TABLE mail_channels RENAME TO moved; {instead}{after}")
    command("owners", "--orphans", "--remove")
    assert states(db) == ALL


def test_tables_of_ours_that_a_policy_hides_lose_no_task(db, role, as_role):
    db.execute("ALTER TABLE ticker.tasks ENABLE ROW LEVEL SECURITY")
    assert "ticker.tasks" in refused("owners", "--orphans", code=78) or "tasks" in refused(
        "owners", "--orphans", code=78
    )
    db.execute("ALTER TABLE ticker.tasks DISABLE ROW LEVEL SECURITY")
    assert states(db) == ALL


def test_owners_of_an_inheriting_table_keep_their_tasks_when_only_the_parent_is_truncated(db):
    db.execute("CREATE TABLE rooms (id int PRIMARY KEY); CREATE TABLE halls () INHERITS (rooms); INSERT INTO rooms VALUES (1);"
               " INSERT INTO halls VALUES (2)")  # fmt: skip
    put(db, owners.triggers("rooms"))
    for id_ in "12":
        add(db, "rooms", id_)
    db.execute("TRUNCATE ONLY rooms")
    assert states(db, "rooms") == {"2": True}


# ------------------------------------------------------------------------------------------------------- default tasks


@pytest.mark.parametrize("name", DOORS)
def test_default_tasks_are_for_all_owners_or_refused(db, role, as_role, name):
    door = DOORS[name](as_role)
    db.execute(HIDE + FORCED.format(role))
    with pytest.raises(ConfigurationError, check=lambda error: hidden(role) == error):
        door("defaults", "mail_channels", WANTED, existing=True)
    assert db.execute("SELECT count(*) FROM ticker.templates").fetchone() == (0,)
    assert door("defaults", "mail_channels", WANTED) == 0  # future owners are not read
    view = "ticker.owner_rows_mail_channels"
    db.execute(f"ALTER VIEW {view} OWNER TO CURRENT_USER; GRANT SELECT ON {view} TO {role}")
    assert door("defaults", "mail_channels", WANTED, existing=True) == 3


def test_default_tasks_need_triggers_of_a_role_that_sees_all_owners_too(servers, db, role, as_role):
    """Under FORCE, the guard of new tasks is subject to the policy as the table's owner, who installed it."""
    db.execute(f"{HIDE}; ALTER TABLE mail_channels FORCE ROW LEVEL SECURITY, OWNER TO {role}")
    with psycopg.connect(as_role, autocommit=True) as installing:
        db.execute("DELETE FROM ticker.tasks")
        put(db, owners.drop_triggers("mail_channels"))
        put(installing, owners.triggers(Channel, active_when=ACTIVE))
    with pytest.raises(ConfigurationError, check=lambda error: hidden("postgres") == error):
        ticker.defaults(db, "mail_channels", WANTED, existing=True)
    put(db, owners.drop_triggers("mail_channels"))
    put(db, owners.triggers(Channel, active_when=ACTIVE))
    assert ticker.defaults(db, "mail_channels", WANTED, existing=True) == 3


@pytest.mark.parametrize("autocommit", [True, False])
def test_default_tasks_leave_row_security_as_it_was(db, role, as_role, autocommit):
    db.execute(FORCED.format(role).removeprefix(";"))
    with psycopg.connect(as_role, autocommit=autocommit) as connection:
        for setting in ("on", "off"):
            connection.execute(f"SET row_security = {setting}")
            ticker.defaults(connection, "mail_channels", WANTED, existing=True)
            assert connection.execute("SHOW row_security").fetchone() == (setting,)
            connection.commit()
            db.execute("ALTER TABLE mail_channels ENABLE ROW LEVEL SECURITY")
            with pytest.raises(ConfigurationError), connection.transaction():
                ticker.defaults(connection, "mail_channels", WANTED, existing=True)
            assert connection.execute("SHOW row_security").fetchone() == (setting,)
            connection.rollback()
            db.execute("ALTER TABLE mail_channels DISABLE ROW LEVEL SECURITY")


def test_registrations_stay_subject_to_the_policy(db, role, as_role):
    """They see what the application sees, which may set what the policy asks for."""
    db.execute(f"{HIDE}; ALTER TABLE mail_channels FORCE ROW LEVEL SECURITY, OWNER TO {role}")
    with psycopg.connect(as_role, autocommit=True) as application:
        db.execute("DELETE FROM ticker.tasks")
        put(db, owners.drop_triggers("mail_channels"))
        put(application, owners.triggers(Channel, active_when=ACTIVE))
        application.execute("SET app.channel = '1'")
        ticker.register(application, "poll", owner="mail_channels:1", every="1m")
        with pytest.raises(UnknownOwner):
            ticker.register(application, "poll", owner="mail_channels:2", every="1m")
    assert states(db) == {"1": True}


def test_an_installation_that_would_change_tasks_sees_all_owners_or_is_refused(db, role, as_role):
    db.execute(f"{HIDE}; ALTER TABLE mail_channels FORCE ROW LEVEL SECURITY, OWNER TO {role}")
    db.execute("UPDATE mail_channels SET paused = true WHERE id = 2")
    put(db, owners.drop_triggers("mail_channels"))
    with psycopg.connect(as_role, autocommit=True) as installing:
        with pytest.raises(psycopg.DatabaseError) as caught, installing.transaction():
            put(installing, owners.triggers(Channel, active_when="not enabled"))
        assert sentence("errors.tasks_of_hidden_owners", table="public.mail_channels", role=role).begins(
            str(caught.value)
        )
        assert installing.execute("SHOW row_security").fetchone() == ("on",)
    assert states(db) == {"1": True, "2": False, "3": True}
    put(db, owners.triggers(Channel, active_when="not enabled"))
    assert states(db) == {"1": False, "2": False, "3": False}
