"""A Valkey with a replica and three sentinels, all on free ports of this host, for tests of a failover."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.running import free_port, until
from ticker.embedded import Valkey
from ticker.embedded.programs import new_folder, valkey_program

SERVICE = "jobs"
DOWN_AFTER = 500  # ms
DATA, SENTINELS = "ab", "xyz"


class Node(Valkey):
    """A server or a sentinel, at a port of this host. A sentinel keeps what it knows in its file."""

    def __init__(self, program: str, *lines: str, sentinel: bool) -> None:
        super().__init__(new_folder(None), program, ())
        self.port = free_port()
        self._file = self.folder / "conf"
        self._command = [program, str(self._file), *["--sentinel"] * sentinel]
        self.configure(*lines)

    def configure(self, *lines: str) -> None:
        own = (f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}")
        self._file.write_text("\n".join((*own, *lines)) + "\n")

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=2)

    def _is_ready(self) -> bool:
        return answers(self.client())


class Watched:
    """The servers, by name: `a` (the first primary), `b` (its replica), and the sentinels `x`, `y` and `z`."""

    def __init__(self, block: ExitStack, environ: Mapping[str, str], *settings: str, down_after: int) -> None:
        self._block, self._program, self._down_after = block, valkey_program(environ), down_after
        self._settings = ("save ''", "appendonly no", "repl-diskless-sync-delay 0", *settings)
        self.nodes: dict[str, Node] = {}

    def start(self) -> None:
        self._node("a", *self._settings)
        self._node("b", *self._settings, f"replicaof 127.0.0.1 {self.nodes['a'].port}")
        until(lambda: self.client("b").info("replication")["master_link_status"] == "up", "a replica")
        for name in SENTINELS:
            self._node(
                name,
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.nodes['a'].port} 2",
                f"sentinel down-after-milliseconds {SERVICE} {self._down_after}",
                f"sentinel failover-timeout {SERVICE} 5000",
            )
        until(lambda: all(self.knows(name) for name in SENTINELS), "sentinels that know each other and the replica")

    def _node(self, name: str, *lines: str) -> None:
        node = Node(self._program, *lines, sentinel=name in SENTINELS)
        self.nodes[name] = self._block.enter_context(closing(node))
        node.start()

    def follow(self, name: str, primary: int) -> None:
        """Starts a server that was killed, empty, as a replica."""
        self.nodes[name].configure(*self._settings, f"replicaof 127.0.0.1 {primary}")
        self.nodes[name].start()

    def client(self, name: str) -> Redis:
        return self.nodes[name].client()

    def knows(self, sentinel: str) -> bool:
        [state] = self.client(sentinel).sentinel_masters().values()
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)

    def kill(self, name: str) -> None:
        self.nodes[name].kill()

    @property
    def ports(self) -> Mapping[str, int]:
        return {name: node.port for name, node in self.nodes.items()}

    @property
    def primary(self) -> int:
        """The port that the first sentinel names."""
        return self.named_by("x")

    def named_by(self, sentinel: str) -> int:
        state: Any = self.client(sentinel).sentinel_masters()[SERVICE]
        return int(state["port"])

    @property
    def url(self) -> str:
        return url(self.nodes[name].port for name in SENTINELS)


def url(ports: Any) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/{SERVICE}/1"


@contextmanager
def watched(environ: Mapping[str, str], *settings: str, down_after: int = DOWN_AFTER) -> Iterator[Watched]:
    with ExitStack() as block:
        servers = Watched(block, environ, *settings, down_after=down_after)
        servers.start()
        yield servers


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False
