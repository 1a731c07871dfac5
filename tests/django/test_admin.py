"""The tasks in Django's admin: what selected ones are made to do, by whom, and who may not."""

import pytest

import ticker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each command starts an interpreter with Django

VISIT = """
import re, sys
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import setup_test_environment
import ticker

setup_test_environment()  # answers have contexts

def client_of(name, *rights):
    user, _ = User.objects.get_or_create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights, content_type__app_label="ticker"))
    client = Client()
    client.force_login(user)
    return client

def post(client, action, *tasks):
    answer = client.post("/admin/ticker/task/", {"action": action, "_selected_action": tasks}, follow=True)
    return answer.status_code, *[str(message) for message in answer.context["messages"]]

def actions(client):
    return re.findall(r'<option value="(\\w+)">', client.get("/admin/ticker/task/").content.decode())

ann, bob, eve = client_of("ann", "change_task"), client_of("bob", "view_task"), client_of("eve")
"""


@pytest.fixture
def visit(shell):
    return lambda script: [eval(line) for line in shell(VISIT + script).splitlines()]


@pytest.fixture
def tasks(manage, db):
    manage("migrate")
    return [ticker.register(db, "mail.fetch", name=name, every="1m", owner=("channels", "1")) for name in "ab"]


def test_selected_tasks_are_changed_in_the_name_of_the_user_and_the_history_says_so(tasks, db, visit):
    first, second = (task.id for task in tasks)
    script = f"""
for action in ("pause", "resume", "disable", "run", "enable", "run"):
    print(post(ann, action, {first}))
    task = ticker.get(connection, {first})
    print((task.paused_by, task.enabled))
print(list(LogEntry.objects.order_by("id").values_list("user__username", "object_id", "object_repr", "change_message")))
print("Disabled" in ann.get("/admin/ticker/task/{first}/history/").content.decode())
print(ann.get("/admin/ticker/task/?q=a").content.decode().count('name="_selected_action"'))
"""
    *done, log, is_in_history, found = visit(script)
    assert done[1::2] == [("ann", True), (None, True), (None, False), (None, False), (None, True), (None, True)]
    assert [len(messages) for _, *messages in done[::2]] == [1, 1, 1, 2, 1, 1]
    done = ["Paused", "Resumed", "Disabled", "Enabled", "Requested a run"]
    assert log == [("ann", str(first), "a of channels:1", what) for what in done]
    assert (is_in_history, found) == (True, 1)
    assert [run.task_id for run in ticker.list_runs(db)] == [first]
    by = db.execute("SELECT what, by FROM ticker.events WHERE task_id = %s ORDER BY id", [first]).fetchall()
    assert by == [(what, "ann") for what in ("paused", "resumed", "disabled", "enabled")]
    assert ticker.get(db, second) == tasks[1]


def test_who_may_only_look_changes_nothing_and_nobody_has_a_form(tasks, db, visit):
    script = f"""
print((actions(ann), actions(bob)))
print(post(bob, "pause", {tasks[0].id})[0])
def codes(ask): return [ask(client).status_code for client in (ann, bob, eve)]
print(codes(lambda client: client.get("/admin/ticker/task/")))
print(codes(lambda client: client.get("/admin/ticker/task/{tasks[0].id}/change/")))
for path in ("{tasks[0].id}/change/", "{tasks[0].id}/delete/", "add/"):
    print(codes(lambda client: client.post("/admin/ticker/task/" + path, {{"name": "x"}})))
"""
    assert visit(script) == [
        (["enable", "disable", "run", "pause", "resume"], []), 200, [200, 200, 403], [200, 200, 403], *[[403, 403, 403]] * 3,
    ]  # fmt: skip
    assert ticker.list_tasks(db) == tasks


SQLITE = "\nDATABASES['default'] = {'ENGINE': 'django.db.backends.sqlite3'}\n"


def test_a_project_on_another_database_shows_no_tasks(project, shell):
    settings = project / "project" / "settings.py"
    settings.write_text(settings.read_text() + SQLITE)
    names = shell("from django.contrib import admin\nfor model in admin.site._registry: print(model.__name__)").split()
    assert "MailChannel" in names and "Task" not in names


def test_the_model_needs_no_migration(manage):
    manage("makemigrations", "--check", "ticker")
