"""The mail: folders for the POP3 server, and a deliverer that fills them all the time."""

import itertools
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from ticker.demo.cast import CAST
from ticker.demo.mailbox import create_mailbox, deliver

PAUSE = 0.1  # seconds between two messages


class Post:
    """Mailboxes below `folder`, with what is in them at first. The deliveries are noted in one file, the server's
    retrievals in another."""

    def __init__(self, folder: Path) -> None:
        self.deliveries, self.retrievals = folder / "deliveries.jsonl", folder / "retrievals.jsonl"
        self._root, self._port_file = folder / "mail", folder / "port"
        self._numbers = itertools.count(1)
        self.retrievals.touch()
        for part in CAST:
            mailbox = create_mailbox(self._root, part.mailbox)
            if part.delay:
                (mailbox / ".delay").write_text(str(part.delay))
            for _ in range(part.backlog):
                self._deliver(part.mailbox)

    @property
    def server(self) -> str:
        """The command that serves them."""
        options = ["--root", self._root, "--log", self.retrievals, "--port-file", self._port_file]
        return shlex.join(map(str, [sys.executable, "-m", "ticker.demo.pop3", *options]))

    @property
    def open(self) -> bool:
        """Whether the server listens."""
        return self._port_file.exists()

    @property
    def port(self) -> int:
        return int(self._port_file.read_text())

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Within the block there is always another message."""
        stop = Event()
        deliverer = Thread(target=self._keep_delivering, args=(stop,), name="deliverer")
        deliverer.start()
        try:
            yield
        finally:
            stop.set()
            deliverer.join()

    def cure(self) -> None:
        """The slow mailboxes answer at once, from now on."""
        for part in CAST:
            (self._root / part.mailbox / ".delay").unlink(missing_ok=True)

    def _keep_delivering(self, stop: Event) -> None:
        for mailbox in itertools.cycle([part.mailbox for part in CAST for _ in range(part.share)]):
            if stop.wait(PAUSE):
                return
            self._deliver(mailbox)

    def _deliver(self, mailbox: str) -> None:
        deliver(self._root, mailbox, f"No. {next(self._numbers)}", "Good day.\n", log=self.deliveries)
