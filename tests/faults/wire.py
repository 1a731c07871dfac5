"""Where one message ends and the next begins, for Redis (RESP2 and RESP3) and for PostgreSQL (protocol 3).

Streams are fed with bytes as they come, cut anywhere, and give back what is complete. Nothing is changed: all that is
given back, put together, is what came in.
"""

from collections.abc import Iterator

CRLF = b"\r\n"
BULK = frozenset(b"$!=")  # a length, then so many bytes
PER_ITEM = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}  # values that follow for each one counted
ATTRIBUTES = ord("|")  # stand before the value that they belong to
OUT_OF_BAND = ord(">")  # answers no command: RESP3's published messages
ERRORS = frozenset(b"-!")


class RedisStream:
    """One direction of a Redis connection. The same rules fit commands and answers; an inline command is a line."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0  # so far the first message was looked at
        self._missing = 1  # values that it still lacks

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now."""
        self._buffer += data
        messages = []
        while self._first_is_complete():
            messages.append(bytes(self._buffer[: self._at]))
            del self._buffer[: self._at]
            self._at, self._missing = 0, 1
        return messages

    def _first_is_complete(self) -> bool:
        buffer, at, missing = self._buffer, self._at, self._missing
        while missing and (end := buffer.find(CRLF, at)) >= 0:
            kind, after = buffer[at], end + 2
            if kind in PER_ITEM:
                missing += PER_ITEM[kind] * max(int(buffer[at + 1 : end]), 0) - (kind != ATTRIBUTES)
            else:
                if kind in BULK and (length := int(buffer[at + 1 : end])) >= 0:
                    after += length + 2
                if after > len(buffer):
                    break
                missing -= 1
            at = after
        self._at, self._missing = at, missing
        return not missing


def command(message: bytes) -> bytes:
    """The name of a Redis command, in capitals; empty for an empty line."""
    if message[:1] == b"*":
        parts = message.split(CRLF, 3)
        return parts[2].upper() if len(parts) == 4 else b""
    return (message.split() or [b""])[0].upper()


def texts(message: bytes) -> list[bytes]:
    """The items of a flat array as bytes: a command's words, or what a script answered."""
    items, at = [], message.index(CRLF) + 2
    while at < len(message):
        end = message.index(CRLF, at)
        if message[at] in BULK and (length := int(message[at + 1 : end])) >= 0:
            items.append(message[end + 2 : end + 2 + length])
            at = end + 4 + length
        else:
            items.append(message[at + 1 : end])
            at = end + 2
    return items


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def error(message: bytes) -> bytes | None:
    """The text of an answer that is an error."""
    if message[0] not in ERRORS:
        return None
    return message[1:-2] if message[:1] == b"-" else message.split(CRLF, 1)[1][:-2]


SSL_REQUEST = (80877103).to_bytes(4, "big")
GSS_REQUEST = (80877104).to_bytes(4, "big")
ENCRYPTION = frozenset({SSL_REQUEST, GSS_REQUEST})
READY = ord("Z")  # ReadyForQuery: the server has said all that it had to


class PostgresRequests:
    """What a client sends. Its first messages have no letter in front: asking for encryption, and the start-up."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.has_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete now. The start-up message comes while `has_begun` is still false."""
        self._buffer += data
        while message := self._first():
            yield message
            self.has_begun = self.has_begun or message[4:8] not in ENCRYPTION

    def _first(self) -> bytes:
        letter = 1 if self.has_begun else 0
        size = letter + int.from_bytes(self._buffer[letter : letter + 4], "big")
        if len(self._buffer) < max(size, letter + 4):
            return b""
        message = bytes(self._buffer[:size])
        del self._buffer[:size]
        return message


class PostgresAnswers:
    """What a server sends, in pieces that end where the server is ready for the next request."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Pieces of whole messages, and whether a piece ends with ReadyForQuery."""
        self._buffer += data
        buffer, start, at, pieces = self._buffer, 0, 0, []
        whole = len(buffer)
        while whole - at >= 5 and (after := at + 1 + int.from_bytes(buffer[at + 1 : at + 5], "big")) <= whole:
            if buffer[at] == READY:
                pieces.append((bytes(buffer[start:after]), True))
                start = after
            at = after
        if start < at:
            pieces.append((bytes(buffer[start:at]), False))
        del buffer[:at]
        return pieces
