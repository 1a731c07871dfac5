"""Configures the application: takes its settings from Django's, and empties its tables after each TransactionTestCase."""

import os
from typing import Any
from urllib.parse import quote, urlencode

from django.apps import AppConfig
from django.conf import settings
from django.db import connections
from django.db.models.signals import post_migrate
from django.test import utils
from psycopg.pq import Conninfo

from ticker.db import tables
from ticker.settings import current

OF_MIGRATIONS = ("installation", "templates")  # migrations write their rows, which stay, as triggers do


class TickerConfig(AppConfig):
    name = "ticker.django"
    label = "ticker"

    def ready(self) -> None:
        """Copies Django's TICKER_... settings into environment variables that are not set yet. TICKER_REDIS_URL becomes
        REDIS_URL.
        """
        for name in filter(lambda name: name.startswith("TICKER_"), dir(settings)):
            variable = "REDIS_URL" if name == "TICKER_REDIS_URL" else name
            if (value := getattr(settings, name)) is not None:
                os.environ.setdefault(variable, in_environment(value))
        post_migrate.connect(empty, sender=self)


def database_url() -> str:
    """Returns the URL of the database that TICKER_DATABASE names, or else of `default`. In tests, it is the test
    database.
    """
    connection = connections[getattr(settings, "TICKER_DATABASE", "default")]
    if connection.vendor != "postgresql":
        return os.environ.get("DATABASE_URL", "")
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    given = {name: str(value) for name, value in connection.get_connection_params().items() if name in known}
    return f"postgresql:///?{urlencode(given, quote_via=quote)}"


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
