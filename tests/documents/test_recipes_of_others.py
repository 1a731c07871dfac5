"""What docs/guides/recipes shows of other libraries, where these are installed: Django, FastAPI, Flask, rq-dashboard, django-rq."""

import socket
import sys
from pathlib import Path

import pytest

import ticker
from tests.documents.recipes import files, needs, process, run, write

# ------------------------------------------------------------------------------------------------------------ Django

SETTINGS = """
import os
from urllib.parse import parse_qs, unquote, urlsplit
at = urlsplit(os.environ["DATABASE_URL"])
options = {name: values[0] for name, values in parse_qs(at.query).items()}
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": at.path[1:], "USER": unquote(at.username or ""),
    "PASSWORD": unquote(at.password or ""), "HOST": options.get("host", at.hostname), "PORT": options.get("port", at.port)}}
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "myapp"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": [
    "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages"]}}]
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS, USE_TZ = "secret", "project.urls", ["*"], True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""

URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""

DJANGO_MAIL = """
from types import SimpleNamespace
def fetch(host, after):
    return [SimpleNamespace(uid=uid, save=lambda: None) for uid in range((after or 0) + 1, 4)]
"""

VISIT = """
import django
django.setup()
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


@pytest.fixture
def django_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs("django")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "project.settings")
    write(tmp_path, **files("django"))
    write(tmp_path, **{
        "project/settings.py": SETTINGS, "project/urls.py": URLS, "project/__init__.py": "", "myapp/__init__.py": "",
        "myapp/mail.py": DJANGO_MAIL, "myapp/migrations/__init__.py": "",
    })  # fmt: skip
    second = tmp_path / "myapp/migrations/0002_ticker.py"
    shown = second.read_text()
    second.unlink()  # the first is made before the second is written, as the reader does
    run(tmp_path, sys.executable, "-m", "django", "makemigrations", "myapp")
    second.write_text(shown)
    return tmp_path


def test_django_channels_have_their_tasks_which_come_run_rest_and_go_with_their_rows(environ, db, django_project):
    run(django_project, "ticker", "db", "upgrade")
    run(django_project, sys.executable, "-m", "django", "migrate")
    db.execute("INSERT INTO myapp_mailchannel (host, enabled) VALUES ('mail.example.org', true)")
    for _ in range(2):
        run(django_project, "ticker", "tick")
        run(django_project, sys.executable, "-m", "wrappers", "--tasks", "myapp.polls", "--burst", "polling")
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.cursor, str(task.last_outcome)) == ("myapp_mailchannel:1", 3, "succeeded")
    db.execute("UPDATE myapp_mailchannel SET enabled = false")
    assert not ticker.list_tasks(db)[0].owner_active
    db.execute("DELETE FROM myapp_mailchannel")
    assert ticker.list_tasks(db) == []


def test_django_staff_come_from_the_admin_to_the_page_and_nobody_else_does(environ, db, django_project):
    run(django_project, sys.executable, "-m", "django", "migrate")
    db.execute("INSERT INTO myapp_mailchannel (host, enabled) VALUES ('mail.example.org', true)")
    assert run(django_project, sys.executable, "-c", VISIT).splitlines() == [
        "/admin/login/?next=/ticker/ 303", "True", "True 200", "200",
    ]  # fmt: skip


def test_django_creates_the_tables_in_a_database_of_tests_and_takes_the_triggers_back(environ, db, django_project):
    db.execute("DROP SCHEMA ticker CASCADE")
    run(django_project, sys.executable, "-m", "django", "migrate")
    run(django_project, "ticker", "db", "check")
    run(django_project, sys.executable, "-m", "django", "migrate", "myapp", "0001")
    assert db.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'myapp_mailchannel'::regclass").fetchone() == (
        0,
    )


USE_OF_DJANGOS = """
import os, django
django.setup()
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


def test_djangos_connection_is_taken_and_its_transaction_joined(environ, db, django_project):
    run(django_project, sys.executable, "-m", "django", "migrate")
    assert run(django_project, sys.executable, "-c", USE_OF_DJANGOS).splitlines() == ["{'a': 2}", "{'a': 1}"]


# ------------------------------------------------------------------------------------------------- Flask and FastAPI


ASK = """
import json, sys, urllib.error, urllib.request
from http.cookiejar import CookieJar

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None

base, cookies = sys.argv[1], CookieJar()
opener = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(cookies))

