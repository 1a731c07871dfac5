"""The demo's mailboxes from both ends: Maildirs that mail is delivered into, the POP3 session that polls one.

Between the two stands the server, `ticker.demo.pop3`, which sees a Maildir through a `Maildrop`. A file's
name is its UID, a zero-padded sequence number; files with other names are not served.
"""

import fcntl
import io
import json
import poplib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from email.utils import formatdate
from mailbox import Maildir, NoSuchMailboxError
from pathlib import Path
from typing import Any

PASSWORD = "secret"
TIMEOUT = 10.0  # seconds that a client waits for the next octet; a mailbox's `.delay` must stay below
MAX_DELAY = 3600.0  # seconds
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
UID = re.compile(r"[0-9]{10}")


# Delivering


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that became visible in its mailbox; `at` is a reading of `time.monotonic()`."""

    user: str
    uid: int
    at: float
    subject: str


def create_mailbox(root: Path, user: str) -> Path:
    """The folder of the user's mailbox, made if need be; ValueError if the name is unfit."""
    if not USER.fullmatch(user):
        raise ValueError(f"user: {user!r} is not 1 to 64 letters, digits and ._@+- with no sign in front")
    for part in ("tmp", "cur", "new"):
        (root / user / part).mkdir(parents=True, exist_ok=True)
    return root / user


def deliver(root: Path, user: str, subject: str, body: str, log: Path | None = None) -> int:
    """Puts a message into the mailbox and returns its UID: 1, 2, 3; none comes again, also after deletions.

    The mailbox stays locked for other deliverers until the message is visible: whoever has seen a UID will
    not see a lower one arrive later. `log` gets its line after that. A deliverer that is killed leaves, at
    worst, a gap in the UIDs or a message without its line.
    """
    folder = create_mailbox(root, user)
    (folder / ".last_uid").touch()
    with (folder / ".last_uid").open("r+b", buffering=0) as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        uid = _take_uid(counter)
        unfinished = folder / "tmp" / f"{uid:010}"
        unfinished.write_bytes(_compose(user, uid, subject, body))
        unfinished.rename(folder / "new" / unfinished.name)
        if log is not None:
            with open_lines(log) as lines:
                append_line(lines, "deliver", user=user, uid=uid, subject=subject)
    return uid


def read_deliveries(path: Path) -> list[Delivery]:
    """The deliveries that `deliver(..., log=path)` noted, oldest first."""
    return [Delivery(line["user"], line["uid"], line["at"], line["subject"]) for line in read_lines(path)]


def _take_uid(counter: io.FileIO) -> int:
    # Written before it is used, in one write of fixed width: a kill in between cannot give a UID out again.
    uid = int(counter.read() or 0) + 1
    counter.seek(0)
    counter.write(f"{uid:010}".encode())
    return uid


def _compose(user: str, uid: int, subject: str, body: str) -> bytes:
    message = EmailMessage()
    message["From"] = "demo@example.org"
    message["To"] = user if "@" in user else f"{user}@example.org"
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{uid}.{user.replace('@', '.')}@ticker.demo>"
    message["Subject"] = subject
    message.set_content(body)
    return message.as_bytes()


# Serving


class Refused(Exception):
    """A command that cannot be obeyed; the text is one sentence for the client."""


class Maildrop:
    """What one session sees of a mailbox: the messages of its login in order of UID, numbered from 1.

    Nothing is locked, so another session may delete a message meanwhile: then it has size 0, and no lines.
    A number that is not there, or marked, is Refused.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._box = Maildir(folder, factory=None, create=False)
            self._keys = sorted(key for key in self._box.iterkeys() if UID.fullmatch(key))
        except (NoSuchMailboxError, FileNotFoundError):
            raise Refused("there is no such mailbox") from None
        self._folder = folder
        self.marked: set[int] = set()  # for deletion

    def numbers(self) -> list[int]:
        return [number for number in range(1, len(self._keys) + 1) if number not in self.marked]

    def number(self, text: str) -> int:
        if not text.isdecimal() or int(text) not in self.numbers():
            raise Refused("there is no message with this number")
        return int(text)

    def uid(self, number: int) -> str:
        return self._keys[number - 1]

    def lines(self, number: int) -> list[bytes]:
        try:
            content = self._box.get_bytes(self.uid(number))
        except (KeyError, FileNotFoundError):
            raise Refused("another session deleted this message") from None
        return content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")

    def size(self, number: int) -> int:
        """Octets on the wire, without dot-stuffing: that is what RFC 1939 counts."""
        try:
            return sum(len(line) + 2 for line in self.lines(number))
        except Refused:
            return 0

    def delay(self) -> float:
        """Seconds that a RETR is to take: the file `.delay`; 0 if none, or empty while written."""
        try:
            seconds = float((self._folder / ".delay").read_text() or 0)
        except FileNotFoundError:
            return 0.0
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= MAX_DELAY:
            raise Refused(f"the mailbox's .delay is not a number of seconds from 0 to {MAX_DELAY:.0f}")
        return seconds

    def delete_marked(self) -> None:
        for number in self.marked:
            self._box.discard(self.uid(number))


# Polling


class Mailbox:
    """What the session saw at its login. Mail that arrives later is for the next session."""

    def __init__(self, pop: poplib.POP3) -> None:
        self._pop = pop
        self._numbers = {int(uid): int(number) for number, uid in (line.split() for line in pop.uidl()[1])}

    def uids(self, after: str | int | None = None) -> list[int]:
        """The UIDs above `after` (a run's cursor; None: all of them), increasing: oldest message first."""
        last_read = 0 if after is None else int(after)
        return sorted(uid for uid in self._numbers if uid > last_read)

    def read(self, uid: int) -> EmailMessage:
        """Retrieves the message; LookupError if the session has none with this UID."""
        if uid not in self._numbers:
            raise LookupError(f"UID {uid} is not among the {len(self._numbers)} messages of this session")
        lines = self._pop.retr(self._numbers[uid])[1]
        return message_from_bytes(b"\n".join([*lines, b""]), policy=default)


@contextmanager
def open_mailbox(
    host: str, port: int, user: str, password: str = PASSWORD, *, timeout: float = TIMEOUT
) -> Iterator[Mailbox]:
    """A session with the mailbox: ended by QUIT when all went well, by closing the socket on any error.

    Raises OSError (also TimeoutError) when the server does not answer, poplib.error_proto when it says -ERR.
    """
    pop = poplib.POP3(host, port, timeout=timeout)
    try:
        pop.user(user)
        pop.pass_(password)
        yield Mailbox(pop)
        pop.quit()
    finally:
        pop.close()


# Logs of JSON lines


def open_lines(path: Path) -> io.FileIO:
    return path.open("ab", buffering=0)


def append_line(file: io.FileIO, event: str, **fields: object) -> None:
    # One unbuffered write in append mode: at once in the file, and lines of several writers do not mix.
    file.write(json.dumps({"at": time.monotonic(), "event": event, **fields}).encode() + b"\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # otherwise its writer is at it
                yield json.loads(line)
