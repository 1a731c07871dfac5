"""Where a proxy listens and where its server is: `unix:PATH` or `tcp:HOST:PORT`, and the URLs that lead there."""

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict

from ticker.settings import psycopg_url

Kind = Literal["redis", "postgres"]
SOCKET_NAME = ".s.PGSQL.5432"  # libpq looks for this in the folder that a URL names as its host


@dataclass(frozen=True)
class Address:
    """A Unix socket's path, or a TCP host and port (0: the system chooses when it is bound)."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"tcp:{self.host}:{self.port}"

    def bound(self) -> tuple[socket.socket, "Address"]:
        """A new socket, bound but not listening, so that connecting to it is refused; and where it really is."""
        if self.path:
            Path(self.path).unlink(missing_ok=True)
            door = socket.socket(socket.AF_UNIX)
            door.bind(self.path)
            return door, self
        door = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((self.host, self.port))
        return door, replace(self, port=door.getsockname()[1])


def parsed(text: str | os.PathLike[str], kind: Kind) -> Address:
    """`tcp:HOST:PORT`, `unix:PATH` or a path alone; for PostgreSQL the path may be the folder of the socket."""
    scheme, _, rest = os.fspath(text).partition(":")
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        return Address(host=host.strip("[]"), port=int(port))
    path = Path(rest if scheme == "unix" else os.fspath(text))
    return Address(path=str(path / SOCKET_NAME if kind == "postgres" and path.is_dir() else path))


def server_of(url: str) -> str:
    """The address of the server that a DATABASE_URL or a REDIS_URL names."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix:{parts.path}"
    if parts.scheme == "redis":
        return f"tcp:{parts.hostname}:{parts.port or 6379}"
    given = conninfo_to_dict(psycopg_url(url))
    host, port = str(given.get("host") or "localhost"), given.get("port") or 5432
    return f"unix:{host}/.s.PGSQL.{port}" if host.startswith("/") else f"tcp:{host}:{port}"


def through(address: Address, url: str) -> str:
    """The same user, password, database and options as `url`, but at `address`."""
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    options = dict(parse_qsl(parts.query))
    if parts.scheme in {"unix", "redis"}:
        database = options.pop("db", parts.path.strip("/") if parts.scheme == "redis" else "") or "0"
        scheme, place = ("unix", address.path) if address.path else ("redis", f"{address.host}:{address.port}")
        return f"{scheme}://{login}{at}{place}?{urlencode(options | {'db': database})}"
    if address.path:
        where = {"host": str(Path(address.path).parent), "port": Path(address.path).suffix.strip(".")}
    else:
        where = {"host": address.host, "port": str(address.port)}
    return f"postgresql://{login}{at}{parts.path}?{urlencode(options | where, safe='/')}"
