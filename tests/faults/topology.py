"""`--topology ha`: PostgreSQL as a primary and a standby, Redis as a primary and a replica with three sentinels.

Each pair stands where the one server of the plain topology does: `kill`, `start`, `stop`, `pid` and `url` are those of
its primary of now. A host reaches each server through a proxy of its own, and what a fault does to the way to
PostgreSQL, or to Redis, it does to each of them.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import psycopg
from redis.exceptions import RedisError

from tests import sentinels, standbys
from tests.faults.address import Kind
from tests.faults.proxy import Proxy
from tests.standbys import Member
from ticker.errors import ConfigurationError, TickerError

DOWN_AFTER = 2000  # ms without an answer, on a machine that is full
SETTLED_WITHIN = 30.0  # seconds; sentinels demote a server that comes back as a second primary after 8


class NotSettled(ConfigurationError):
    """The servers of a pair did not come to be one primary and one that follows it."""


def patiently(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SETTLED_WITHIN
    while not _holds(condition):
        if time.monotonic() > end:
            raise NotSettled(f"after {SETTLED_WITHIN:g} s there is not {what}")
        time.sleep(0.05)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (RedisError, TickerError, psycopg.Error):
        return False


class Way:
    """The proxies of a host to the servers of one kind."""

    def __init__(self, kind: Kind, proxies: Sequence[Proxy]) -> None:
        self.kind = kind
        self.proxies = proxies

    def __getattr__(self, name: str) -> Callable[..., None]:
        def each(*args: Any, **kwargs: Any) -> None:
            for proxy in self.proxies:
                getattr(proxy, name)(*args, **kwargs)

        return each


class Databases:
    """PostgreSQL. Its commits wait for the standby, unless a fault says otherwise."""

    def __init__(self, primary: Member, standby: Member) -> None:
        self.members = (primary, standby)
        self.primary, self.standby = primary, standby
        self.promoted: Callable[[], None] = lambda: None
        self.url = standbys.both(primary.folder, standby.folder)

    def way(self, folder: Path, opened: ExitStack, secret: str) -> tuple[Way, str]:
        """The proxies of a host, and the URL of its processes."""
        places = [folder / letter for letter in "ab"]
        proxies = []
        for place, member in zip(places, self.members, strict=True):
            place.mkdir(mode=0o755)
            door = Proxy(listen=place / ".s.PGSQL.5432", server=member.folder / ".s.PGSQL.5432", kind="postgres")
            proxies.append(opened.enter_context(door))
        return Way("postgres", proxies), standbys.both(*places).replace("postgres@", f"postgres:{secret}@")

    def start(self) -> None:
        """Both. What a fault could not finish is finished here: a standby that does not follow begins anew."""
        self.primary.start()
        self.synchronous(True)
        if self.standby.running:
            with suppress(NotSettled):
                self.await_in_step()
                return
            self.standby.kill()
        self.standby.follow(self.primary)
        self.await_in_step()

    def kill(self) -> None:
        self.primary.kill()

    def stop(self, mode: Literal["smart", "fast", "immediate"]) -> None:
        self.primary.stop(mode)

    @property
    def pid(self) -> int:
        return self.primary.pid

    def synchronous(self, on: bool) -> None:
        self.primary.set("synchronous_standby_names", "*" if on else "")

    def await_in_step(self) -> None:
        """The standby has replayed all that was written before this call."""
        with self.primary.session() as db:
            written = db.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn >= %s"
            patiently(
                lambda: db.execute(query, written).fetchone() == (1,), "a standby of PostgreSQL that has caught up"
            )

    @contextmanager
    def behind(self) -> Iterator[None]:
        """The standby gets nothing; nobody waits for it."""
        self.synchronous(False)
        with self.standby.session() as db:
            [told] = db.execute("SHOW primary_conninfo").fetchone() or ("",)
        self.standby.set("primary_conninfo", "")
        try:
            yield
        finally:
            if self.primary.running:
                self.standby.set("primary_conninfo", str(told).replace("'", "''"))

    def last_change(self) -> float:
        """When the last transaction that the standby knows was committed, by the monotonic clock."""
        patiently(self._has_replayed, "a standby that has replayed all it got")
        with self.standby.session() as db:
            [clock] = db.execute("SELECT extract(epoch FROM pg_last_xact_replay_timestamp())").fetchone() or (None,)
        if clock is None:
            raise NotSettled("the standby has replayed no transaction")
        return time.monotonic() - (time.time() - float(str(clock)))

    def _has_replayed(self) -> bool:
        with self.standby.session() as db:
            query = "SELECT pg_last_wal_receive_lsn() IS NULL OR pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()"
            return db.execute(query).fetchone() == (True,)

    def promote(self) -> None:
        """The standby takes the place of a primary that is gone; nobody follows it yet."""
        self.standby.set("synchronous_standby_names", "")
        self.standby.promote()
        self.promoted()
        self.primary, self.standby = self.standby, self.primary

    def rejoin(self, *, rewind: bool) -> None:
        """The old primary follows the new one."""
        try:
            self.standby.follow(self.primary, rewind=rewind)
        except ConfigurationError:
            if not rewind:
                raise
            self.standby.follow(self.primary)
        self.await_in_step()
        self.synchronous(True)

    @contextmanager
    def old_primary(self, *options: str, port: int = 5432) -> Iterator[str]:
        """The one whose place was taken, as it was when it went."""
        with self.standby.again(f"--port={port}", *options):
            yield f"postgresql://postgres@/postgres?host={self.standby.folder}&port={port}"


class Redises:
    """Redis. Whichever of its faults lasts longer than DOWN_AFTER may end with a promotion."""

    def __init__(self, watched: sentinels.Watched) -> None:
        self.watched = watched
        self.url = watched.url

    def way(self, record: Path, opened: ExitStack, secret: str) -> tuple[Way, str]:
        """The proxies of a host, and the URL of its processes. Sentinels name the ports of this host's proxies."""
        ports, names = self.watched.ports, {}
        data = [self._door(opened, ports[name], record=record) for name in sentinels.DATA]
        for name, proxy in zip(sentinels.DATA, data, strict=True):
            names[ports[name]] = proxy.addresses[0].port
        doors = [self._door(opened, ports[name], names=names) for name in sentinels.SENTINELS]
        url = sentinels.url(door.addresses[0].port for door in doors).replace("://", f"://default:{secret}@")
        return Way("redis", [*data, *doors]), url

    def _door(
        self, opened: ExitStack, port: int, *, record: Path | None = None, names: Mapping[int, int] = {}
    ) -> Proxy:
        door = Proxy(listen="tcp:127.0.0.1:0", server=f"tcp:127.0.0.1:{port}", kind="redis", record=record, names=names)
        return opened.enter_context(door)

    @property
    def primary(self) -> str:
        """The name of the server that most sentinels name; one that is down says nothing."""
        if not (named := self._named()):
            raise NotSettled("no sentinel names a primary of Redis")
        port = max(named, key=named.count)
        return next(name for name in sentinels.DATA if self.watched.ports[name] == port)

    def _named(self) -> list[int]:
        named = []
        for sentinel in sentinels.SENTINELS:
            with suppress(RedisError):
                named.append(self.watched.named_by(sentinel))
        return named

    @property
    def replica(self) -> str:
        return next(name for name in sentinels.DATA if name != self.primary)

    def kill(self) -> None:
        self.watched.kill(self.primary)

    @property
    def pid(self) -> int:
        return self.watched.nodes[self.primary].pid

    def start(self) -> None:
        """A server that is down comes back as a replica, once the other one has taken its place."""
        down = [name for name in sentinels.DATA if not self.watched.nodes[name].running]
        if down:
            patiently(lambda: self.primary not in down, "a promotion")
            self.watched.follow(down[0], self.watched.ports[self.primary])
        self.await_in_step()

    def await_in_step(self) -> None:
        """All sentinels name the same primary, and its replica has all that was written before this call."""
        patiently(lambda: len({*self._named()}) == 1 and self.lacks() == 0, "a replica of Redis that has caught up")

    def lacks(self) -> int:
        """Bytes of commands that the replica has not got, of those that its primary had when it was asked."""
        own, told = (self.watched.client(name).info("replication") for name in (self.primary, self.replica))
        if (
            own["role"] != "master"
            or told["role"] != "slave"
            or told["master_port"] != self.watched.ports[self.primary]
        ):
            raise NotSettled(f"the primary is a {own['role']}, its replica a {told['role']}")
        return max(0, int(own["master_repl_offset"]) - int(told["slave_repl_offset"]))


@contextmanager
def databases() -> Iterator[Databases]:
    with closing(Member()) as primary, closing(Member()) as standby:
        primary.create()
        primary.start()
        primary.set("wal_keep_size", "256MB")  # in a file, where the recovery that pg_rewind starts reads it
        standby.follow(primary)
        pair = Databases(primary, standby)
        pair.start()
        yield pair


@contextmanager
def redises() -> Iterator[Redises]:
    with sentinels.watched(os.environ, down_after=DOWN_AFTER) as started:
        yield Redises(started)
