"""Messages are found wherever the network cuts the bytes."""

import pytest

from tests.faults import wire

ANSWERS = [
    b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"$5\r\n\r\n*1\r\r\n", b"*0\r\n",
    b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+x\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(12345678901234567890\r\n",
    b"!5\r\nERR x\r\n", b"=7\r\ntxt:abc\r\n", b"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n*0\r\n", b"~2\r\n:1\r\n:2\r\n",
    b">2\r\n+message\r\n$1\r\nx\r\n", b"|1\r\n+ttl\r\n:3\r\n*1\r\n+value\r\n", b"PING\r\n",
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_messages_of_redis_are_found_however_they_are_cut(size: int) -> None:
    stream, whole = wire.RedisStream(), b"".join(ANSWERS)
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert [message for chunk in chunks for message in stream.feed(chunk)] == ANSWERS


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_messages_of_postgresql_are_found_however_they_are_cut(size: int) -> None:
    startup = b"\0\0\0\x08" + wire.SSL_REQUEST, b"\0\0\0\x09\0\x03\0\0\0"
    messages = [*startup, b"Q\0\0\0\x05\0", b"S\0\0\0\x04", b"Q\0\0\0\x0bCOMMIT\0"]
    stream, whole = wire.PostgresRequests(), b"".join(messages)
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert [message for chunk in chunks for message in stream.feed(chunk)] == messages


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_answers_of_postgresql_end_where_the_server_is_ready(size: int) -> None:
    answers, whole = wire.PostgresAnswers(), b"C\0\0\0\x06Z\0Z\0\0\0\x05IN\0\0\0\x04Z\0\0\0\x05T"
    pieces = [piece for at in range(0, len(whole), size) for piece in answers.feed(whole[at : at + size])]
    assert b"".join(piece for piece, _ in pieces) == whole
    assert [piece[-6:] for piece, is_end in pieces if is_end] == [b"Z\0\0\0\x05I", b"Z\0\0\0\x05T"]
