"""Finds the primary that sentinels watch: `redis+sentinel://user:password@host1:26379,host2:26379/service/0`.

Each new connection asks the sentinels, in the order of the URL, beginning with the one that answered last. After a
failover, connections to the old primary break or are refused writes, and the next ones lead to the new primary.
"""

from collections.abc import Iterator
from typing import Any, Self, cast

from redis import ConnectionPool, Redis, SSLConnection
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection

SCHEME = "+sentinel"
"""How the schemes of our URLs end. What stands before is that of the primary; with rediss, the sentinels use TLS, too, unless
`sentinel_ssl` differs.
"""
PORT = 26379
ANSWERS_WITHIN = 1.0  # seconds: row locks are held meanwhile
OWN = ("username", "password", "ssl")
"""The options that begin with `sentinel_` in a URL. User and password before the hosts are those of the primary."""


class Whole(SentinelManagedConnection):
    """Closes the connection if reading an answer is interrupted, as redis-py's other connections do.

    Otherwise the next call would read the rest of that answer: a worker is interrupted by signals.
    """

    def read_response(self, *args: Any, disconnect_on_error: bool | None = True, **options: Any) -> Any:
        return super().read_response(*args, disconnect_on_error=disconnect_on_error, **options)


class WholeTLS(Whole, SSLConnection):
    """The same, with TLS."""


class Client(Redis):
    """A client of a Redis, or of the primary that sentinels watch. RQ's worker makes it from its URL."""

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        scheme, _, rest = url.partition("://")
        if not scheme.endswith(SCHEME):
            return cast(Self, super().from_url(url, **options))
        address, question, query = rest.partition("?")
        user, hosts, service, database = parts(address)
        plain = ConnectionPool.from_url(
            f"{scheme.removesuffix(SCHEME)}://{user}localhost/{database}{question}{query}", **options
        )
        given = {name: value for name, value in plain.connection_kwargs.items() if name not in ("host", "port")}
        own = {name: given.pop(f"sentinel_{name}") for name in OWN if f"sentinel_{name}" in given}
        tls: dict[str, Any] = {name: value for name, value in given.items() if name.startswith("ssl_")}
        has_tls = issubclass(plain.connection_class, SSLConnection)
        given["connection_class"] = WholeTLS if has_tls else Whole
        waits = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), ANSWERS_WITHIN)
        once = Retry(NoBackoff(), 0)  # the next one is asked instead; by default, redis-py connects eleven times
        own |= {**waits, **tls, "ssl": own.get("ssl", has_tls) not in (False, "no"), "retry": once}
        sentinels = cast(Any, Sentinel)([*addresses(hosts)], sentinel_kwargs=own)
        return cast(Self, sentinels.master_for(service, redis_class=cls, **given))


def parts(address: str) -> tuple[str, str, str, str]:
    """Splits the text between :// and ? into the user with its @, the hosts, the service and the database."""
    place, _, path = address.partition("/")
    user, at, hosts = place.rpartition("@")
    service, _, database = path.partition("/")
    return user + at, hosts, service, database or "0"


def addresses(hosts: str) -> Iterator[tuple[str, int]]:
    """Yields each host with its port. An IPv6 address is written in brackets. Raises ValueError."""
    for one in hosts.split(","):
        host, _, port = one.rpartition(":") if ":" in one.rpartition("]")[2] else (one, "", "")
        yield host.strip("[]"), int(port or PORT)
