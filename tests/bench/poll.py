"""One poll of the server in POLLS_URL, as a coroutine and as a plain function. Imports the standard library alone."""

import asyncio
import os
import urllib.request
from urllib.parse import urlsplit

URL = os.environ.get("POLLS_URL", "http://127.0.0.1:0/200")
RECORD = os.environ.get("POLLS_RECORD", "1") == "1"
BOX = 16.0  # seconds; a little longer than the slowest answer

HOST, PORT = urlsplit(URL).hostname, urlsplit(URL).port
REQUEST = f"GET {urlsplit(URL).path} HTTP/1.0\r\n\r\n".encode()


async def poll_async() -> int:
    return len(await ask())


async def ask() -> bytes:
    """Returns the whole answer, with its status line and headers."""
    reader, writer = await asyncio.open_connection(HOST, PORT)
    try:
        writer.write(REQUEST)
        return await reader.read()
    finally:
        writer.close()


def poll() -> int:
    with urllib.request.urlopen(URL) as answer:
        return len(answer.read())
