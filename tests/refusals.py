"""Settings with which a process refuses to start, and its errors. No error shows a password."""

from collections.abc import Callable
from typing import Any

import pytest

from ticker.errors import ConfigurationError
from ticker.queue import inspect
from ticker.settings import Settings

SECRET = "s3cr3t"


def refused(check: Callable[[], Any]) -> str:
    """Returns the sentence of the ConfigurationError that `check` raises."""
    with pytest.raises(ConfigurationError) as error:
        check()
    sentence = str(error.value)
    assert SECRET not in sentence and sentence.isprintable() and "Traceback" not in sentence
    assert error.value.__cause__ is None or SECRET not in str(error.value.__cause__)
    return sentence


def not_startable(settings: Settings, *queues: str) -> str:
    """Returns the error with which a process refuses to start."""
    return refused(lambda: inspect.check(settings, queues or None))
