"""Reads the settings of a process from the environment, each with its default and its limits.

Variables that only one module needs are read in that module: TICKER_DEBUG, and those of embedded servers, the terminal
and systemd.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ticker.engine.timing import WAITING_JOBS
from ticker.errors import BadInput, ConfigurationError, quoted
from ticker.schedules.duration import HOUR, LONGEST, SECOND, milliseconds, whole

KEPT_AT_LEAST = 2 * HOUR
"""Milliseconds. A record outlives its job in Redis, because a start may look up the record of an end."""

CHANNELS = ("log", "webhook", "mail")
"""The channels that TICKER_NOTIFY may name besides entry points; `ticker.notify` makes one of each."""

CHANNEL_GROUP = "ticker.notices"
"""The group of entry points that are channels."""

ANY_CHANNEL = f"{', '.join(CHANNELS)}, or the name of an entry point of the group {CHANNEL_GROUP}"

LEAST_KEY = 16  # characters of a key that signs jobs: anyone who guesses a key can sign any job

_PREFIXES = ("TICKER_", "DATABASE_URL", "REDIS_URL")
_SCHEMA = re.compile(r"(?!pg_|information_schema$)[A-Za-z_][A-Za-z0-9_]{0,62}")

# The part of a URL after its scheme: user:password@host:port,host:port/name?option=value. A raw @ : / ? or blank in a
# password would shift everything after it. An error could then show part of the password as a host or a port.
_HOST = r"(?:[^@/?:,\[\]\s]*|\[[^@/?\]\s]*\])(?::[0-9]{0,5})?"
_OPTION = r"[^=&@\s]+=[^=&@\s]*"
_ADDRESS = re.compile(rf"(?:[^@/?\s]*@)?{_HOST}(?:,{_HOST})*(?:/[^@?\s]*)?(?:\?{_OPTION}(?:&{_OPTION})*)?")
_WEB_ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?][!\"$-~]*)?")
_MAIL_SERVER = re.compile(
    r"smtps?://(?:[^@/?#:\s]+:[^@/?#:\s]+@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/?"
)
_MAILBOX = re.compile(r"(?!.*=\?)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_ENVIRONMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHANNEL = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_OF_SENTINELS = {"redis+sentinel", "rediss+sentinel"}
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")  # libpq's error for such a URL quotes the whole password


def modules(text: str) -> tuple[str, ...]:
    """Returns the module names in a comma-separated text."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def queue_depth(name: str, text: str) -> dict[str, int]:
    """Reads `polling=10000,reports=500`: how many jobs may wait in a queue before tasks stay due instead."""
    depths: dict[str, int] = {}
    for part in modules(text):
        queue, _, depth = part.rpartition("=")
        if not queue.strip() or not re.fullmatch(r"[1-9][0-9]{0,8}", depth.strip()):
            raise BadInput(
                name, part, "is not a queue with a depth from 1 to 999999999; write polling=10000,reports=500"
            )
        depths[queue.strip()] = int(depth.strip())
    return depths


def keys(name: str, text: str) -> tuple[str, ...]:
    """Returns the keys in a comma-separated text. The first one signs, and all are accepted. The error never shows a
    key.
    """
    given = modules(text)
    if text and (not given or any(len(key) < LEAST_KEY for key in given)):
        raise BadInput(
            name,
            None,
            f"a key has fewer than {LEAST_KEY} characters; make one with: "
            'python -c "import secrets; print(secrets.token_urlsafe(32))"',
        )
    return given


def channels(name: str, text: str) -> tuple[str, ...]:
    """Returns the names of the channels in a comma-separated text, each once. If there are none, no notices are sent."""
    names = tuple(dict.fromkeys(modules(text)))
    for channel in names:
        if not _CHANNEL.fullmatch(channel):
            raise BadInput(name, channel, f"is not a channel; write {ANY_CHANNEL}")
    return names


def web_address(name: str, text: str) -> str:
    """Checks a URL to post to. The error never shows it, because anyone who knows it can post there."""
    if text and not (_WEB_ADDRESS.fullmatch(text) and _has_port(text)):
        raise BadInput(name, None, "is not an http:// or https:// URL without a user; write https://host/path")
    return text


