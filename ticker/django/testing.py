"""Runs task functions in Django's tests, on Django's test database."""

import os
from typing import Any

from django.test import TransactionTestCase

from ticker.django.apps import database_url
from ticker.settings import current
from ticker.testing import Kit, Servers
from ticker.testing.isolation import redis


class TickerTestCase(TransactionTestCase):
    """A TransactionTestCase whose tests have `self.kit`, a `ticker.testing.Kit` on the test database.

    Django's `TestCase` keeps its rows in a transaction, so the ticker's own connections cannot see them. `redis_url`
    names an empty Redis database. By default, each class starts an embedded server.
    """

    kit: Kit
    redis_url = ""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls._queues = cls.enterClassContext(redis({**os.environ, "REDIS_URL": cls.redis_url}))

    def setUp(self) -> Any:
        super().setUp()
        servers = Servers(database_url(), self._queues, current().schema, empties_tables=False)  # Django empties them
        self.kit = self.enterContext(Kit(servers))
