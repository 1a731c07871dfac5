"""A configuration module of rq cron, with 20 entries; `rq cron` and the reader import it."""

from datetime import UTC, datetime

from rq.cron import register

from tests.importing.jobs import Report, poll, report


def nested() -> None:
    def inner() -> None: ...

    register(inner, "polling", interval=60)


print("a module may print")  # noqa: T201
register(poll, "polling", interval=60, args=(1,), name="fetch")
register(poll, "polling", interval=60, args=(2,), name="fetch")
register(poll, "polling", interval=60, args=(3,), name="fetch")
register(poll, "polling", interval=300, kwargs={"channel_id": 4}, job_timeout=20, name="mail-4")
register(poll, "mail", interval=300, kwargs={"channel_id": 5}, job_timeout=20, meta={"team": "mail"}, name="mail-5")
register(poll, "polling", interval=5, job_timeout=1, name="often")
register(poll, "polling", interval=600, job_timeout=-1, name="endless")
register(
    report, "reports", cron="0 6 * * 1-5", args=("eu", "us"), result_ttl=80, ttl=60, failure_ttl=70, name="weekdays"
)
register(report, "reports", cron="0 6 13 * 5", name="either day")
register(report, "reports", cron="*/5 * * * * 30", name="second last")
register(report, "reports", cron="0 6 L * *", name="last day")
register(report, "reports", cron="0 22-2 * * *", name="wraps")
register(report, "reports", cron="0 6 L * 5", name="last day or Friday")
register(report, "reports", interval=3600, kwargs={"since": datetime(2026, 1, 1, tzinfo=UTC)}, name="a datetime")
register(report, "reports", interval=3600, args=({"ids": {7}},), name="a set")
register(report, "reports", interval=3600, meta={"key": b"secret"}, name="bytes")
register(Report().send, "reports", interval=3600, name="a method")
register(lambda: None, "reports", interval=3600, name="a lambda")
register(print, "reports", interval=3600, name="a builtin")
nested()
