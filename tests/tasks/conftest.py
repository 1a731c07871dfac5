from typing import Any

import psycopg
import pytest

import ticker
from ticker.tasks.fields import Task


@pytest.fixture
def task(environ: dict[str, str], db: psycopg.Connection[Any]) -> Task:
    """A task that is due every minute and has an owner."""
    return ticker.register(db, "poll", every="1m", owner="mail_channels:5")
