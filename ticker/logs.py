"""Log lines of our processes: one line each, on standard output, where a Procfile's runner collects them."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def to_stdout(level: int = logging.INFO) -> None:
    """Sends the loggers `ticker` and `ticker.run` to standard output; other loggers are left as they are."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("ticker")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
