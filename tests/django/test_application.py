"""`ticker.django`: tables and triggers by migrations, the command of manage.py, rows of models as owners, Django's tests."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import ticker
from tests.documents.recipes import run, write
from tests.running import until
from tests.sentences import sentence
from ticker import migrations
from ticker.db.checks import revisions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each command starts an interpreter with Django


# ------------------------------------------------------------------------------------------------------ the recipe


def test_channels_have_their_tasks_which_come_run_rest_and_go_with_their_rows(db, manage):
    manage("migrate")
    db.execute("INSERT INTO myapp_mailchannel (host, enabled) VALUES ('mail.example.org', true)")
    manage("ticker", "tick")
    manage("ticker", "worker", "--tasks", "myapp.polls", "--burst", "polling")
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.cursor, str(task.last_outcome)) == ("myapp_mailchannel:1", 3, "succeeded")
    db.execute("UPDATE myapp_mailchannel SET enabled = false")
    assert not ticker.list_tasks(db)[0].owner_active
    db.execute("DELETE FROM myapp_mailchannel")
    assert ticker.list_tasks(db) == []


PSYCOPG2 = """
import sys
sys.modules["psycopg"] = None  # Django takes psycopg 3 if it can import it
import django.db.backends.postgresql.base
del sys.modules["psycopg"]
"""


def test_the_same_on_psycopg2(db, manage, project, shell):
    settings = project / "project" / "settings.py"
    settings.write_text(PSYCOPG2 + settings.read_text())
    assert shell("from django.db import connection; print(connection.Database.__name__)").strip() == "psycopg2"
    db.execute("DROP SCHEMA ticker CASCADE")
    test_channels_have_their_tasks_which_come_run_rest_and_go_with_their_rows(db, manage)
    manage("migrate", "myapp", "0001")
    manage("migrate", "ticker", "zero")
    manage("migrate")


VISIT = """
from django.contrib.auth.models import User
from django.test import Client
from starlette.testclient import TestClient
from project.asgi import application

def client_of(user):
    client = Client()
    client.force_login(user)
    return client

def asks_for(path, client=None):
    cookies = {name: morsel.value for name, morsel in client.cookies.items()} if client else {}
    browser = TestClient(application, base_url="http://shop.example.org", follow_redirects=False, cookies=cookies)
    return browser.get(path)

staff, customer = (client_of(User.objects.create_user(name, is_superuser=rights, is_staff=rights))
                   for name, rights in (("ann", True), ("bob", False)))
print(asks_for("/ticker/tasks").headers["location"], asks_for("/ticker/tasks", customer).status_code)
print('href="/ticker/tasks?owner=myapp_mailchannel:1"' in staff.get("/admin/myapp/mailchannel/").content.decode())
print("mail.fetch" in asks_for("/ticker/tasks?owner=myapp_mailchannel:1", staff).text, asks_for("/ticker/", staff).status_code)
print(asks_for("/admin/login/").status_code)
"""


def test_staff_come_from_the_admin_to_the_page_and_nobody_else_does(db, manage, shell):
    manage("migrate")
    db.execute("INSERT INTO myapp_mailchannel (host, enabled) VALUES ('mail.example.org', true)")
    assert shell(VISIT).splitlines() == ["/admin/login/?next=/ticker/ 303", "True", "True 200", "200"]


USE_OF_DJANGOS = """
from django.db import connection, transaction
import ticker
with transaction.atomic():
    ticker.register(connection, "plain", every="1m", kwargs={"a": 1})
try:
    with transaction.atomic():
        ticker.register(connection, "plain", every="1m", kwargs={"a": 2}, metadata={"b": 1})
        print(ticker.get(connection, "plain").kwargs)
        raise KeyError
except KeyError:
    print(ticker.get(connection, "plain").kwargs)
