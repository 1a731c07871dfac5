"""Hosts of their own on one machine: a network namespace for the servers, and one for each host of processes.

Needs root, and `ip` of iproute2. The servers' namespace is the one that the harness itself enters, so that its proxies
listen there; each host has one cable to it, which can be pulled out.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
NAMESPACES = Path("/var/run/netns")


@dataclass(frozen=True)
class Cable:
    """The way from a host to the servers: where proxies listen for it, and how its processes are started."""

    address: str
    prefix: tuple[str, ...]
    device: str

    def pull(self) -> None:
        ip("link", "set", self.device, "down")

    def plug(self) -> None:
        ip("link", "set", self.device, "up")


def possible() -> bool:
    """Whether this user may make network namespaces here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        ip("netns", "del", name)
    return made


@contextmanager
def network(names: Sequence[str]) -> Iterator[dict[str, Cable]]:
    """The namespaces; this thread, and those that it starts, are in that of the servers while the block lasts."""
    servers = f"servers-{os.getpid()}"
    own = {name: f"{name}-{os.getpid()}" for name in names}
    for namespace in (servers, *own.values()):
        ip("netns", "add", namespace)
    try:
        with entered(servers):
            ip("link", "set", "lo", "up")
            yield {name: _cable(number, namespace) for number, (name, namespace) in enumerate(own.items())}
    finally:
        for namespace in (servers, *own.values()):
            ip("netns", "del", namespace)


def _cable(number: int, namespace: str) -> Cable:
    device, here, there = f"cable{number}", f"10.77.{number}.1", f"10.77.{number}.2"
    ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("address", "add", f"{here}/30", "dev", device)
    ip("link", "set", device, "up")
    for command in (("address", "add", f"{there}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
        ip("-n", namespace, *command)
    return Cable(here, ("ip", "netns", "exec", namespace), device)


@contextmanager
def entered(namespace: str) -> Iterator[None]:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(os.open(NAMESPACES / namespace, os.O_RDONLY))
        yield
    finally:
        _enter(before)


def _enter(file: int) -> None:
    try:
        if ctypes.CDLL(None, use_errno=True).setns(file, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "this thread cannot enter a network namespace")
    finally:
        os.close(file)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
