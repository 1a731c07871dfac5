"""The channel `mail`: sends one message by SMTP, with TLS if it is offered. A password is never sent without TLS."""

import logging
import smtplib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from ticker import clock
from ticker.notify import message, wire
from ticker.notify.message import NotDelivered, Notice

log = logging.getLogger("ticker.notify")

SUBJECT_AT_MOST = 150


class Mail:
    """Sends mail through one server, from one address to one or more others."""

    name = "mail"

    def __init__(self, url: str, sender: str, receivers: Sequence[str]) -> None:
        parts = urlsplit(url)
        self._tls_at_once = parts.scheme == "smtps"
        self._host = parts.hostname or ""
        self._port = parts.port or (465 if self._tls_at_once else 587)
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        self._sender, self._receivers = sender, list(receivers)

    def deliver(self, notice: Notice) -> str:
        composed = compose(notice, self._sender, self._receivers)
        try:
            with self._client() as client:
                refused = client.send_message(composed, self._sender, self._receivers)
                with suppress(Exception):  # the message was accepted: how the session ends does not matter
                    client.quit()
        except smtplib.SMTPException as error:
            raise NotDelivered(self._answer(error)) from None
        if refused:
            log.warning(
                "mail of event=%s was refused for %s, and accepted for the others",
                notice.id,
                ", ".join(refused),
                extra={"event": "mail_refused", "fields": {"event_id": notice.id}},
            )
        return f"accepted for {len(self._receivers) - len(refused)} of {len(self._receivers)}"

    @contextmanager
    def _client(self) -> Iterator[smtplib.SMTP]:
        with wire.connected(self._host, self._port, secure=self._tls_at_once) as (line, _):
            client = _Client(line, self._host, self._port)
            try:
                self._log_in(client)
                yield client
            finally:
                client.close()

    def _log_in(self, client: smtplib.SMTP) -> None:
        client.ehlo()
        encrypted = self._tls_at_once
        if not encrypted and client.has_extn("starttls"):
            client.starttls(context=ssl.create_default_context())
            client.ehlo()
            encrypted = True
        if self._user and not encrypted:
            raise NotDelivered("the server offers no STARTTLS, and the password is not sent in the clear")
        if self._user:
            try:
                client.login(self._user, self._password)
            except smtplib.SMTPAuthenticationError as error:  # its text may repeat the password, even in base64
                raise NotDelivered(
                    f"the server answered {error.smtp_code} to the login; check the user and the password in TICKER_SMTP_URL"
                ) from None
            except UnicodeError:
                raise NotDelivered(
                    "the user or the password in TICKER_SMTP_URL is not ASCII and cannot be sent; change it"
                ) from None

    def _answer(self, error: smtplib.SMTPException) -> str:
        """Returns the server's answer, without the password if the answer repeats it."""
        words = str(error).replace(self._password, "…") if self._password else str(error)
        return message.printable(words, 200)


class _Client(smtplib.SMTP):
    """An SMTP client on an existing connection."""

    def __init__(self, line: socket.socket, host: str, port: int) -> None:
        self._line = line
        name = socket.gethostname()
        super().__init__(host, port, local_hostname=name if "." in name else "[127.0.0.1]")

    def _get_socket(self, _host: str, _port: int, _timeout: float) -> socket.socket:
        return self._line


def compose(notice: Notice, sender: str, receivers: Sequence[str]) -> EmailMessage:
    """Returns the message. Its id is the same each time the notice is sent."""
    composed = EmailMessage()
    subject = message.printable(f"[ticker] {message.text(notice)}", SUBJECT_AT_MOST)
    # Python decodes `=?utf-8?q?=0A...?=` in a value, and some versions send its newline as it is (CVE-2024-6923)
    composed["Subject"] = subject.replace("=?", "= ?")
    composed["From"] = sender
    composed["To"] = ", ".join(receivers)
    composed["Date"] = format_datetime(clock.python_utc())
    composed["Message-ID"] = f"<ticker-{notice.schema}-{notice.key}@{sender.rpartition('@')[2]}>"
    composed["Auto-Submitted"] = "auto-generated"
    composed.set_content(body(notice))
    return composed


def body(notice: Notice) -> str:
    """Returns the line of the notice, followed by one line for each fact."""
    facts = message.data(notice)
    facts |= {f"task_{name}": value for name, value in facts.pop("task").items()}
    del facts["text"]
    facts |= {name: "; ".join(value) for name, value in facts.items() if isinstance(value, list)}
    lines = (f"{name}: {message.printable(str(value))}" for name, value in facts.items() if value not in (None, ""))
    return "\n".join([message.text(notice), "", *lines, ""])