def mail_server(name: str, text: str) -> str:
    """Checks the URL of an SMTP server. The error never shows it."""
    if text and not (_MAIL_SERVER.fullmatch(text) and _has_port(text) and not _BAD_PERCENT.search(text)):
        raise BadInput(
            name,
            None,
            "cannot be read; write smtp://user:password@host:587 or smtps://...; leave out user:password@ if the "
            "server needs no login, and write special characters in the user or the password as %XX (@ is %40, / is %2F)",
        )
    return text


def mailboxes(name: str, text: str, *, most: int) -> tuple[str, ...]:
    """Returns the mail addresses in a comma-separated text."""
    addresses = modules(text)
    if len(addresses) > most:
        raise BadInput(name, text, f"has {len(addresses)} addresses, over the limit of {most}")
    for address in addresses:
        if len(address) > 254 or not _MAILBOX.fullmatch(address):
            raise BadInput(name, address, "is not a mail address; write name@host")
    return addresses


def schema_name(field: str, text: str) -> str:
    """Checks the name of a schema. A valid name is safe between double quotes in a statement."""
    if not _SCHEMA.fullmatch(text):
        raise BadInput(
            field,
            text,
            "is not a schema name; use up to 63 letters, digits and _, and none of PostgreSQL's own schemas",
        )
    return text


def environment_name(name: str, text: str) -> str:
    """Checks an environment's name, such as `production`. The tables store it, so that a copy of them does not run
    elsewhere.
    """
    if text and not _ENVIRONMENT.fullmatch(text):
        raise BadInput(name, text, "is not a valid environment name; use up to 64 letters, digits, _, . and -")
    return text


