"""PgBouncer (`apt-get install pgbouncer`) in front of a test server, as a supervisor would run it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.running import until
from ticker.settings import psycopg_url

SOCKET = 6432  # the number in the name of its socket; nothing listens on a port
PLACE = {"host": "localhost", "port": 5432, "user": "postgres"}
CONFIGURATION = """[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
listen_port = {socket}
unix_socket_dir = {folder}
pidfile = {folder}/pid
logfile = {folder}/log
auth_type = any
admin_users = admin
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 1000
server_login_retry = 1
{more}
"""


def is_installed() -> bool:
    return shutil.which("pgbouncer") is not None


@contextmanager
def pooler(database_url: str, *, mode: str = "transaction", size: int = 10, more: str = "") -> Iterator[Path]:
    """Runs one in front of the server of `database_url`; yields the folder of its socket."""
    server = conninfo_to_dict(psycopg_url(database_url))
    with tempfile.TemporaryDirectory(prefix="ticker-pooler-") as name:
        folder = Path(name)
        place = {name: server.get(name, default) for name, default in PLACE.items()}
        configuration = folder / "ini"
        configuration.write_text(
            CONFIGURATION.format(**place, socket=SOCKET, folder=folder, mode=mode, size=size, more=more)
        )
        own = [] if os.geteuid() else ["-u", "nobody"]  # it refuses to work as root
        if own:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        process = subprocess.Popen(["pgbouncer", "-q", *own, configuration], stdin=subprocess.DEVNULL)
        try:
            until(lambda: answers(folder), "PgBouncer answers")
            yield folder
        finally:
            process.kill()
            process.wait()


def through(folder: Path, database_url: str) -> str:
    """The database of `database_url`, by way of the pooler."""
    name = conninfo_to_dict(psycopg_url(database_url)).get("dbname", "postgres")
    return f"postgresql://postgres@/{name}?{urlencode({'host': folder, 'port': SOCKET}, safe='/')}"


def answers(folder: Path) -> bool:
    try:
        place = {"host": str(folder), "port": SOCKET, "user": "admin", "dbname": "pgbouncer"}
        with psycopg.connect(**place, autocommit=True) as console:
            return bool(console.execute("SHOW VERSION").fetchall())
    except psycopg.Error:
        return False
