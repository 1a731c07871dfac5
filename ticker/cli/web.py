"""`ticker web`: serves the page and the HTTP API until SIGTERM or SIGINT."""

import signal
import socket
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ticker import logs
from ticker.cli import options, render
from ticker.cli.connection import configured
from ticker.errors import ConfigurationError

if TYPE_CHECKING:
    from uvicorn import Server

    from ticker.settings import Settings

GRACE = 5  # seconds that a request in progress may take after a signal
EXTRA = frozenset({"anyio", "jinja2", "markupsafe", "starlette", "uvicorn"})


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all IPv4 interfaces."
)
@click.option(
    "--port",
    type=options.Integer(0, 65_535),
    default=8765,
    show_default=True,
    help="The port to listen on; 0 picks a free port.",
)
@click.option("--no-token", is_flag=True, help="Require no token from clients on this host, and refuse all others.")
@click.option("--read-only", is_flag=True, help="Refuse all changes.")
def web(host: str, port: int, no_token: bool, read_only: bool) -> None:
    """Serve the page and the HTTP API until SIGTERM or SIGINT.

    Prints its address. A browser asks for TICKER_WEB_TOKEN as the password, with any user name. If TICKER_WEB_TOKEN is
    not set, the printed address contains a generated token.
    """
    settings = configured()
    settings.require_database(), settings.require_redis()
    no_token, read_only = no_token or settings.web_no_token, read_only or settings.web_read_only
    settings = replace(settings, web_no_token=no_token, web_read_only=read_only)
    token, server = prepared(settings, host)
    with listen(host, port) as listening:
        signal.signal(signal.SIGTERM, server.handle_exit)
        signal.signal(signal.SIGINT, server.handle_exit)
        logs.to_stdout(settings.log)
        render.say(f"the page and the HTTP API: {address(listening, token)}")
        server.run([listening])


def prepared(settings: "Settings", host: str) -> tuple[str, "Server"]:
    """Returns the generated token, or "" if none was generated, and the server.

    Raises ConfigurationError if the extra is missing, or if `--no-token` is combined with a non-loopback address.
    """
    try:
        import uvicorn

        from ticker.web import application
        from ticker.web.access import loopback
        from ticker.web.app import new_token
        from ticker.web.protocol import Protocol
    except ModuleNotFoundError as error:
        if (missing := str(error.name).partition(".")[0]) not in EXTRA:
            raise
        raise ConfigurationError(f'ticker web needs {missing}: pip install "rq-ticker[web]"') from error
    if settings.web_no_token and not loopback(host):
        raise ConfigurationError(
            f"--host {host} is not a loopback address, and --no-token (TICKER_WEB_NO_TOKEN) serves only this host; leave out one of them"
        )
    token = "" if settings.web_tokens or settings.web_no_token else new_token()
    config = uvicorn.Config(
        application(settings, tokens=[token] if token else None), http=Protocol, log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=GRACE,
    )  # fmt: skip
    server = uvicorn.Server(config)
    # otherwise, a signal before uvicorn sets its handlers is lost, and a signal that uvicorn caught is raised again at its end
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    return token, server


def listen(host: str, port: int) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # without it, each further response on a connection waits 40 ms for an acknowledgement; asyncio sets it on other sockets
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigurationError(f"cannot listen on --host {host} --port {port}: {why}") from error


def address(listening: socket.socket, token: str = "") -> str:
    """Returns the address. It contains the token, if any, as the HTTP Basic password, so that a browser does not ask
    for it.
    """
    host, port = listening.getsockname()[:2]
    user = f"ticker:{token}@" if token else ""
    return f"http://{user}[{host}]:{port}/" if ":" in host else f"http://{user}{host}:{port}/"
