"""A POP3 server (RFC 1939) for the demo's mailboxes, and its log of retrievals.

    python -m ticker.demo.pop3 --root DIR --log FILE [--port 0] [--port-file FILE]

serves one Maildir per user below DIR, on 127.0.0.1, until SIGTERM. Where it differs from other mail servers:

- No lock on a mailbox: a poll must not be turned away because one that is being killed still has a session.
- A mailbox whose folder has a file `.delay` with a number of seconds is slow: each RETR (the file is read
  each time) writes half of its answer, waits that long, and writes the rest. It stops if the client dies.
- Commands must not be sent ahead (PIPELINING is not announced): the log takes a command that follows a RETR
  as the sign that the client has the message.
"""

import argparse
import enum
import secrets
import select
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ticker.demo.mailbox import (
    PASSWORD,
    USER,
    Delivery,
    Mailbox,
    Maildrop,
    Refused,
    append_line,
    create_mailbox,
    deliver,
    open_lines,
    open_mailbox,
    read_deliveries,
    read_lines,
)

__all__ = [
    "Pop3Server",
    "Outcome",
    "Retrieval",
    "read_log",
    # what stands on both sides of the server, from ticker.demo.mailbox
    "create_mailbox",
    "deliver",
    "Delivery",
    "read_deliveries",
    "open_mailbox",
    "Mailbox",
]

IDLE_TIMEOUT = 600.0  # seconds; RFC 1939 asks for ten minutes or more
MAX_LINE = 255  # octets, RFC 2449; a longer command gets -ERR
MAX_GARBAGE = 65_536  # octets without a line end, after which the connection is closed
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
CAPABILITIES = [b"USER", b"TOP", b"UIDL", b"IMPLEMENTATION ticker-demo"]


class Outcome(enum.StrEnum):
    """What became of a RETR, as far as a server can know. It has a line at its begin, one at its end."""

    OPEN = "open"  # no end in the log: in progress, or the server itself was killed
    COMPLETE = "complete"  # all written, and the client sent another command after it
    UNCONFIRMED = "unconfirmed"  # all written, no word since: the client may have used the message, or not
    CUT = "cut"  # ended before the last octet was written: the client cannot have the whole message


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One RETR. Times are readings of `time.monotonic()`, which the processes of one boot share."""

    user: str
    uid: int
    began_at: float
    ended_at: float | None
    outcome: Outcome

    @property
    def complete(self) -> bool:
        return self.outcome is Outcome.COMPLETE


def read_log(path: Path) -> list[Retrieval]:
    """The retrievals in a server's log, in the order in which they began; also while the server runs."""
    retrievals: dict[str, Retrieval] = {}
    for line in read_lines(path):
        if line["event"] == "begin":
            retrieval = Retrieval(line["user"], line["uid"], line["at"], None, Outcome.OPEN)
        else:
            begun = retrievals[line["id"]]
            retrieval = replace(begun, ended_at=line["at"], outcome=Outcome(line["event"]))
        retrievals[line["id"]] = retrieval
    return list(retrievals.values())