"""


def test_djangos_connection_is_taken_and_its_transaction_joined(manage, shell):
    manage("migrate")
    assert shell(USE_OF_DJANGOS).splitlines() == ["{'a': 2}", "{'a': 1}"]


# --------------------------------------------------------------------------------------------------------- migrations

TRIGGERS = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'myapp_mailchannel'::regclass"


def test_the_migrations_create_what_an_upgrade_creates_and_go_backwards(environ, db, manage):
    url = environ["DATABASE_URL"]
    db.execute("DROP SCHEMA ticker CASCADE")
    manage("migrate")
    assert migrations.problems(url) == []
    manage("ticker", "db", "upgrade")
    manage("ticker", "db", "upgrade", "--check")
    manage("migrate", "myapp", "0001")
    assert db.execute(TRIGGERS).fetchone() == (0,)
    manage("migrate", "ticker", "zero")
    assert migrations.problems(url) == ["schema ticker has no tables; run: ticker db upgrade"]
    manage("migrate")
    assert (migrations.problems(url), db.execute(TRIGGERS).fetchone()) == ([], (4,))


def test_tables_that_an_upgrade_created_are_taken_as_they_are(db, manage):
    ticker.register(db, "plain", every="1m")
    manage("migrate")
    assert [task.name for task in ticker.list_tasks(db)] == ["plain"]


# after each attempt, a migration asks who holds the lock: this is its last statement until the next one
WAITS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_catalog.pg_locks%'
"""


def test_a_migration_that_waits_for_an_upgrade_does_not_hold_up_its_index(environ, db, manage):
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(environ["DATABASE_URL"], autocommit=True) as upgrade:
            upgrade.execute("SELECT pg_catalog.pg_advisory_lock(%s)", [migrations.UPGRADE_LOCK])
            migrates = pool.submit(manage, "migrate")
            until(lambda: migrates.done() or db.execute(WAITS).fetchone(), "a migration that waits")
            upgrade.execute("SET statement_timeout = '20s'; CREATE TABLE indexed (id int)")
            upgrade.execute("CREATE INDEX CONCURRENTLY ON indexed (id)")
            assert not migrates.done()
        migrates.result()


def test_the_script_of_a_migration_leaves_the_search_path_and_the_transaction_as_they_are(environ):
    with psycopg.connect(environ["DATABASE_URL"]) as other:
        other.execute("SET LOCAL search_path TO crm, public; CREATE TABLE mine ()")
        for script in (migrations.drop("ticker"), migrations.script("ticker")):
            other.execute(script)
        assert other.execute("SELECT current_setting('search_path'), to_regclass('mine')").fetchone() == (
            "crm, public",
            "mine",
        )
        other.rollback()
        assert other.execute("SELECT to_regclass('mine')").fetchone() == (None,)


CONDITIONS = """
from django.apps import apps
from django.db import connection
from django.db.migrations.state import ProjectState
from ticker.django.operations import FollowOwner

state = ProjectState.from_apps(apps)

def go(operation, way):
    with connection.schema_editor() as editor:
        getattr(operation, f"database_{way}")("myapp", editor, state, state)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'ticker_changed_myapp_mailchannel'")
        found = cursor.fetchone()
        print(found and ("host" in found[0], "enabled" in found[0]))

first = FollowOwner("myapp.MailChannel", active_when="enabled")
second = FollowOwner("myapp.MailChannel", active_when="host <> ''", instead_of=first)
for operation, way in [(first, "forwards"), (second, "forwards"), (second, "backwards"), (first, "backwards")]:
    go(operation, way)
print(second.deconstruct()[1:])
"""


def test_another_condition_and_the_way_back_install_what_was_there_before(manage, shell):
    manage("migrate")
    *went, constructed = shell(CONDITIONS).splitlines()
    assert went == ["(False, True)", "(True, False)", "(False, True)", "None"]
    assert "'active_when': \"host <> ''\", 'instead_of': <FollowOwner" in constructed


def test_each_revision_has_a_migration_and_only_the_first_drops_the_tables_on_the_way_back():
    """A new revision of the tables needs a new file in ticker/django/migrations, or `migrate` sees nothing to do."""
    folder = Path(migrations.__file__).parent.parent / "django" / "migrations"
    operations = [re.findall(r"Tables\((.*?)\)", file.read_text()) for file in sorted(folder.glob("0*.py"))]
    assert operations == [["drop=True"], *([""] for _ in revisions()[1:])]


# -------------------------------------------------------------------------------------------------- the command


def test_the_command_ends_and_speaks_as_ticker_does(environ, project, manage):
    manage("migrate")
    for command, code in [("list nothing", 1), ("add x --every 1ms", 2), ("list --sort", 2), ("next '61 * * * *'", 2)]:
        arguments = command.split(" ", 2)
        own = run(project, "ticker", *arguments, expected=code, **environ)
        assert manage("ticker", *arguments, "--settings=project.settings", expected=code) == own
    assert manage("ticker", "--help") == run(project, "ticker", "--help")
    assert manage("ticker", "--version") == run(project, "ticker", "--version")


