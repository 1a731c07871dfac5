"""Reads the settings of a process from the environment, each with its default and its limits.

Variables that only one module needs are read in that module: TICKER_DEBUG, and those of embedded servers, the terminal
and systemd.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from urllib.parse import urlsplit

from ticker.engine.timing import WAITING_JOBS
from ticker.errors import BadInput, ConfigurationError, quoted
from ticker.numbers import whole
from ticker.schedules.duration import DAY, HOUR, LONGEST, SECOND, milliseconds

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
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")  # libpq's error for such a URL quotes the whole password


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in the environment. Durations are milliseconds if the name ends in `_ms`, otherwise whole seconds."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    schema: str = "ticker"
    tick_ms: int = 30 * SECOND
    batch: int = 1000
    queue_depth: Mapping[str, int] = field(default_factory=dict)
    result_ttl: int = 0
    failure_ttl: int = 3600
    hard_limit: str = "auto"
    tasks: tuple[str, ...] = ()
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    wake: bool = False
    output: str = "keep"
    log: str = "text"
    keep_successes_ms: int = 30 * DAY
    keep_failures_ms: int = 90 * DAY
    notify: tuple[str, ...] = ("log",)
    webhook_url: str = field(default="", repr=False)
    webhook_keys: tuple[str, ...] = field(default=(), repr=False)
    heartbeat_url: str = field(default="", repr=False)
    smtp_url: str = field(default="", repr=False)
    mail_from: str = ""
    mail_to: tuple[str, ...] = ()
    web_tokens: tuple[str, ...] = field(default=(), repr=False)
    web_no_token: bool = False
    web_read_only: bool = False
    hide_args: bool = False
    environment: str = ""
    listen_url: str = field(default="", repr=False)
    prepared_statements: str = "auto"
    strict_owners: bool = False
    waiting_jobs: int = WAITING_JOBS
    otel: bool = False

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
        if not separator or scheme not in {"redis", "rediss", "unix", "valkey", "valkeys"}:
            raise ConfigurationError(
                f"REDIS_URL: {_without_secret(self.redis_url)} is not a redis://, rediss:// or unix:// URL"
            )
        if "#" in rest or not _ADDRESS.fullmatch(rest):
            raise _unreadable("REDIS_URL", rest)
        if "," in re.split("[/?]", rest)[0].rpartition("@")[2]:
            raise ConfigurationError(
                "REDIS_URL names several hosts, but only one server is supported; write redis://host:6379/0"
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


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads and checks all settings. Raises ConfigurationError, which names the variable, its value and the limit."""
    environ = os.environ if environ is None else environ
    return _checked(frozenset((name, environ[name]) for name in environ if name.startswith(_PREFIXES)))


