"""django-celery-beat in an environment of its own, which has no rq-ticker: `python beat.py COMMAND`.

migrate    makes its tables
entries    makes 20 entries by its own models
quick      makes others, which are due every few seconds
beat       runs celery beat, which looks at its tables at least each second

DATABASE_URL and REDIS_URL are its database and its broker. Django's schema is public.
"""

import os
import sys
from datetime import UTC, datetime, timedelta

import django
from celery import Celery
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

GIVEN = conninfo_to_dict(os.environ["DATABASE_URL"])
settings.configure(
    INSTALLED_APPS=["django_celery_beat"], USE_TZ=True, TIME_ZONE="UTC", DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": GIVEN["dbname"], "USER": GIVEN.get("user", ""),
        "PASSWORD": GIVEN.get("password", ""), "HOST": GIVEN.get("host", ""), "PORT": GIVEN.get("port", ""),
    }},
)  # fmt: skip
django.setup()

from django_celery_beat import models  # noqa: E402

NOW = datetime.now(UTC)
AFTER, BEFORE = NOW + timedelta(days=3), NOW - timedelta(days=3)


def entries() -> None:
    make, entry = models.IntervalSchedule.objects.create, models.PeriodicTask.objects.create
    minute, hour = make(every=1, period="minutes"), make(every=1, period="hours")
    tiny, often = make(every=500_000, period="microseconds"), make(every=3, period="seconds")
    cron = models.CrontabSchedule.objects.create
    friday = cron(minute="0", hour="6", day_of_month="13", day_of_week="5", timezone="Europe/Berlin")
    weekdays = cron(minute="*/15", hour="8-17", day_of_week="mon-fri", timezone="America/New_York")
    night = cron(minute="0", hour="22-2")
    later = models.ClockedSchedule.objects.create(clocked_time=AFTER)
    passed = models.ClockedSchedule.objects.create(clocked_time=BEFORE)
    sunset = models.SolarSchedule.objects.create(event="sunset", latitude=52.5, longitude=13.4)
    poll = "tests.importing.jobs.poll"
    entry(name="each minute", task=poll, interval=minute, args="[1]", description="a mailbox", last_run_at=NOW)
    entry(
        name="each hour",
        task=poll,
        interval=hour,
        kwargs='{"channel_id": 2}',
        queue="mail",
        priority=3,
        expire_seconds=60,
    )
    entry(name="too often", task=poll, interval=tiny)
    entry(name="often", task=poll, interval=often)
    entry(name="friday the 13th", task=poll, crontab=friday)
    entry(name="office hours", task=poll, crontab=weekdays)
    entry(name="at night", task=poll, crontab=night, enabled=False)
    entry(name="once later", task=poll, clocked=later, one_off=True)
    entry(name="once, passed", task=poll, clocked=passed, one_off=True)
    entry(name="once, done", task=poll, clocked=passed, one_off=True, enabled=False)
    entry(name="at sunset", task=poll, solar=sunset)
    entry(name="begins later", task=poll, interval=hour, start_time=AFTER, expires=AFTER + timedelta(days=9))
    entry(name="expired", task=poll, interval=hour, expires=datetime(2020, 1, 1, tzinfo=UTC))
    entry(name="one off", task=poll, interval=hour, one_off=True)
    entry(name="an exchange", task=poll, interval=hour, exchange="mail", routing_key="mail.eu")
    entry(name="headers", task=poll, interval=hour, headers='{"tenant": "secret"}')
    entry(name="no JSON", task=poll, interval=hour, args="[1,")
    entry(
        name="a datetime",
        task=poll,
        interval=hour,
        kwargs='{"since": [{"__type__": "datetime", "__value__": "secret"}]}',
    )
    entry(name="an object", task=poll, interval=hour, args='{"channel_id": 1}')
    entry(name="celery.backend_cleanup", task="celery.backend_cleanup", crontab=night)


def quick() -> None:
    """Entries that are due every few seconds, instead of the others."""
    models.PeriodicTask.objects.all().delete()
    for number in range(8):
        every, _ = models.IntervalSchedule.objects.get_or_create(every=3 + number % 3, period="seconds")
        models.PeriodicTask.objects.create(name=f"quick-{number}", task="poll", interval=every, args=f"[{number}]")


def main(command: str) -> None:
    if command == "migrate":
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
    elif command == "beat":
        broker = os.environ["REDIS_URL"].replace("unix://", "redis+socket://").replace("db=", "virtual_host=")
        app = Celery(broker=broker)
        app.conf.update(beat_max_loop_interval=1, result_expires=None)
        app.Beat(scheduler="django_celery_beat.schedulers:DatabaseScheduler", loglevel="INFO").run()
    else:
        globals()[command]()


main(sys.argv[1])