URL = """
from django.conf import settings
options = {"sslmode": "prefer", "isolation_level": 2, "pool": {"min_size": 1}}
settings.configure(TICKER_TASKS="a,b", TICKER_WAKE="on", DATABASES={"default": {"ENGINE": "django.db.backends.postgresql",
    "NAME": "a b/c", "USER": "u@x", "PASSWORD": "p&=%@:/? é", "HOST": "/run/a,b", "PORT": 5433, "OPTIONS": options}},
    INSTALLED_APPS=["ticker.django"])
import django
django.setup()
from ticker.django.apps import database_url
from ticker.settings import Settings, current
from psycopg.conninfo import conninfo_to_dict
found = current()
print(found.tasks, found.wake)
print(sorted(conninfo_to_dict(Settings(database_url=database_url()).require_database()).items()))
"""


def test_a_project_on_another_database_needs_its_url(project):
    """Without it, libpq would take the defaults of the host for the server."""
    script = URL.partition("from ticker.django")[0].replace(".postgresql", ".sqlite3").replace('"OPTIONS": options', "")
    call = "from django.core.management import call_command\ncall_command('ticker', 'list')"
    told = run(project, sys.executable, "-c", script + call, expected=78)
    assert sentence("errors.is_not_set", setting="TICKER_DATABASE_URL").within(told)