def ask(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    try:
        answer = opener.open(urllib.request.Request(base + path, data, {"Content-Type": "application/json", **headers}))
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.headers.get("Location", ""), answer.read().decode()

print(*ask("/ticker/tasks")[:2])
ask("/login", {"password": "wrong"})
print(*ask("/ticker/tasks")[:2])
ask("/login", {"password": "opens"})
status, _, text = ask("/ticker/tasks")
print(status, "mail.fetch" in text, 'href="/ticker/owners"' in text)
print(ask("/ticker/static/ticker.css")[0])
print(ask("/ticker/api/v1/tasks/1/pause", {"by": "ann"}, Origin="https://elsewhere.example.org")[0])
print(ask("/ticker/api/v1/tasks/1/pause", {"by": "ann"}, Origin=base)[0])
print(json.loads(ask("/channels?host=mail.example.org", {})[2])["owner"])
"""

CREATE = """
import asyncio
from myapp.models import Base, engine

async def create():
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)

asyncio.run(create())
"""


@pytest.mark.parametrize(
    ("library", "also", "server"),
    [
        ("fastapi", ["asyncpg", "itsdangerous"], "uvicorn myapp.site:app --fd {}"),
        ("flask", ["asyncpg", "asgiref", "a2wsgi", "gunicorn"], "gunicorn myapp.wsgi:app --workers 2 --bind fd://{}"),
    ],
    ids=["fastapi", "flask"],
)
def test_the_page_is_mounted_behind_a_login_and_an_async_view_registers(library, also, server, environ, db, tmp_path):
    needs(library, *also)
    ticker.register(db, "mail.fetch", every="1m")
    write(tmp_path, **files("flask-fastapi"), **{"myapp/__init__.py": ""})
    run(tmp_path, sys.executable, "-c", CREATE)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", *server.format(listening.fileno()).split()]
        with process(tmp_path, *command, file=listening.fileno(), SESSION_KEY="secret", OPERATORS_PASSWORD="opens"):
            asked = run(tmp_path, sys.executable, "-c", ASK, address)
    assert asked.splitlines() == ["303 /login", "303 /login", "200 True True", "200", "403", "200", "mail_channels:1"]
    assert ticker.get(db, "mail.fetch").paused_by == "ann"
    assert ticker.get(db, "mail.fetch", owner="mail_channels:1").every_ms == 60_000
    db.execute("DELETE FROM mail_channels")
    assert [task.owner for task in ticker.list_tasks(db)] == [""]


# ------------------------------------------------------------------------------------------------------ what RQ shows

DASHBOARD = """
import os
from rq_dashboard.cli import make_flask_app
from rq_dashboard.web import setup_rq_connection

app = make_flask_app(None, None, None, "")
app.config["RQ_DASHBOARD_REDIS_URL"] = os.environ["REDIS_URL"]
setup_rq_connection(app)
browser = app.test_client()
for job in browser.get("/0/data/jobs/polling/failed/8/asc/1.json").json["jobs"]:
    print(job["description"], job["exc_info"].splitlines()[-1])
    print(browser.post(f"/job/{job['id']}/requeue").json["status"])
"""

DJANGO_RQ = """
import os, sys
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_rq"], RQ_QUEUES={"polling": {"URL": os.environ["REDIS_URL"]}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
django.setup()
import myapp.admin
from django.template import Context, Template
import django_rq
queue = django_rq.get_queue("polling")
queue.enqueue("os.getpid")
shown = Template("{% load django_rq %}{% for job in jobs %}{{ job|show_func_name }} {% endfor %}")
print(shown.render(Context({"jobs": queue.jobs})))
"""


def test_rq_dashboard_shows_the_function_and_its_error_and_its_requeue_is_a_duplicate(environ, db, tmp_path):
    needs("rq_dashboard", "six")
    ticker.register(db, "fails", every="1m")
    run(tmp_path, "ticker", "tick")
    work = [sys.executable, "-m", "wrappers", "--tasks", "tests.sample_tasks", "--burst", "polling"]
    run(tmp_path, *work)
    told = run(tmp_path, sys.executable, "-c", DASHBOARD)
    assert told.splitlines() == ["fails ValueError: no \x00 such host", "OK"]
    run(tmp_path, *work)
    assert [str(run.reason) for run in ticker.list_runs(db, outcome="dropped")] == ["duplicate"]


def test_django_rq_shows_the_function_of_ours_and_of_others(environ, db, tmp_path):
    needs("django_rq")
    ticker.register(db, "mail.fetch", every="1m")
    run(tmp_path, "ticker", "tick")
    write(tmp_path, **files("rq-dashboard"), **{"myapp/__init__.py": ""})
    assert run(tmp_path, sys.executable, "-c", DJANGO_RQ).split() == ["mail.fetch", "os.getpid"]
