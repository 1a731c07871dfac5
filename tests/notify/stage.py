"""What these tests play with: events, and endpoints of every sort that answer as a test wants it."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from email.header import decode_header, make_header
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg

from ticker import clock
from ticker.notify.deliver import Notifier
from ticker.notify.mail import Mail
from ticker.notify.message import Notice

Db = psycopg.Connection[Any]

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY, OLD_KEY = "a key of enough length", "an older key of enough length"
SECRET = "s3cr3t-path"
NOTICE = Notice(
    id=7, what="failed", at=NOW, task_id=3, task_name="mail.fetch", function="mail.fetch", owner_type="app.channels",
    owner_id="7", subject="", words="failed: TimeoutError: slow", failures=3, since=NOW - 3 * MINUTE,
    error="TimeoutError: slow", run_id=9, next_run=NOW + MINUTE, host="here", schema="ticker",
)  # fmt: skip


def happens(db: Db, what: str, *, at: datetime = NOW, task_id: int = 1, name: str = "mail.fetch", **more: Any) -> int:
    """An event, as the ticker or the tables' trigger records it; its id."""
    values = {"what": what, "at": at, "task_id": task_id, "task_name": name, **more}
    [event_id] = db.execute(
        f"INSERT INTO ticker.events ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))}) RETURNING id",
        [*values.values()],
    ).fetchone()
    return event_id


def notices(db: Db, columns: str = "event_id, channel, tries") -> list[Any]:
    return db.execute(f"SELECT {columns} FROM ticker.notices ORDER BY event_id, channel").fetchall()


class Endpoint:
    """A real HTTP server. `answers`: the statuses of the next requests, 204 after them; None: it never answers."""

    def __init__(self) -> None:
        self.answers: list[int | None] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.held, self.let_go = threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/{SECRET}?a=b"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.got.append(({**self.headers, "path": self.path}, body))
                status = endpoint.answers.pop(0) if endpoint.answers else 204
                if status is None:
                    endpoint.held.set()
                    endpoint.let_go.wait(60)
                    return
                self.send_response(status)
                self.send_header("Location", endpoint.url)
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    @property
    def ids(self) -> list[int]:
        return [json.loads(body)["id"] for _, body in self.got]

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()


class Played(Notifier):
    """A notifier whose rounds a test makes by hand, each at a time of its own."""

    def round(self, now: datetime | None = None) -> float:
        with clock.use(lambda: now) if now else nullcontext():
            return super().round()


class Kept:
    """A channel that keeps what it is handed; it raises what `fails` says, as long as there is something."""

    def __init__(self, name: str = "kept", *fails: BaseException) -> None:
        self.name, self.fails, self.got = name, list(fails), []

    def deliver(self, notice: Notice) -> str:
        if self.fails:
            raise self.fails.pop(0)
        self.got.append(notice)
        return "kept"


def hear(wire: socket.socket) -> None:
    """Reads a whole request: who hangs up before resets the line, and with it an answer under way."""
    with wire.makefile("rb") as lines:
        headers = [line.lower() for line in iter(lines.readline, b"\r\n")]
        lines.read(next(int(line.split()[1]) for line in headers if line.startswith(b"content-length:")))


@contextmanager
def talking(say: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does with each connection what `say` does; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    wire, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=said, args=[wire], daemon=True).start()

        def said(wire: socket.socket) -> None:
            with wire, suppress(OSError):
                say(wire)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


class Post:
    """A small SMTP server: what it was told, line by line, and the messages it took."""

    def __init__(self, context: ssl.SSLContext | None = None, refuse: str = "", silent: bool = False) -> None:
        self.lines: list[str] = []
        self.messages: list[str] = []
        self.context, self.refuse, self.silent = context, refuse, silent

    def __call__(self, wire: socket.socket) -> None:
        if self.silent:
            wire.recv(1)
            return
        self._talk(wire, b"220 post\r\n")

    def _talk(self, wire: socket.socket, greeting: bytes = b"") -> None:
        wire.sendall(greeting)
        with wire.makefile("rb") as lines:
            for line in lines:
                words = line.decode().strip()
                self.lines.append(words)
                verb = words.partition(" ")[0].upper()
                if verb == "STARTTLS":
                    wire.sendall(b"220 go\r\n")
                    assert self.context
                    self._talk(self.context.wrap_socket(wire, server_side=True))
                    return
                if verb == "DATA":
                    wire.sendall(b"354 go\r\n")
                    self.messages.append(self._message(lines))
                if verb == "QUIT":
                    return  # it hangs up instead of an answer
                wire.sendall(self._answer(verb, words))

    def _message(self, lines: Any) -> str:
        taken = []
        for line in lines:
            if line == b".\r\n":
                break
            taken.append(line.decode())
        return "".join(taken)

    def _answer(self, verb: str, words: str) -> bytes:
        if self.refuse and words.lower().startswith(self.refuse):
            return f"550 no {words.split()[-1]}\r\n".encode()
        if verb == "EHLO":
            return b"250-post\r\n250-AUTH PLAIN\r\n250 STARTTLS\r\n" if self.context else b"250 post\r\n"
        return b"235 in\r\n" if verb == "AUTH" else b"250 ok\r\n"


def mail(port: int, user: str = "", to: tuple[str, ...] = ("a@example.org",)) -> Mail:
    return Mail(f"smtp://{user}localhost:{port}", "ticker@example.org", to)


def subject_of(message: str) -> str:
    """What a reader of the mail is shown, whose headers are those of every notice."""
    unfolded = re.sub(r"\r\n(?=[ \t])", "", message.partition("\r\n\r\n")[0])
    names, values = zip(*(line.split(":", 1) for line in unfolded.splitlines()), strict=True)
    assert sorted(names) == [
        "Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "MIME-Version", "Message-ID", "Subject", "To",
    ]  # fmt: skip
    return str(make_header(decode_header(values[names.index("Subject")])))
