"""The rules of other schedulers' cron texts, compared with their packages: the same times, or a refusal."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.sentences import sentence
from ticker.importing import dialects
from ticker.schedules import cron, kinds, zones

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
START, YEARS = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=5 * 365)
CHANGES = {zone: zones.changes(START, ZoneInfo(zone), YEARS) for zone in ZONES}
FIELDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
NAMES = {"month": cron.MONTHS, "weekday": cron.WEEKDAYS}
SPECIAL = {
    "rq-scheduler": {"day": ("L", "?"), "weekday": ("L5", "L0", "?", "fri-sun")},
    "rq-cron": {"day": ("L", "?", "15W"), "weekday": ("5#2", "mon#1,mon#3", "L5", "L0", "1#1,2#2", "?", "fri-mon")},
    "django-celery-beat": {"day": ("L",), "weekday": ("Monday", "5#2", "friday-monday")},
}

Next = Callable[[datetime], datetime | None]


def term(dice: random.Random, source: str, name: str) -> str:
    least, most = FIELDS[name]
    low, high = dice.randint(least, most), dice.randint(least, most)
    if name in NAMES and dice.random() < 0.2:
        return dice.choice(NAMES[name])
    if dice.random() < 0.9 and high < low:
        low, high = high, low
    step = dice.choice((2, 3, 5, 7, 10, 15, 20, 30))
    return dice.choice((f"{low}", f"{low}", f"{low}-{high}", f"*/{step}", f"{low}-{high}/{step}", f"{low}/{step}"))


def part(dice: random.Random, source: str, name: str) -> str:
    if dice.random() < (0.15 if name in ("minute", "hour") else 0.55):
        return "*"
    if dice.random() < 0.1 and name in SPECIAL[source]:
        return dice.choice(SPECIAL[source][name])
    return ",".join(term(dice, source, name) for _ in range(dice.choice((1, 1, 1, 2, 3))))


def expression(dice: random.Random, source: str) -> str:
    parts = [part(dice, source, name) for name in FIELDS]
    years = dice.choice(("*", "2027", "2026-2028", "2026/2", "*/4"))
    second = dice.choice(("*/20", "0", "30", "7,8"))
    if source != "django-celery-beat" and dice.random() < 0.2:
        with_year = dice.random() < 0.5
        if source == "rq-cron":
            parts += [second, years] if with_year else [second]
        else:
            parts = [second, *parts, years] if with_year else [*parts, years]
    return " ".join(parts)


def of_crontab(text: str, zone: str) -> Next:
    from crontab import CronTab

    rule = CronTab(text)

    def following(after: datetime) -> datetime | None:
        """Returns what rq-scheduler computes, which knows only the zone of its host."""
        shown = after.astimezone().replace(tzinfo=None)
        while (shown := rule.next(now=shown, default_utc=True, return_datetime=True)) is not None:
            if (at := shown.astimezone(UTC)) > after:
                return at
        return None

    return following


def of_croniter(text: str, zone: str) -> Next:
    from croniter import CroniterBadDateError
    from rq.cron import CronJob

    job = CronJob("default", print, cron=text)

    def following(after: datetime) -> datetime | None:
        job.latest_enqueue_time = after
        try:
            return job.get_next_enqueue_time()
        except CroniterBadDateError:
            return None

    return following


def of_celery(text: str, zone: str) -> Next:
    from celery.schedules import crontab

    now = START
    minute, hour, day, month, weekday = text.split()
    rule = crontab(minute, hour, weekday, day, month, nowfun=lambda: now)
    rule.tz = ZoneInfo(zone)

    def following(after: datetime) -> datetime | None:
        """Returns what beat computes, whose last runs are in the zone of the schedule."""
        nonlocal now
        at = now = after.astimezone(rule.tz)
        while at <= after:
            now = at.astimezone(rule.tz)
            at = now.astimezone(UTC) + rule.remaining_estimate(now)
        return at

    return following


PACKAGES = {"rq-scheduler": of_crontab, "rq-cron": of_croniter, "django-celery-beat": of_celery}


def sequence(following: Next, after: datetime, count: int) -> list[datetime]:
    result: list[datetime] = []
    while len(result) < count and (at := following(result[-1] if result else after)) is not None:
        result.append(at)
    return result


@contextmanager
def host_in(zone: str) -> Iterator[None]:
    """Puts this process into a zone: rq-scheduler and rq cron know no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