def one_of(name: str, text: str, *, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise BadInput(name, text, f"is not one of {', '.join(choices)}")
    return text


def switch(name: str, text: str) -> bool:
    return one_of(name, text, choices=("off", "on")) == "on"


def otel(name: str, text: str) -> bool:
    """Reads a switch that needs the libraries of OpenTelemetry, which are an extra."""
    try:
        is_on = switch(name, text)
        has_extra = not is_on or find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:  # a package that would contain it is missing
        has_extra = False
    if not has_extra:
        raise ConfigurationError('TICKER_OTEL=on needs OpenTelemetry: pip install "rq-ticker[otel]"')
    return is_on


def _has_port(url: str) -> bool:
    """Returns whether the URL has no port or a valid one."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


Read = Callable[[str, str], Any]
"""Takes a variable's name and its text, and returns the value. Raises BadInput."""


def setting(variable: str, read: Read, default: str = "", *, is_secret: bool = False) -> Any:
    """Declares the field that a variable sets. `default` is in the variable's own form."""
    declared = {"variable": variable, "read": read, "default": default}
    return field(default_factory=lambda: read(variable, default), repr=not is_secret, metadata=declared)


def _as_given(_: str, text: str) -> str:
    return text


_age = partial(milliseconds, least=KEPT_AT_LEAST, most=10 * LONGEST)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in the environment. Durations are milliseconds if the name ends in `_ms`, otherwise whole seconds."""

    database_url: str = setting("DATABASE_URL", _as_given, is_secret=True)
    redis_url: str = setting("REDIS_URL", _as_given, is_secret=True)
    schema: str = setting("TICKER_SCHEMA", schema_name, "ticker")
    tick_ms: int = setting("TICKER_TICK", partial(milliseconds, least=SECOND // 10, most=HOUR), "30s")
    batch: int = setting("TICKER_BATCH", partial(whole, least=1, most=10_000), "1000")
    queue_depth: Mapping[str, int] = setting("TICKER_QUEUE_DEPTH", queue_depth)
    result_ttl: int = setting("TICKER_RESULT_TTL", partial(whole, least=0, most=LONGEST // SECOND), "0")
    failure_ttl: int = setting("TICKER_FAILURE_TTL", partial(whole, least=60, most=LONGEST // SECOND), "3600")
    hard_limit: str = setting("TICKER_HARD_LIMIT", partial(one_of, choices=("auto", "watchdog", "off")), "auto")
    tasks: tuple[str, ...] = setting("TICKER_TASKS", lambda _, text: modules(text))
    functions: tuple[str, ...] = setting("TICKER_FUNCTIONS", lambda _, text: modules(text))
    signing_keys: tuple[str, ...] = setting("TICKER_SIGNING_KEY", keys, is_secret=True)
    wake: bool = setting("TICKER_WAKE", switch, "off")
    output: str = setting("TICKER_OUTPUT", partial(one_of, choices=("keep", "pass")), "keep")
    log: str = setting("TICKER_LOG", partial(one_of, choices=("text", "json")), "text")
    keep_successes_ms: int = setting("TICKER_KEEP_SUCCESSES", _age, "30d")
    keep_failures_ms: int = setting("TICKER_KEEP_FAILURES", _age, "90d")
    notify: tuple[str, ...] = setting("TICKER_NOTIFY", channels, "log")
    webhook_url: str = setting("TICKER_WEBHOOK_URL", web_address, is_secret=True)
    webhook_keys: tuple[str, ...] = setting("TICKER_WEBHOOK_KEY", keys, is_secret=True)
    heartbeat_url: str = setting("TICKER_HEARTBEAT_URL", web_address, is_secret=True)
    smtp_url: str = setting("TICKER_SMTP_URL", mail_server, is_secret=True)
    mail_from: str = setting("TICKER_MAIL_FROM", lambda name, text: "".join(mailboxes(name, text, most=1)))
    mail_to: tuple[str, ...] = setting("TICKER_MAIL_TO", partial(mailboxes, most=100))
    web_tokens: tuple[str, ...] = setting("TICKER_WEB_TOKEN", keys, is_secret=True)
    web_no_token: bool = setting("TICKER_WEB_NO_TOKEN", switch, "off")
    web_read_only: bool = setting("TICKER_WEB_READ_ONLY", switch, "off")
    hide_args: bool = setting("TICKER_HIDE_ARGS", switch, "off")
    environment: str = setting("TICKER_ENVIRONMENT", environment_name)
    listen_url: str = setting("TICKER_LISTEN_URL", _as_given, is_secret=True)
    prepared_statements: str = setting(
        "TICKER_PREPARED_STATEMENTS", partial(one_of, choices=("auto", "on", "off")), "auto"
    )
    strict_owners: bool = setting("TICKER_STRICT_OWNERS", switch, "off")
    waiting_jobs: int = setting("TICKER_WAITING_JOBS", partial(whole, least=1, most=1000), str(WAITING_JOBS))
    otel: bool = setting("TICKER_OTEL", otel, "off")
    notify_by_cause: tuple[str, ...] = setting("TICKER_NOTIFY_BY_CAUSE", channels, "log,mail")
    page_url: str = setting("TICKER_PAGE_URL", web_address)

    def require_database(self) -> str:
        """Returns the URL of PostgreSQL in psycopg's form. Raises ConfigurationError if it is not set or not valid."""
        return psycopg_url(self.database_url)

    def require_listen(self) -> str:
        """Returns the URL on which a ticker listens for changes: TICKER_LISTEN_URL, or DATABASE_URL if that is not set."""
        return psycopg_url(self.listen_url, "TICKER_LISTEN_URL") if self.listen_url else self.require_database()

    def require_redis(self) -> str:
        if not self.redis_url:
            raise ConfigurationError("REDIS_URL is not set; write REDIS_URL=redis://localhost:6379/0")
        scheme, separator, rest = self.redis_url.partition("://")
        if not separator or scheme not in {"redis", "rediss", "unix", "valkey", "valkeys", *_OF_SENTINELS}:
            raise ConfigurationError(
                f"REDIS_URL: {_without_secret(self.redis_url)} is not a redis://, rediss://, redis+sentinel:// or unix:// URL"
            )
        if "#" in rest or not _ADDRESS.fullmatch(rest):
            raise _unreadable("REDIS_URL", rest)
        hosts, _, path = rest.partition("?")[0].partition("/")
        if scheme in _OF_SENTINELS:
            if not re.fullmatch(r"[^/]+(/\d+)?", path):
                raise ConfigurationError(
                    "REDIS_URL names sentinels, but no service and database; write redis+sentinel://host1,host2,host3/service/0"
                )
        elif "," in hosts.rpartition("@")[2]:
            raise ConfigurationError(
                "REDIS_URL names several hosts, but only one server is supported; write redis://host:6379/0, or, if they "
                "are sentinels, redis+sentinel://host1,host2,host3/service/0"
            )
        return f"{scheme.replace('valkey', 'redis')}://{rest}"


_given: ContextVar[Settings | None] = ContextVar("ticker_settings", default=None)


@contextmanager
def use(settings: Settings) -> Iterator[None]:
    """Uses these settings instead of the environment's, within the block and in threads that carry its context."""
    token = _given.set(settings)
    try:
        yield
    finally:
        _given.reset(token)


def current() -> Settings:
    """Returns the settings given to `use`, or else those of the environment."""
    return _given.get() or from_environment()


Source = Callable[[Mapping[str, str]], dict[str, str]]
_source: Source | None = None


def add_source(variables: Source) -> None:
    """Lets a framework provide variables of this process and its forks. `variables` gets the environment, which they
    replace, each time the settings are read.
    """
    global _source
    _source = variables


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads and checks all settings. Raises ConfigurationError, which names the variable, its value and the limit."""
    environ = os.environ if environ is None else environ
    ours = {name: environ[name] for name in environ if name.startswith(_PREFIXES)}
    return _checked(frozenset((ours | (_source(environ) if _source else {})).items()))


@lru_cache(maxsize=2)
def _checked(variables: frozenset[tuple[str, str]]) -> Settings:
    """Returns the settings, which are cached because a worker reads them before every run."""
    environ, values = dict(variables), dict[str, Any]()
    try:
        for name, declared in ((each.name, each.metadata) for each in fields(Settings)):
            variable = declared["variable"]
            values[name] = declared["read"](variable, environ.get(variable, declared["default"]))
    except BadInput as error:
        raise ConfigurationError(str(error)) from None
    return Settings(**values)


_DRIVERS = ("psycopg", "psycopg_async", "psycopg2", "asyncpg")
_SCHEMES = {"postgresql", "postgres", *(f"postgresql+{driver}" for driver in _DRIVERS)}
_SHOWN_SCHEMES = {
    *_SCHEMES, "postgresql+pg8000", "mysql", "mysql+pymysql", "mariadb", "sqlite", "oracle", "mongodb", "amqp", "http", "https",
    "redis", "rediss", "unix", "valkey", *_OF_SENTINELS,
}  # fmt: skip


def psycopg_url(url: str, name: str = "DATABASE_URL") -> str:
    """Returns a PostgreSQL URL in libpq's form. Also accepts `postgres://` and SQLAlchemy's `postgresql+driver://`."""
    if not url:
        raise ConfigurationError(f"{name} is not set; write {name}=postgresql://user@localhost/name")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError(
            f"{name}: {_without_secret(url)} is not a PostgreSQL URL; write postgresql://user@localhost/name"
        )
    if not _ADDRESS.fullmatch(rest) or _BAD_PERCENT.search(rest):
        raise _unreadable(name, rest)
    return f"postgresql://{rest}"


def _without_secret(url: str) -> str:
    """Returns the part of a URL that may be shown: its scheme, unless that may be a secret itself."""
    scheme, separator, _ = url.partition("://")
    return quoted(f"{scheme}://…") if separator and scheme in _SHOWN_SCHEMES else "the value"


def _unreadable(name: str, rest: str = "") -> ConfigurationError:
    if rest.rpartition("@")[2].count("?") > 1:
        return ConfigurationError(f"{name}: the options begin with a second ?; write ?a=1&b=2, with one ? and then &")
    return ConfigurationError(
        f"{name}: the part after :// cannot be read; write user:password@host:port/name, and special characters in the "
        "user or the password as %XX (@ is %40, / is %2F)"
    )
