"""A PostgreSQL with a hot standby, for tests of a failover."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from tests.running import until
from ticker import embedded
from ticker.embedded import Postgres
from ticker.embedded.programs import account_of_server, new_folder, postgres_programs

REPLICATION = ("--wal_level=replica", "--max_wal_senders=4", "--hot_standby=on")
LAG = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= pg_current_wal_flush_lsn()"


class Standby(Postgres):
    """Copies its data from a primary, and follows it until it is promoted."""

    def __init__(self, primary: Postgres) -> None:
        account = account_of_server()
        super().__init__(new_folder(account), account, postgres_programs(os.environ), ("--fsync=off", *REPLICATION))
        copy = Path(self._command[0]).with_name("pg_basebackup")
        self._create_command = [str(copy), f"-D{self.folder}/data", "-R", "-Xstream", "-cfast", "-d", primary.url]

    def _is_ready(self) -> bool:
        words = self._state()
        return words[:1] == [str(self._pid)] and words[-1] in ("ready", "standby")

    def promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            assert db.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)


@contextmanager
def with_standby(*, synchronous: bool) -> Iterator[tuple[Postgres, Standby, str]]:
    """Yields the primary, its standby, and the URL that leads to the one that takes writes."""
    with embedded.postgres(os.environ, *REPLICATION) as primary, closing(Standby(primary)) as standby:
        standby.create()
        standby.start()
        with psycopg.connect(primary.url, autocommit=True) as db:
            if synchronous:
                db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                db.execute("SELECT pg_reload_conf()")
            until(lambda: db.execute(LAG).fetchone() == (1,), "a standby that has caught up")
        hosts = f"host={primary.folder},{standby.folder}&port=5432,5432"
        yield primary, standby, f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"
