"""docs/guides/recipes/tenants.md with two tenants each: django-tenants, and SQLAlchemy's schema_translate_map."""

import sys
from functools import partial

import pytest

import ticker
from tests.cli.answers import answer
from tests.django.project import SETTINGS
from tests.documents.recipes import files, needs, run, write
from tests.followed import leftovers
from tests.running import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAIL = """
def fetch(host):
    return f"fetched from {host}"
"""
TABLE = "myapp_mailchannel"


def states(db):
    return {f"{task.owner} {task.name}": task.owner_active for task in ticker.list_tasks(db)}


def results(db):
    return {f"{run.owner_type}:{run.owner_id}": run.result for run in ticker.list_runs(db)}


def work(folder, *ticker_command):
    """Runs what is due, in real processes."""
    run(folder, *ticker_command, "tick", patience=3 * PATIENCE)
    module = "shop.polls" if ticker_command == ("ticker",) else "myapp.polls"
    run(folder, *ticker_command, "worker", "--tasks", module, "--burst", "polling", patience=3 * PATIENCE)


# ---------------------------------------------------------------------------------------------------- django-tenants


@pytest.fixture
def project(environ, db, tmp_path, monkeypatch):
    needs("django_tenants")
    shown = {path: text for path, text in files("tenants").items() if not path.startswith("shop/")}
    second = shown.pop("myapp/migrations/0002_follow.py")
    settings = shown.pop("project/settings.py").replace("redis://localhost:6379/0", environ["REDIS_URL"])
    packages = ("project", "myapp", "myapp/migrations", "customers", "customers/migrations")
    write(tmp_path, **shown, **{f"{package}/__init__.py": "" for package in packages})
    write(
        tmp_path,
        **{"project/settings.py": SETTINGS + settings, "project/urls.py": "urlpatterns = []", "myapp/mail.py": MAIL},
    )
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "project.settings")
    monkeypatch.setenv("PROJECT_DATABASE", environ["DATABASE_URL"])
    django(tmp_path, "makemigrations", "myapp", "customers")
    write(tmp_path, **{"myapp/migrations/0002_follow.py": second})
    django(tmp_path, "migrate_schemas")
    shell(tmp_path, CREATE)
    return tmp_path


def django(folder, *command):
    return run(folder, sys.executable, "-m", "django", *command, patience=3 * PATIENCE)


def shell(folder, script):
    imports = "import django; django.setup()\nfrom customers.models import Customer\nfrom django_tenants.utils import schema_context\n"
    return run(folder, sys.executable, "-c", f"{imports}from myapp.models import MailChannel\n{script}")


CREATE = """
for tenant in ("tenant_a", "tenant-b"):
    Customer.objects.create(schema_name=tenant, name=tenant)
    with schema_context(tenant):
        MailChannel.objects.create(host=tenant)
"""
REPORTS = """
from myapp.reports import send_reports
for tenant in ("tenant_a", "tenant-b"):
    send_reports(tenant, tenant, "0 6 * * *")
with schema_context("tenant-b"):
    MailChannel.objects.update(enabled=False)
"""
AT_ONCE = """
import ticker
from django.db import connection
with schema_context("tenant_a"):
    channel = MailChannel.objects.get()
Customer.objects.count()
with schema_context("tenant_a"):  # the search_path is still that of the query before
    print([task.owner for task in ticker.list_tasks(connection, owner=channel)])
"""
A, B = f"tenant_a.{TABLE}:1", f"tenant-b.{TABLE}:1"


def test_tenants_of_django_have_their_own_tasks_until_they_go(db, project):
    assert states(db) == {f"{A} mail.fetch": True, f"{B} mail.fetch": True}
    work(project, sys.executable, "-m", "django", "ticker")
    assert results(db) == {A: "fetched from tenant_a", B: "fetched from tenant-b"}
    assert shell(project, AT_ONCE) == f"['{A}']\n"
    shell(project, REPORTS)
    assert states(db) == {
        f"{A} mail.fetch": True, f"{A} mail.report": True, f"{B} mail.fetch": False, f"{B} mail.report": False,
    }  # fmt: skip
    shell(project, "Customer.objects.get(schema_name='tenant-b').delete()")
    assert states(db) == {f"{A} mail.fetch": True, f"{A} mail.report": True}
    assert {"tenant-b" in text for _, text in leftovers(db)} == {False}
    assert db.execute("SELECT DISTINCT owner_type FROM ticker.templates").fetchall() == [(f"tenant_a.{TABLE}",)]
    assert answer("db", "upgrade", "--check")["problems"] == []
    shell(project, "with schema_context('tenant_a'): MailChannel.objects.all().delete()")
    assert states(db) == {}


def test_a_migration_goes_backwards_for_one_tenant_and_forwards_again(db, project):
    both = leftovers(db)
    django(project, "migrate_schemas", "--schema=tenant_a", "myapp", "0001")
    assert leftovers(db) == [(name, text) for name, text in both if "tenant_a" not in text]
    assert len(leftovers(db)) == 14
    django(project, "migrate_schemas")
    assert leftovers(db) == both


# -------------------------------------------------------------------------------------------------------- SQLAlchemy


@pytest.fixture
def shop(environ, tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    write(tmp_path, **{path: text for path, text in files("tenants").items() if path.startswith("shop/")})
    write(tmp_path, **{"shop/__init__.py": "", "shop/mail.py": MAIL})
    python = partial(run, tmp_path, sys.executable, "-c")
    python(f"{SHOP}\nfor tenant in ('a', 'b'):\n    tenants.create(tenant)\n    add(tenant)")
    return tmp_path, lambda script: python(f"{SHOP}\n{script}")


SHOP = """
from sqlalchemy import delete, update
from sqlalchemy.orm import Session
from shop import tenants
from shop.models import MailChannel, engine_of
from shop.reports import send_reports

def add(tenant):
    with Session(engine_of(tenant)) as session, session.begin():
        session.add(MailChannel(host=f"{tenant}.example.org"))

def change(tenant, statement):
    with engine_of(tenant).begin() as connection:
        connection.execute(statement)
"""


def test_tenants_of_sqlalchemy_have_their_own_tasks_until_they_go(db, shop):
    folder, python = shop
    a, b = "a.mail_channels:1", "b.mail_channels:1"
    work(folder, "ticker")
    assert results(db) == {a: "fetched from a.example.org", b: "fetched from b.example.org"}
    python("send_reports('b', 'b.example.org', '0 6 * * *'); change('a', update(MailChannel).values(enabled=False))")
    assert states(db) == {f"{a} mail.fetch": False, f"{b} mail.fetch": True, f"{b} mail.report": True}
    python("tenants.drop('b')")
    assert states(db) == {f"{a} mail.fetch": False}
    assert {"b.mail_channels" in text for _, text in leftovers(db)} == {False}
    assert answer("db", "upgrade", "--check")["problems"] == []
    python("change('a', delete(MailChannel))")
    assert states(db) == {}
