"""What docs/recipes shows of other libraries, where these are installed: FastAPI, Flask, rq-dashboard, django-rq."""

import socket
import sys

import pytest

import ticker
from tests.documents.recipes import files, needs, process, run, write

pytestmark = pytest.mark.slow

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
