"""Writes RQ's log lines in our form, and leaves out those that repeat ours."""

import logging

from ticker import logs
from ticker.engine import jobs

log = logging.getLogger("rq.worker")


def set_up(form: str, *, has_form: bool) -> None:
    """Writes RQ's lines as ours, unless the form is text and the user has chosen one (`has_form`), or has set up a
    handler.
    """
    rq = logging.getLogger("rq")
    if form == "json" or not (has_form or rq.hasHandlers()):
        logs.send(rq, form)
    log.addFilter(is_news)


def is_news(record: logging.LogRecord) -> bool:
    """Returns False for lines about the ordinary course of our jobs: our line about the run says the same."""
    if record.levelno != logging.INFO or log.isEnabledFor(logging.DEBUG):
        return True
    args = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(one, str) and jobs.installation_of(one) for one in args)