class Session(socketserver.StreamRequestHandler):
    """One client, in a thread of its own."""

    server: "Pop3Server"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.idle_timeout)
        self.user = ""
        self.drop: Maildrop | None = None
        self.retrieval: dict[str, object] | None = None  # begun, and its end is not in the log yet
        self.written = False
        self.over = False

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):  # how a client leaves is its own affair
            self.say("+OK the demo's mailboxes")
            while not self.over:
                try:
                    self.obey(self.next_command())
                except Refused as refusal:
                    self.say(f"-ERR {refusal}")

    def finish(self) -> None:
        self.end_retrieval(Outcome.UNCONFIRMED if self.written else Outcome.CUT)
        super().finish()

    def next_command(self) -> str:
        line = self.rfile.readline(MAX_GARBAGE)
        if not line.endswith(b"\n"):
            raise ConnectionAbortedError("the client left, or sends no line ends")
        self.end_retrieval(Outcome.COMPLETE)
        if len(line) > MAX_LINE:
            raise Refused(f"a line has at most {MAX_LINE} octets")
        return line.decode("ascii", "replace").rstrip("\r\n")

    def obey(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        match [verb.upper(), *rest.split()]:
            case ["QUIT"]:
                self.quit()
            case ["CAPA"]:
                self.say("+OK", CAPABILITIES)
            case words if self.drop is not None:
                self.transact(self.drop, words)
            case ["USER", user]:
                self.user = user
                self.say("+OK now the password")
            case ["PASS", *_]:
                self.log_in(password=rest)
            case _:
                raise Refused("log in with USER and PASS first")

    def log_in(self, password: str) -> None:
        if not USER.fullmatch(self.user) or password != self.server.password:
            raise Refused("the user or the password is wrong")
        self.drop = Maildrop(self.server.root / self.user)
        self.say(f"+OK {len(self.drop.numbers())} messages")

    def transact(self, drop: Maildrop, words: list[str]) -> None:
        match words:
            case ["STAT"]:
                self.say(f"+OK {len(drop.numbers())} {sum(map(drop.size, drop.numbers()))}")
            case ["LIST"]:
                self.say("+OK", [f"{number} {drop.size(number)}".encode() for number in drop.numbers()])
            case ["LIST", text]:
                self.say(f"+OK {drop.number(text)} {drop.size(drop.number(text))}")
            case ["UIDL"]:
                self.say("+OK", [f"{number} {drop.uid(number)}".encode() for number in drop.numbers()])
            case ["UIDL", text]:
                self.say(f"+OK {drop.number(text)} {drop.uid(drop.number(text))}")
            case ["RETR", text]:
                self.retrieve(drop, drop.number(text))
            case ["TOP", text, count] if count.isdecimal():
                self.say("+OK", top(drop.lines(drop.number(text)), int(count)))
            case ["DELE", text]:
                drop.marked.add(drop.number(text))
                self.say("+OK it goes at QUIT")
            case ["RSET"]:
                drop.marked.clear()
                self.say("+OK")
            case ["NOOP"]:
                self.say("+OK")
            case _:
                raise Refused("there is no such command, or not with these arguments")

    def retrieve(self, drop: Maildrop, number: int) -> None:
        message, delay = answer("+OK", drop.lines(number)), drop.delay()
        self.retrieval = {"id": secrets.token_hex(6), "user": self.user, "uid": int(drop.uid(number))}
        self.written = False
        append_line(self.server.log, "begin", **self.retrieval)
        half = len(message) // 2
        self.connection.sendall(message[:half])
        wait_unless_gone(self.connection, delay)
        self.connection.sendall(message[half:])
        self.written = True

    def end_retrieval(self, outcome: Outcome) -> None:
        if self.retrieval is not None:
            append_line(self.server.log, outcome, **self.retrieval)
            self.retrieval = None

    def quit(self) -> None:
        if self.drop is not None:
            self.drop.delete_marked()
        self.over = True
        self.say("+OK bye")

    def say(self, status: str, lines: Iterable[bytes] | None = None) -> None:
        self.connection.sendall(answer(status, lines))


def answer(status: str, lines: Iterable[bytes] | None = None) -> bytes:
    """What goes over the wire: a line, or a line and a dot-stuffed text of many."""
    if lines is None:
        return f"{status}\r\n".encode()
    stuffed = (b"." + line if line.startswith(b".") else line for line in lines)
    return b"\r\n".join([status.encode(), *stuffed, b".", b""])


def top(lines: list[bytes], count: int) -> list[bytes]:
    """The header, the empty line below it, and so many lines of the body."""
    header = lines.index(b"") + 1 if b"" in lines else len(lines)
    return lines[: header + count]


def wait_unless_gone(connection: socket.socket, seconds: float) -> None:
    """Returns after so many seconds; raises ConnectionResetError as soon as the other side closes or dies."""
    hangup = select.poll()
    hangup.register(connection, select.POLLRDHUP)
    if hangup.poll(seconds * 1000):
        raise ConnectionResetError("the client left in the middle of a message")


class Pop3Server(socketserver.ThreadingTCPServer):
    """Serves inside its `with` block. Leaving it ends all sessions at once, with nothing deleted."""

    allow_reuse_address = True
    request_queue_size = 128  # by default 5: a burst of polls would wait 1 s for the kernel's second SYN

    def __init__(
        self,
        root: Path,
        log: Path,
        *,
        port: int = 0,
        password: str = PASSWORD,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        super().__init__(("127.0.0.1", port), Session)
        self.port: int = self.socket.getsockname()[1]
        self.root = root
        self.log = open_lines(log)
        self.password = password
        self.idle_timeout = idle_timeout
        self._connections: set[Any] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), name="pop3").start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        for connection in self._connections.copy():
            with suppress(OSError):  # closed in the meantime
                connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, whatever that waits for
        self.server_close()  # waits for the threads
        self.log.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ticker.demo.pop3", description="The demo's POP3 server.")
    parser.add_argument("--root", type=Path, required=True, help="the folder with one Maildir per user")
    parser.add_argument("--log", type=Path, required=True, help="retrievals are appended here as JSON lines")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--port-file", type=Path, help="gets the port once it listens; removed at the end")
    parser.add_argument("--password", default=PASSWORD, help="every user's password")
    options = parser.parse_args()

    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before the first thread, which inherits the mask
    with Pop3Server(options.root, options.log, port=options.port, password=options.password) as server:
        announce(server.port, options.port_file)
        signal.sigwait(STOP_SIGNALS)
    if options.port_file is not None:
        options.port_file.unlink(missing_ok=True)
    return 0


def announce(port: int, port_file: Path | None) -> None:
    if port_file is not None:
        unfinished = port_file.with_name(f"{port_file.name}.unfinished")
        unfinished.write_text(f"{port}\n")
        unfinished.replace(port_file)
    sys.stdout.write(f"pop3: listening on 127.0.0.1:{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
