"""A Valkey with a replica and three sentinels, all on free ports of this host, for tests of a failover."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.running import free_port, until
from ticker.embedded.programs import valkey_program

SERVICE = "jobs"
DOWN_AFTER = 500  # ms


class Watched:
    """The servers, by name: `a` (the first primary), `b` (its replica), and the sentinels `x`, `y` and `z`."""

    def __init__(self, folder: Path, block: ExitStack, environ: Mapping[str, str], *settings: str) -> None:
        self._folder, self._block, self._program, self._settings = folder, block, valkey_program(environ), settings
        self.ports: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self.server("a")
        self.server("b", f"replicaof 127.0.0.1 {self.ports['a']}")
        until(lambda: self.client("b").info("replication")["master_link_status"] == "up", "a replica")
        for name in "xyz":
            self.server(
                name,
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.ports['a']} 2",
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
                f"sentinel failover-timeout {SERVICE} 5000",
                sentinel=True,
            )
        until(lambda: all(self.knows(name) for name in "xyz"), "sentinels that know each other and the replica")

    def server(self, name: str, *lines: str, sentinel: bool = False) -> None:
        port = self.ports[name] = self.ports.get(name) or free_port()
        own = () if sentinel else ("save ''", "appendonly no", "repl-diskless-sync-delay 0", *self._settings)
        file = self._folder / f"{name}.conf"
        file.write_text("\n".join((f"port {port}", "bind 127.0.0.1", f"dir {self._folder}", *own, *lines)) + "\n")
        command = [str(self._program), str(file), *["--sentinel"] * sentinel]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.processes[name] = process
        self._block.callback(process.wait)
        self._block.callback(process.kill)
        until(lambda: answers(self.client(name)), f"an answer of {name}")

    def client(self, name: str) -> Redis:
        return Redis(port=self.ports[name], socket_timeout=2)

    def knows(self, sentinel: str) -> bool:
        [state] = self.client(sentinel).sentinel_masters().values()
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    @property
    def primary(self) -> int:
        """The port that the first sentinel names."""
        state: Any = self.client("x").sentinel_masters()[SERVICE]
        return int(state["port"])

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{self.ports[name]}" for name in "xyz")
        return f"redis+sentinel://{hosts}/{SERVICE}/1"


@contextmanager
def watched(folder: Path, environ: Mapping[str, str], *settings: str) -> Iterator[Watched]:
    with ExitStack() as block:
        servers = Watched(folder, block, environ, *settings)
        servers.start()
        yield servers


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False
