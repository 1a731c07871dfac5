"""PostgreSQL servers that follow each other, for tests of a failover."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from tests.running import until
from ticker.embedded import Postgres
from ticker.embedded.programs import account_of_server, new_folder, postgres_programs

REPLICATION = (
    "--fsync=off", "--wal_level=replica", "--max_wal_senders=4", "--hot_standby=on",
    "--wal_retrieve_retry_interval=200ms",
)  # fmt: skip
IN_STEP = (
    "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= pg_current_wal_flush_lsn()"
)
APART = 5433
"""The port of a server that comes back for us alone: no URL leads there."""


class Member(Postgres):
    """A primary, or a standby that follows one until it is promoted."""

    def __init__(self) -> None:
        account = account_of_server()
        super().__init__(new_folder(account), account, postgres_programs(os.environ), REPLICATION)
        self._programs = Path(self._command[0]).parent

    def follow(self, primary: Postgres, *, rewind: bool = False) -> None:
        """Starts as the standby of another server: from a fresh copy of it, or by taking back what that one never had."""
        data = f"-D{self.folder}/data"
        if rewind:
            with psycopg.connect(primary.url, autocommit=True) as db:
                db.execute("CHECKPOINT")  # after which pg_rewind sees the new timeline
            self._do(self._programs / "pg_rewind", data, "-R", f"--source-server={primary.url}")
        else:
            self._do("rm", "-rf", data.removeprefix("-D"))
            self._do(self._programs / "pg_basebackup", data, "-R", "-Xstream", "-cfast", "-d", primary.url)
        self.start()

    def promote(self) -> None:
        with self.session() as db:
            assert db.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)

    def set(self, name: str, value: str) -> None:
        with self.session() as db:
            db.execute(f"ALTER SYSTEM SET {name} = '{value}'")  # type: ignore[arg-type]
            db.execute("SELECT pg_reload_conf()")

    def session(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self.url, autocommit=True, application_name="harness", connect_timeout=10)

    @contextmanager
    def again(self, *options: str) -> Iterator[None]:
        """Runs for the length of the block, with further options."""
        command = self._command
        self._command = [*command, *options]
        try:
            self.start()
            yield
        finally:
            self._command = command
            self.stop("immediate")

    def _do(self, *command: str | Path) -> None:
        self._create_command = [*map(str, command)]
        self.create()

    def _is_ready(self) -> bool:
        words = self._state()
        return words[:1] == [str(self._pid)] and words[-1] in ("ready", "standby")


def both(*folders: Path) -> str:
    """The URL that leads to the one that takes writes."""
    hosts, ports = ",".join(map(str, folders)), ",".join("5432" for _ in folders)
    return f"postgresql://postgres@/postgres?host={hosts}&port={ports}&target_session_attrs=read-write"


@contextmanager
def with_standby(*, synchronous: bool) -> Iterator[tuple[Member, Member, str]]:
    """Yields the primary, its standby, and the URL that leads to the one that takes writes."""
    with closing(Member()) as primary, closing(Member()) as standby:
        primary.create()
        primary.start()
        standby.follow(primary)
        if synchronous:
            primary.set("synchronous_standby_names", "*")
        with primary.session() as db:
            until(lambda: db.execute(IN_STEP).fetchone() == (1,), "a standby that has caught up")
        yield primary, standby, both(primary.folder, standby.folder)