def compared(source: str, seed: int, count: int) -> int:
    """Compares random expressions, and returns how many were translated."""
    dice, translated = random.Random(seed), 0
    for _ in range(count):
        text, zone = expression(dice, source), dice.choice(ZONES)
        result = dialects.translate(source, text, zone)
        with host_in(zone):
            try:
                package = PACKAGES[source](text, zone)
            except ValueError:
                assert result.refusal or not result.times(START, 1), (source, text, result.wanted)
                continue
            if result.refusal:
                continue
            translated += 1
            begins = [START + dice.random() * YEARS, *(change - timedelta(hours=5) for change in CHANGES[zone])]
            for begin in begins:
                begin = begin.replace(microsecond=0)
                expected, found = sequence(package, begin, 12), result.times(begin, 12)
                assert found == expected, (source, text, zone, begin.isoformat(), found, expected)
        in_utc = dialects.translate(source, text, "UTC")
        schedule = kinds.detect(next(iter(in_utc.wanted.values())), "UTC")
        assert kinds.times(schedule, begins[0], 12) == in_utc.times(begins[0], 12), (source, text, in_utc.wanted)
    return translated


@pytest.mark.sources
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", PACKAGES)
def test_two_thousand_texts_have_the_times_of_the_package_or_are_refused(source):
    assert compared(source, 1, 2000) > 400


@pytest.mark.parametrize(
    ("source", "text", "wanted"),
    [
        ("rq-scheduler", "*/5 * * * * *", {"cron": "*/5 * * * *"}),
        ("rq-cron", "*/5 * * * * *", {"cron": "* */5 * * * *"}),
        ("rq-scheduler", "0 6 13 * 5", {"calendar": "Fri *-*-13 06:00:00"}),
        ("rq-cron", "0 6 13 * 5", {"cron": "0 6 13 * 5"}),
        ("django-celery-beat", "0 6 13 * fri", {"calendar": "Fri *-*-13 06:00:00"}),
        ("rq-cron", "0 6 */2 * 5", {"cron": "0 6 1-31/2 * 5"}),  # either day; with */2, ours needs both
        ("rq-scheduler", "0 6 L * *", {"calendar": "*-*~01 06:00:00"}),
        ("rq-scheduler", "0 6 * * L5", {"calendar": "Fri *-*~01..07 06:00:00"}),
        ("rq-cron", "0 6 * * 5#2", {"calendar": "Fri *-*-08..14 06:00:00"}),
        ("rq-cron", "0 22-2 * * *", {"cron": "0 0-2,22,23 * * *"}),
        ("django-celery-beat", "0 6 * * Monday-friday", {"cron": "0 6 * * 1-5"}),
        ("rq-scheduler", "10 10 10 1 2 * 2027", {"cron": "10 10 10 1 2 * 2027"}),
        ("rq-cron", "@midnight", {"cron": "0 0 * * *"}),
        ("crontab", "0 6 13 * 5", {"cron": "0 6 13 * 5"}),
    ],
)
def test_a_meaning_is_translated(source, text, wanted):
    assert dialects.translate(source, text, "Europe/Berlin").wanted == {**wanted, "zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("source", "text", "reason"),
    [
        ("rq-scheduler", "0 22-2 * * *", sentence("imports.unread", term="'22-2'", field="hour")),
        ("rq-cron", "0 5-5 * * *", sentence("imports.unread", term="'5-5'", field="hour")),  # croniter: the full cycle
        ("rq-cron", "0 6 15W * *", sentence("imports.unread", term="'15w'", field="day of month")),
        ("rq-cron", "0 6 L * 5", sentence("imports.two_tasks")),
        ("rq-cron", "0 6 * * 1#1,2#2", sentence("imports.two_tasks")),
        ("rq-scheduler", "0 6 L,15 * *", sentence("imports.mixes", field="day of month")),
        (
            "django-celery-beat",
            "0 6 * * 7",
            sentence("imports.value", field="day of week", value="'7'", most=6),
        ),
        ("django-celery-beat", "5/15 * * * *", sentence("imports.unread", term="'5/15'", field="minute")),
        ("django-celery-beat", "*/5 * * * * *", sentence("imports.fields", number=6, allowed=5)),
        ("rq-scheduler", "0 0 31 2 *", sentence("errors.never_fires")),
        ("crontab", "@reboot", sentence("schedules.no_shorthand")),
    ],
)
def test_a_text_without_a_sure_meaning_is_refused(source, text, reason):
    refused = dialects.translate(source, text, "UTC")
    assert not refused.wanted
    assert reason.within(refused.refusal)


def test_an_unknown_zone_is_refused():
    assert sentence("errors.no_zone_of_the_iana_database").within(
        dialects.translate("rq-cron", "0 6 * * *", "Mars/Olympus").refusal
    )


@pytest.mark.parametrize(
    ("source", "shown"), [("rq-cron", "03:30"), ("django-celery-beat", "03:30"), ("crontab", None)]
)
def test_a_skipped_time_is_where_the_source_puts_it(source, shown):
    berlin = ZoneInfo("Europe/Berlin")
    times = dialects.translate(source, "30 2 * * *", berlin.key).times
    before = datetime(2027, 3, 27, 12, tzinfo=UTC)
    assert (times and f"{times(before, 1)[0].astimezone(berlin):%H:%M}") == shown
