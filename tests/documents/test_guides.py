"""The quickstart and the guides do what they say, and their figures are those of their sources."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from threading import Thread

import pytest
import yaml
from sqlalchemy.orm import Session

import ticker
import wrappers
from tests.documents import rooms
from tests.documents.recipes import process, run, shown, write
from tests.factories import a_need, engine_on, ticked
from tests.harness import command
from tests.running import PATIENCE, ROOT

DOCS = ROOT / "docs"
MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from ticker import owners
class Base(DeclarativeBase): pass
class MailChannel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
owners.follow(MailChannel)
"""


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """Returns the cells of all tables of a page."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text(page).splitlines() if line[:1] == "|"
    ]


@pytest.fixture
def application(tmp_path, monkeypatch, database_url):
    """Writes the files of a page into a package `myapp` that can be imported, next to a model; returns an engine with its table."""

    def made(page: str, **more: str):
        write(tmp_path, **{"myapp/__init__.py": "", "myapp/models.py": MODELS, **shown(DOCS / f"{page}.md"), **more})
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.partition(".")[0] == "myapp"]:
            monkeypatch.delitem(sys.modules, name)
        from myapp.models import Base

        engine = engine_on(database_url)
        Base.metadata.create_all(engine)
        return engine

    return made


# -------------------------------------------------------------------------------------------------------- quickstart


@pytest.mark.slow
def test_the_quickstart_runs_as_it_stands(tmp_path):
    write(tmp_path, **shown(DOCS / "quickstart.md"))
    printed = run(tmp_path, sys.executable, "quickstart.py", PYTHONWARNINGS="error::UserWarning").splitlines()
    last = [re.fullmatch(r"run \d+ read messages up to (\d+)", line) for line in printed[-3:]]
    assert [match and match[1] for match in last] == ["9", "6", "3"]
    assert sum("  succeeded  started " in line for line in printed) >= 3


@pytest.mark.slow
def test_the_servers_of_the_quickstart_are_there_for_other_terminals(tmp_path):
    write(tmp_path, **shown(DOCS / "quickstart.md"))
    with process(tmp_path, sys.executable, "servers.py") as servers:
        exports = [servers.stdout.readline() for _ in range(2)]
        commands = "ticker db upgrade\nticker tick"
        run(tmp_path, "bash", "-ec", f"{''.join(exports)}{commands}", DATABASE_URL="", REDIS_URL="")
        servers.send_signal(signal.SIGINT)
        assert servers.wait(PATIENCE) == 0


@pytest.mark.slow
def test_the_application_of_the_quickstart_adds_a_channel_with_its_task(application, db):
    engine = application("quickstart")
    from myapp.channels import add_channel

    with Session(engine) as session, session.begin():
        add_channel(session, "mail.example.org")
    [task] = ticker.list_tasks(db)
    assert (task.owner, task.function, task.kwargs) == ("mail_channels:1", "mail.fetch", {"host": "mail.example.org"})
    db.execute("DELETE FROM mail_channels")
    assert ticker.list_tasks(db) == []


def test_the_procfile_of_the_quickstart_names_the_module_with_the_function():
    [worker] = re.findall(r"^worker: ticker worker --tasks (\S+) polling$", text("quickstart"), flags=re.MULTILINE)
    assert "@task(" in shown(DOCS / "quickstart.md")[f"{worker.replace('.', '/')}.py"]


# ------------------------------------------------------------------------------------------------------------ guides


@pytest.mark.slow
def test_the_tests_of_the_guide_pass(tmp_path):
    write(tmp_path, **{"myapp/__init__.py": "", **shown(DOCS / "guides/test-your-function.md")})
    printed = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider")
    assert "3 passed" in printed


@pytest.mark.slow
def test_mailboxes_that_exist_get_the_tasks_that_new_ones_get(application, db):
    engine = application("guides/first-week", **{"myapp/models.py": shown(DOCS / "quickstart.md")["myapp/models.py"]})
    from myapp.channels import add_channel
    from myapp.models import MailChannel
    from myapp.tasks import give_tasks

    with Session(engine) as session, session.begin():
        add_channel(session, "new.example.org")
        session.add(MailChannel(host="old.example.org"))
        session.flush()
        give_tasks(session)
    new, old = ticker.list_tasks(db)
    assert (old.every_ms, old.spread, old.limits) == (new.every_ms, new.spread, ("old.example.org",))
    assert old.kwargs == {"url": "https://old.example.org/messages"}


@pytest.mark.slow
def test_the_mailboxes_of_the_first_week_are_polled_in_a_group_and_slow_down(application, db, environ, tmp_path):
    """As a worker sees the page, with httpx2 in place of httpx, and a provider that answers 429 to one of them."""
    files = shown(DOCS / "quickstart.md") | {"httpx.py": "from httpx2 import *\n"}
    engine = application(
        "guides/first-week", **{"myapp/models.py": files["myapp/models.py"], "httpx.py": files["httpx.py"]}
    )
    procfile = dict(re.findall(r"^(release|ticker|worker): (.+)$", text("guides/first-week"), flags=re.MULTILINE))
    from myapp.channels import add_channel
    from myapp.hooks import new_mail

    for step in procfile["release"].split(" && "):
        run(tmp_path, *step.split())
    assert [(limit.key, limit.concurrency) for limit in ticker.list_limits(db)] == [("mail.example.org", 50)]
    with Session(engine) as session, session.begin(), provider() as url:
        for host in ("mail.example.org", "busy.example.org"):
            channel = add_channel(session, host)
            session.flush()
            new_mail(session, channel)
        session.commit()
        # an hour away: the phase of a task may be due in these seconds, and its own run would be dropped as too early
        local = "next_run = now() + interval '1 hour', kwargs = jsonb_build_object('url', %s || limits[1])"
        db.execute(f"UPDATE ticker.tasks SET {local}", [url])
        run(tmp_path, "ticker", "tick")
        run(tmp_path, *procfile["worker"].split(), "--burst")
    assert {one.outcome: one.result for one in ticker.list_runs(db)} == {"succeeded": 2, "slowed_down": None}


@contextmanager
def provider() -> Iterator[str]:
    """Serves two messages, and 429 for the busy host."""

    class Messages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_busy = "busy" in self.path
            body = b"" if is_busy else b'["one", "two"]'
            self.send_response(429 if is_busy else 200)
            self.send_header("Retry-After", "60")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Messages) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
def test_a_renamed_channel_is_named_so_to_people(application, db):
    engine = application("guides/name-owners")
    from myapp.channels import add_channel, rename_channel

    with Session(engine, expire_on_commit=False) as session, session.begin():
        channel = add_channel(session, "Support")
    assert [task.subject for task in ticker.list_tasks(db)] == ["Support"]
    with Session(engine) as session, session.begin():
        rename_channel(session, session.merge(channel), "Support of Acme")
    [task] = ticker.list_tasks(db)
    assert (task.subject, task.owner) == ("Support of Acme", "mail_channels:1")


@pytest.mark.slow
def test_the_guide_to_workers_shows_what_the_command_prints(environ, db):
    functions = {
        "mail.fetch": {"starts_per_minute": 200, "concurrency": 1, "mean_ms": 1500, "p95_ms": 30_000},
        "feeds.pull": {"starts_per_minute": 3000, "concurrency": 20, "mean_ms": 400, "p95_ms": 900},
    }
    a_need(db, "polling", 5.2, 9, json.dumps(functions))
    built = {"report.build": {"starts_per_minute": 0.5, "concurrency": 1, "mean_ms": 36_000, "p95_ms": 51_000}}
    a_need(db, "reports", 0.3, 1, json.dumps(built))
    ticked(db, crews=[[["polling"], 4, 4], [["reports"], 1, 0]])
    shown = text("guides/how-many-workers").partition("$ ticker workers\n")[2].partition("```")[0]
    assert command("workers")[0] == shown
    assert command("workers", "--queue", "polling")[0] == "9\n"


def test_the_figures_for_mailboxes_are_those_of_many_tasks():
    source = text("operations/scale")
    for figure in (
        "36 us per task, and 54 us",
        "75 and 75 MB",
        "600 bytes",
        "For 100,000 mailboxes, this took 10 s",
        "`register` in a loop took 5.3 s",
        "350 bytes, and 250",
    ):
        assert figure in " ".join(source.split()), figure


def test_every_alert_has_a_line_that_says_what_to_do():
    groups = yaml.safe_load((DOCS / "operations/alerts.yml").read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    told = [set(re.findall(r"`(Ticker\w+)`", row[0])) for row in rows("guides/alerts")]
    assert set().union(*told) == alerts
    critical = {
        rule["alert"] for group in groups for rule in group["rules"] if rule["labels"]["severity"] == "critical"
    }
    assert set().union(*[names for names in told if names][:3]) == critical


# --------------------------------------------------------------------------------------------------------- reference


@pytest.mark.parametrize("package", [ticker, wrappers], ids=["ticker", "wrappers"])
def test_the_reference_of_python_has_every_public_name(package):
    page, name = text("reference/python"), package.__name__
    shown = set(re.findall(rf"^### `{name}\.(\w+)`$", page, flags=re.MULTILINE))
    assert shown <= {*package.__all__}
    assert all(f"`{public}`" in page or f"`{name}.{public}`" in page for public in {*package.__all__} - shown)


# --------------------------------------------------------------------------------------------------------- internals


def test_the_architecture_names_every_room():
    named = {room for row in rows("internals/architecture") for room in re.findall(r"`(\w+)`", row[0])}
    every = set(chain(*rooms.layers("ticker"), *rooms.layers("wrappers")))
    assert named - {"ticker", "wrappers"} == every - {"__main__"}


@pytest.mark.parametrize("page", sorted((DOCS / "internals").glob("*.md")), ids=lambda page: page.stem)
def test_files_that_internals_name_are_there(page):
    for path in re.findall(r"`((?:ticker|wrappers|tests)/[\w./]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


@pytest.mark.slow
def test_what_a_newcomer_writes_registers_the_same_schedules(tmp_path, environ, db):
    write(tmp_path, **shown(DOCS / "guides" / "coming-from.md"))
    run(tmp_path, sys.executable, "coming_from.py")
    kinds = {(task.name, task.owner): (str(task.kind), task.every_ms, task.zone) for task in ticker.list_tasks(db)}
    assert kinds == {
        ("mail.fetch", "mail_channels:5"): ("interval", 60_000, "UTC"),
        ("reports.daily", ""): ("cron", 0, "Europe/Berlin"),
        ("last report", ""): ("once", 0, "UTC"),
    }
