"""The options of RQ's own command that it would only miss with a traceback: each is looked at before it is handed on."""

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
from wrappers.pipeline import registry

CLASSES = {"worker_class": BaseWorker, "job_class": Job, "queue_class": Queue, "connection_class": Redis}


def check(options: Mapping[str, Any]) -> None:
    """ConfigurationError in one sentence. `options` by the names that RQ's command has for them, as click read them."""
    sys.path.extend(folder for folder in options["path"] if folder not in sys.path)  # as RQ will, where it looks
    if options["url"]:
        check_url(options["url"])
    if options["config"]:
        registry.import_named("--config", options["config"])
    for option, base in CLASSES.items():
        check_class(option, options[option], base)
    check_serializer(options["serializer"])
    for handler in options["exception_handler"]:
        if not callable(found(handler)):
            raise ConfigurationError(f"--exception-handler: there is no function {quoted(handler)} on the import path")
    level = options["logging_level"]
    if level and level not in (known := logging.getLevelNamesMapping()):
        raise ConfigurationError(f"--logging_level: {quoted(level)} is none of {', '.join(known)}")


def check_url(url: str) -> None:
    """Nothing is shown of it: it may hold a password."""
    try:
        Redis.from_url(url).close()
    except ValueError:
        raise ConfigurationError(
            "--url: that text cannot be read; write redis://, rediss:// or unix://, and behind it user:password@host:port/0"
        ) from None


def check_class(option: str, name: str, base: type) -> None:
    there = found(name)
    if not isinstance(there, type) or not issubclass(there, base):
        raise ConfigurationError(
            f"--{option.replace('_', '-')}: {quoted(name)} is no class on the import path that is a {base.__name__}"
        )


def check_serializer(name: str) -> None:
    try:
        resolve_serializer(name)
    except (ImportError, AttributeError, ValueError, NotImplementedError):
        raise ConfigurationError(
            f"--serializer: {quoted(name)} is nothing on the import path that has dumps and loads"
        ) from None


def found(name: str) -> Any:
    """What a dotted name stands for, as RQ finds it; None where there is no such thing."""
    try:
        return import_attribute(name)
    except (ImportError, AttributeError, ValueError):
        return None
