"""Configures the application: takes its settings from Django's, and empties its tables after each TransactionTestCase."""

import os
from collections.abc import Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import quote, urlencode

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate
from django.test import utils
from psycopg.pq import Conninfo

from ticker.db import tables
from ticker.errors import FRAMEWORK_NAMES
from ticker.settings import add_source, current
from ticker.tasks.fields import DEFAULTS

URLS = ("TICKER_DATABASE_URL", "TICKER_REDIS_URL")
OF_MIGRATIONS = ("installation", "templates")  # migrations write their rows, which stay, as triggers do


class TickerConfig(AppConfig):
    name = "ticker.django"
    label = "ticker"

    def ready(self) -> None:
        """Lets each process of Django, and its forks, have the settings: a worker of django-rq, too.

        Copies TICKER_... settings into environment variables that are not set yet. The URLs of the servers stay out of
        the environment, because the settings of other programs may read them there.
        """
        for name in filter(lambda name: name.startswith("TICKER_") and name not in URLS, dir(settings)):
            if (value := getattr(settings, name)) is not None:
                os.environ.setdefault(name, in_environment(value))
        add_source(partial(variables, outside=os.environ.get("DATABASE_URL")))
        is_ours = connections[alias()].vendor == "postgresql"
        if is_ours or "DATABASE_URL" not in os.environ:
            FRAMEWORK_NAMES["DATABASE_URL"] = "DATABASES" if is_ours else "TICKER_DATABASE_URL"
        if "REDIS_URL" not in os.environ:
            is_set = getattr(settings, "TICKER_REDIS_URL", None) or not redis_url()
            FRAMEWORK_NAMES["REDIS_URL"] = "TICKER_REDIS_URL" if is_set else "RQ_QUEUES"
        post_migrate.connect(empty, sender=self)


def variables(environ: Mapping[str, str], outside: str | None) -> dict[str, str]:
    """Returns the URLs of the servers.

    A DATABASE_URL from `outside`, where Django was started, names the database as Django's settings read it. One that
    was set in this process since, as by the test kit, takes precedence.
    """
    found = {} if environ.get("REDIS_URL") else {"REDIS_URL": redis_url()}
    if environ.get("DATABASE_URL") == outside:
        found["DATABASE_URL"] = database_url()
    return found


def alias() -> str:
    """Returns the name in DATABASES of the database with our tables."""
    return str(getattr(settings, "TICKER_DATABASE", "default"))


def database_url() -> str:
    """Returns the URL of the database that TICKER_DATABASE names, or else of `default`. In tests, it is the test
    database.
    """
    connection = connections[alias()]
    if connection.vendor != "postgresql":
        return str(os.environ.get("DATABASE_URL") or getattr(settings, "TICKER_DATABASE_URL", None) or "")
    given = {name: str(value) for name, value in connection.get_connection_params().items() if name in known_options()}
    return f"postgresql:///?{urlencode(given, quote_via=quote)}"


@cache
def known_options() -> set[str]:
    return {option.keyword.decode() for option in Conninfo.get_defaults()}


def redis_url() -> str:
    """Returns TICKER_REDIS_URL, or else the URL of the queue `polling`, of `default`, or of the first of django-rq's
    RQ_QUEUES. The connections of a cache have no URL. With sentinels, django-rq reads CONNECTION_KWARGS before other keys.
    """
    if url := getattr(settings, "TICKER_REDIS_URL", None):
        return str(url)
    queues = getattr(settings, "RQ_QUEUES", None) or {"": {}}
    queue = queues.get(DEFAULTS["queue"]) or queues.get("default") or next(iter(queues.values()))
    hosts, path = queue.get("SENTINELS"), queue.get("UNIX_SOCKET_PATH")
    given = {name.lower(): value for name, value in queue.items()} | ((hosts and queue.get("CONNECTION_KWARGS")) or {})
    user, password = (quote(str(given.get(name) or ""), safe="") for name in ("username", "password"))
    account, database = f"{user}:{password}@" if user or password else "", given.get("db")
    scheme = "unix" if path else "rediss" if given.get("ssl") else "redis"
    if "URL" in queue:
        return (
            str(queue["URL"])
            if database is None
            else f"{queue['URL']}{'&' if '?' in queue['URL'] else '?'}db={database}"
        )
    if hosts:
        own = {"ssl": queue.get("SSL")} | (queue.get("SENTINEL_KWARGS") or {})
        options = {f"sentinel_{name}": value for name in ("username", "password") if (value := own.get(name))}
        if bool(own["ssl"]) != (scheme == "rediss"):
            options["sentinel_ssl"] = "yes" if own["ssl"] else "no"
        places = ",".join(f"{host}:{port}" for host, port in hosts)
        address = f"{scheme}+sentinel://{account}{places}/{queue.get('MASTER_NAME', '')}/{database or 0}"
        return address + (f"?{urlencode(options, quote_via=quote)}" if options else "")
    if path or "HOST" in queue:
        at = path or f"{queue['HOST']}:{queue.get('PORT', 6379)}"
        return f"{scheme}://{account}{at}?db={database or 0}"
    return ""


def in_environment(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def empty(using: str, **more: Any) -> None:
    """Empties the tables after the flush that ends a TransactionTestCase. Ignores `migrate`, which passes a plan."""
    is_flush_of_tests = "plan" not in more and hasattr(utils._TestState, "saved_data")
    if is_flush_of_tests and connections[using].vendor == "postgresql":
        names = [table.name for table in tables.metadata.sorted_tables if table.name not in OF_MIGRATIONS]
        there = "SELECT string_agg(format('%%I.%%I', schemaname, tablename), ', ') FROM pg_tables"
        with connections[using].cursor() as cursor:
            cursor.execute(f"{there} WHERE schemaname = %s AND tablename = ANY (%s)", [current().schema, names])
            if found := cursor.fetchone()[0]:
                cursor.execute(f"TRUNCATE {found}")
