"""Writes the log lines of our processes to standard output, where a Procfile's runner collects them."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def to_stdout(level: int = logging.INFO) -> None:
    """Sends the messages of the loggers `ticker` and `ticker.run` to standard output. Leaves other loggers as they are."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("ticker")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
