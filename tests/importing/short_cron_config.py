"""A configuration module of rq cron, whose entries are due every few seconds."""

from rq.cron import register

from tests.importing.jobs import poll

register(poll, "polling", interval=2, name="two", job_timeout=1)
register(poll, "polling", interval=3, name="three", job_timeout=1)
register(poll, "polling", interval=2, args=(1,), name="twin", job_timeout=1)
register(poll, "polling", interval=4, args=(2,), name="twin", job_timeout=1)
