"""Runs your task functions in a test's own process, with the real ticker, on a clock that only the test moves.

pytest finds the fixtures `ticker_kit` and `ticker_servers` by itself. Django's tests use
`ticker.django.testing.TickerTestCase`. Anything else uses a block:

    with testing.servers() as servers, testing.Kit(servers) as kit:
        ticker.register(kit.db, "mail.fetch", every="1m")
        runs = kit.run_due(until="2h")

This module imports each name on first use, because pytest imports it in every session, even if no test uses the kit.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticker.testing.isolation import Servers, servers
    from ticker.testing.kit import Kit
    from ticker.testing.table import replay

__all__ = ["Kit", "Servers", "servers", "replay"]

_HOME = {"Kit": "kit", "Servers": "isolation", "servers": "isolation", "replay": "table"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ticker.testing' has no attribute {name!r}")
    return getattr(import_module(f"ticker.testing.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
