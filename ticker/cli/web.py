"""`ticker web`: the page and the HTTP API, served until SIGTERM."""

import signal
import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from ticker import logs
from ticker.cli import options, render
from ticker.cli.connection import configured
from ticker.errors import ConfigurationError

if TYPE_CHECKING:
    from uvicorn import Server

    from ticker.settings import Settings

LAST_WORD = 5  # seconds that a request in progress gets behind a signal
EXTRA = frozenset({"anyio", "jinja2", "markupsafe", "starlette", "uvicorn"})


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; with TICKER_WEB_TOKEN also elsewhere than here."
)  # fmt: skip
@click.option("--port", type=options.Whole(0, 65_535), default=8765, show_default=True, help="0: one that is free.")
@click.option("--read-only", is_flag=True, help="Nothing can be changed.")
def web(host: str, port: int, read_only: bool) -> None:
    """Serve the page and the HTTP API, until SIGTERM or SIGINT.

    Says its address on standard output. A browser asks for TICKER_WEB_TOKEN as the password of any user.
    """
    found = configured()
    found.require_database(), found.require_redis()
    server = made(found, host, read_only)
    with listen(host, port) as listening:
        signal.signal(signal.SIGTERM, server.handle_exit)
        signal.signal(signal.SIGINT, server.handle_exit)
        logs.to_stdout()
        render.say(f"the page and the HTTP API: {address(listening)}")
        server.run([listening])


def made(found: "Settings", host: str, read_only: bool) -> "Server":
    """ConfigurationError where the extra is missing, and where anybody could come in."""
    try:
        import uvicorn

        from ticker.web import application
        from ticker.web.access import loopback
    except ModuleNotFoundError as error:
        if (missing := str(error.name).partition(".")[0]) not in EXTRA:
            raise
        raise ConfigurationError(f'ticker web needs {missing}: pip install "rq-ticker[web]"') from error
    if not loopback(host) and not found.web_tokens:
        raise ConfigurationError(
            f"--host {host} can be reached from other hosts, and TICKER_WEB_TOKEN is not set; set it, or leave --host out"
        )
    config = uvicorn.Config(
        application(found, read_only=read_only), log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=LAST_WORD,
    )  # fmt: skip
    server = uvicorn.Server(config)
    # a signal that came before uvicorn's own handlers would be lost, and one that it caught is sent again at its end
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    return server


def listen(host: str, port: int) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # without it each further answer on a connection waits 40 ms for an acknowledgement; asyncio sets it on other sockets
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigurationError(f"nothing can listen on --host {host} --port {port}: {why}") from error


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