@lru_cache(maxsize=2)
def _checked(variables: frozenset[tuple[str, str]]) -> Settings:
    """Returns the settings, which are cached because a worker reads them before every run."""
    environ = dict(variables)
    try:
        return Settings(
            database_url=environ.get("DATABASE_URL", ""),
            redis_url=environ.get("REDIS_URL", ""),
            schema=schema_name("TICKER_SCHEMA", environ.get("TICKER_SCHEMA", "ticker")),
            environment=environment_name("TICKER_ENVIRONMENT", environ.get("TICKER_ENVIRONMENT", "")),
            tick_ms=milliseconds("TICKER_TICK", environ.get("TICKER_TICK", "30s"), least=SECOND // 10, most=HOUR),
            batch=_whole(environ, "TICKER_BATCH", 1000, 1, 10_000),
            queue_depth=queue_depth("TICKER_QUEUE_DEPTH", environ.get("TICKER_QUEUE_DEPTH", "")),
            result_ttl=_whole(environ, "TICKER_RESULT_TTL", 0, 0, LONGEST // SECOND),
            failure_ttl=_whole(environ, "TICKER_FAILURE_TTL", 3600, 60, LONGEST // SECOND),
            hard_limit=_one_of(environ, "TICKER_HARD_LIMIT", ("auto", "watchdog", "off")),
            tasks=modules(environ.get("TICKER_TASKS", "")),
            signing_keys=keys("TICKER_SIGNING_KEY", environ.get("TICKER_SIGNING_KEY", "")),
            wake=_one_of(environ, "TICKER_WAKE", ("off", "on")) == "on",
            output=_one_of(environ, "TICKER_OUTPUT", ("keep", "pass")),
            log=_one_of(environ, "TICKER_LOG", ("text", "json")),
            keep_successes_ms=_age(environ, "TICKER_KEEP_SUCCESSES", "30d"),
            keep_failures_ms=_age(environ, "TICKER_KEEP_FAILURES", "90d"),
            notify=channels("TICKER_NOTIFY", environ.get("TICKER_NOTIFY", "log")),
            webhook_url=web_address("TICKER_WEBHOOK_URL", environ.get("TICKER_WEBHOOK_URL", "")),
            webhook_keys=keys("TICKER_WEBHOOK_KEY", environ.get("TICKER_WEBHOOK_KEY", "")),
            heartbeat_url=web_address("TICKER_HEARTBEAT_URL", environ.get("TICKER_HEARTBEAT_URL", "")),
            smtp_url=mail_server("TICKER_SMTP_URL", environ.get("TICKER_SMTP_URL", "")),
            mail_from="".join(mailboxes("TICKER_MAIL_FROM", environ.get("TICKER_MAIL_FROM", ""), most=1)),
            mail_to=mailboxes("TICKER_MAIL_TO", environ.get("TICKER_MAIL_TO", ""), most=100),
            web_tokens=keys("TICKER_WEB_TOKEN", environ.get("TICKER_WEB_TOKEN", "")),
            web_no_token=_one_of(environ, "TICKER_WEB_NO_TOKEN", ("off", "on")) == "on",
            web_read_only=_one_of(environ, "TICKER_WEB_READ_ONLY", ("off", "on")) == "on",
            hide_args=_one_of(environ, "TICKER_HIDE_ARGS", ("off", "on")) == "on",
            listen_url=environ.get("TICKER_LISTEN_URL", ""),
            prepared_statements=_one_of(environ, "TICKER_PREPARED_STATEMENTS", ("auto", "on", "off")),
            waiting_jobs=_whole(environ, "TICKER_WAITING_JOBS", WAITING_JOBS, 1, 1000),
            strict_owners=_one_of(environ, "TICKER_STRICT_OWNERS", ("off", "on")) == "on",
            otel=_with_otel(_one_of(environ, "TICKER_OTEL", ("off", "on")) == "on"),
        )
    except BadInput as error:
        raise ConfigurationError(str(error)) from None


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
            name, None, "cannot be read; write smtp://user:password@host:587 or smtps://...; leave out user:password@ if the "
            "server needs no login, and write special characters in the user or the password as %XX (@ is %40, / is %2F)"
        )  # fmt: skip
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


_DRIVERS = ("psycopg", "psycopg_async", "psycopg2", "asyncpg")
_SCHEMES = {"postgresql", "postgres", *(f"postgresql+{driver}" for driver in _DRIVERS)}
_SHOWN_SCHEMES = {
    *_SCHEMES, "postgresql+pg8000", "mysql", "mysql+pymysql", "mariadb", "sqlite", "oracle", "mongodb", "amqp", "http", "https",
    "redis", "rediss", "unix", "valkey",
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


def _whole(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name, str(default))
    return whole(name, text, least, most)


def _age(environ: Mapping[str, str], name: str, default: str) -> int:
    return milliseconds(name, environ.get(name, default), least=KEPT_AT_LEAST, most=10 * LONGEST)


def _has_port(url: str) -> bool:
    """Returns whether the URL has no port or a valid one."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _one_of(environ: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = environ.get(name, choices[0])
    if text not in choices:
        raise BadInput(name, text, f"is not one of {', '.join(choices)}")
    return text


def _with_otel(is_on: bool) -> bool:
    try:
        has_extra = not is_on or find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:  # a package that would contain it is missing
        has_extra = False
    if not has_extra:
        raise ConfigurationError('TICKER_OTEL=on needs OpenTelemetry: pip install "rq-ticker[otel]"')
    return is_on


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
