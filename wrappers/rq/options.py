"""Checks the options of RQ's own command that would otherwise fail there with a traceback."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from redis import Redis
from rq import Queue
from rq.job import Job
from rq.serializers import resolve_serializer
from rq.utils import import_attribute
from rq.worker import BaseWorker

from ticker.errors import ConfigurationError, quoted
from ticker.queue.sentinel import Client
from wrappers.pipeline import registry

CLASSES = {"worker_class": BaseWorker, "job_class": Job, "queue_class": Queue, "connection_class": Redis}


def check(options: Mapping[str, Any]) -> None:
    """Checks the options that click parsed, under their names in RQ's command. Raises ConfigurationError with one
    sentence.
    """
    sys.path.extend(folder for folder in options["path"] if folder not in sys.path)  # as RQ will do
    if options["url"]:
        check_url(options["url"])
    if options["config"]:
        registry.import_named("--config", options["config"])
    for option, base in CLASSES.items():
        check_class(option, options[option], base)
    check_serializer(options["serializer"])
    for handler in options["exception_handler"]:
        if not callable(imported(handler)):
            raise ConfigurationError(f"--exception-handler: there is no function {quoted(handler)} on the import path")
    level = options["logging_level"]
    if level and level not in (known := logging.getLevelNamesMapping()):
        raise ConfigurationError(f"--logging_level: {quoted(level)} is not one of {', '.join(known)}")


def check_url(url: str) -> None:
    """Checks a URL. The error does not quote it, because it may contain a password."""
    try:
        Client.from_url(url).close()
    except ValueError:
        raise ConfigurationError(
            "--url: the value is not a valid URL; write redis://, rediss:// or unix://, followed by user:password@host:port/0"
        ) from None


def check_class(option: str, name: str, base: type) -> None:
    given = imported(name)
    if not isinstance(given, type) or not issubclass(given, base):
        raise ConfigurationError(
            f"--{option.replace('_', '-')}: {quoted(name)} is not a class on the import path that inherits from {base.__name__}"
        )


def check_serializer(name: str) -> None:
    try:
        resolve_serializer(name)
    except (ImportError, AttributeError, ValueError, NotImplementedError):
        raise ConfigurationError(
            f"--serializer: {quoted(name)} is not an object on the import path with dumps and loads"
        ) from None


def imported(name: str) -> Any:
    """Returns the object with this dotted name, as RQ imports it; None if there is none."""
    try:
        return import_attribute(name)
    except (ImportError, AttributeError, ValueError):
        return None