def test_the_settings_are_those_of_django_and_the_environment_wins(project):
    tasks, url = run(project, sys.executable, "-c", URL, TICKER_WAKE="off").splitlines()
    assert tasks == "('a', 'b') False"
    assert url == str([
        ("client_encoding", "UTF8"), ("dbname", "a b/c"), ("host", "/run/a,b"), ("password", "p&=%@:/? é"),
        ("port", "5433"), ("sslmode", "prefer"), ("user", "u@x"),
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- owners

MODELS = """
import uuid
from django.db import models

class Device(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

class Named(models.Model):
    name = models.CharField(primary_key=True, max_length=50)

class Seat(models.Model):
    pk = models.CompositePrimaryKey("row", "name")
    row = models.IntegerField()
    name = models.CharField(max_length=50)

class Placed(models.Model):
    class Meta:
        db_table = 'crm"."placed'

class Child(Named):
    kind = models.TextField()

class Proxy(Named):
    class Meta:
        proxy = True

class Priced(models.Model):
    price = models.DecimalField(primary_key=True, max_digits=5, decimal_places=2)
"""

OWNERS = """
from uuid import UUID
from django.db import connection
from django.utils.functional import SimpleLazyObject
from myapp.models import *
import ticker
from ticker import owners

UID = UUID("6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60")

with connection.cursor() as cursor, connection.schema_editor() as editor:
    cursor.execute("CREATE SCHEMA crm")
    for model in (Device, Named, Seat, Placed, Child):
        editor.create_model(model)
        for statement in owners.triggers(model):
            editor.execute(statement, params=None)

def tasks():
    return [task.owner for task in ticker.list_tasks(connection)]

for owner in (Device.objects.create(id=str(UID).upper()), Named.objects.create(name="ä:b"), Seat.objects.create(row=5, name='ü"x'),
              Placed.objects.create(), Child.objects.create(name="c", kind=""), Proxy.objects.create(name="p"),
              SimpleLazyObject(lambda: Placed.objects.create())):
    name = type(owner).__name__
    task = ticker.register(connection, "polls", every="1m", owner=owner)
    assert task.owner.partition(":")[0] == owners.type_of(owner.__class__), name
    assert tasks() == [task.owner]
    assert [t.id for t in ticker.reconcile(connection, owner, [{"function": "polls", "every": "1m"}])] == [task.id]
    print(task.owner)
    owner.delete()
    assert tasks() == [], name

gone = Named.objects.create(name="gone")
gone.delete()
for owner in (Named(name="new"), Device(), gone, Seat(row=1), Priced(price=1), Named):
    try:
        ticker.register(connection, "polls", every="1m", owner=owner)
    except ticker.BadInput as error:
        print(error)
kept = Priced(price=1)
kept._state.adding = False
try:
    ticker.register(connection, "polls", every="1m", owner=kept)
except ticker.BadInput as error:
    print(error)
"""


def test_an_owner_is_a_row_of_a_model_by_the_text_of_its_key(manage, shell, project):
    manage("migrate")
    write(project, **{"myapp/models.py": (project / "myapp/models.py").read_text() + MODELS})
    *owners, new, device, gone, seat, priced, model, decimal = shell(OWNERS).splitlines()
    assert owners == [
        "myapp_device:6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60", "myapp_named:ä:b", 'myapp_seat:[5, "ü\\"x"]', "crm.placed:1",
        "myapp_child:c", "myapp_named:p", "crm.placed:2",
    ]  # fmt: skip
    for text, name in [(new, "Named"), (gone, "Named"), (device, "Device"), (seat, "Seat"), (priced, "Priced")]:
        assert text == sentence("errors.no_row", field="owner", value=f"'{name}'")
    assert sentence("errors.names_none").within(model)
    assert sentence("errors.odd_key").within(decimal)


# ---------------------------------------------------------------------------------------------------- Django's tests

TESTS = """
from django.core.management import call_command
from django.db import connection
from django.test import TestCase, TransactionTestCase
import ticker
from myapp.models import MailChannel
from ticker.settings import current

class Clean:
    def test_a_first_test_leaves_tasks_behind(self):
        self.found_clean()

    def test_a_second_test_finds_none(self):
        self.found_clean()

    def found_clean(self):
        self.assertIn(connection.settings_dict["NAME"], current().database_url)
        with connection.cursor() as cursor:
            cursor.execute("SELECT (SELECT count(*) FROM ticker.tasks), (SELECT count(*) FROM ticker.runs),"
                " (SELECT count(*) FROM ticker.events), (SELECT count(*) FROM ticker.tickers)")
            self.assertEqual(cursor.fetchone(), (0, 0, 0, 0))
        ticker.register(connection, "housekeeping", every="1m")
        channel = MailChannel.objects.create(host="mail.example.org")
        ticker.pause(connection, owner=channel, by="ann")
        self.assertEqual([t.name for t in ticker.list_tasks(connection, owner=channel)], ["mail.fetch"])

class Rolled(Clean, TestCase):
    pass

class Flushed(Clean, TransactionTestCase):
    def found_clean(self):
        super().found_clean()
        call_command("ticker", "tick")
        call_command("ticker", "db", "upgrade", "--check")
        with self.assertRaises(SystemExit):
            call_command("ticker", "list", "nothing")
"""


def test_tests_of_django_find_the_tables_empty_and_with_the_default_tasks(db, manage, project):
    write(project, **{"myapp/test_clean.py": TESTS})
    ticker.register(db, "plain", every="1m")
    manage("test", "--noinput")
    assert [task.name for task in ticker.list_tasks(db)] == [
        "plain"
    ]  # the project's own database is none of the tests'


PARALLEL = """
from django.core.management import call_command
from django.test import TransactionTestCase

class One(TransactionTestCase):
    def test_ticks(self):
        try:
            call_command("ticker", "tick")
        except SystemExit:  # the first class of a process
            call_command("ticker", "db", "adopt", "--resume")
            call_command("ticker", "tick")

class Two(One):
    pass
"""


def test_parallel_tests_adopt_their_copy_of_the_database(manage, project):
    write(project, **{"myapp/test_parallel.py": PARALLEL})
    assert "is now" in manage("test", "--noinput", "--parallel", "2", "myapp.test_parallel")


def test_a_flush_by_hand_leaves_the_tasks_alone(db, manage):
    manage("migrate")
    ticker.register(db, "plain", every="1m")
    manage("flush", "--noinput")
    assert [task.name for task in ticker.list_tasks(db)] == ["plain"]


MAIL = """
import ticker
from django.core.mail import send_mail
from django.core.management import call_command
from django.db import connection
ticker.register(connection, "poll", name="precious", every="1m")
send_mail("subject", "body", "a@example.org", ["b@example.org"])
call_command("migrate", verbosity=0)
call_command("flush", interactive=False, verbosity=0)
print([task.name for task in ticker.list_tasks(connection)])
"""


def test_mail_that_is_kept_in_memory_makes_no_migration_empty_the_tables(manage, project, shell):
    settings = project / "project" / "settings.py"
    settings.write_text(settings.read_text() + '\nEMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"\n')
    manage("migrate")
    assert shell(MAIL).strip() == "['precious']"


SETTINGS_OF_ALL_KINDS = """
import os
from ticker.django.apps import in_environment
print([in_environment(value) for value in (True, False, ["log", "mail"], 5, "on")], "TICKER_LISTEN_URL" in os.environ)
"""


def test_settings_that_are_no_texts_are_written_as_the_environment_has_them(project, shell):
    settings = project / "project" / "settings.py"
    settings.write_text(settings.read_text() + "\nTICKER_LISTEN_URL = None\n")
    assert shell(SETTINGS_OF_ALL_KINDS).strip() == "['on', 'off', 'log,mail', '5', 'on'] False"
