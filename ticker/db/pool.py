"""Keeps a pool of connections, each used by one thread at a time."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from ticker import clock
from ticker.db.connections import Connection, connect, translated


class Pool:
    """A pool of connections, each of which is opened when it is first needed."""

    def __init__(self, url: str, *, name: str = "ticker") -> None:
        self._url = url
        self._name = name
        self._spare: list[Connection] = []
        self._since: dict[Connection, float] = {}

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lends a connection. Closes it if it broke or was interrupted. Raises the errors that `translated` raises."""
        with translated():
            connection = self._taken()
            self._since[connection] = clock.monotonic()
            try:
                yield connection
            except (psycopg.Error, KeyboardInterrupt):
                connection.close()
                raise
            finally:
                del self._since[connection]
                if not connection.closed:
                    self._spare.append(connection)

    def waited(self) -> float:
        """Returns the seconds for which the longest-used connection has been in use; 0.0 if none is."""
        return max((clock.monotonic() - since for since in [*self._since.values()]), default=0.0)

    def interrupt(self) -> None:
        """Ends all waits for a hanging server, as if the network had failed. It is called from another thread."""
        for connection in [*self._since]:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        while self._spare:
            self._spare.pop().close()

    def _taken(self) -> Connection:
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                if (connection := self._spare.pop()).is_alive:  # unless the server has ended it
                    return connection
                connection.close()
        return connect(self._url, name=self._name)
