"""The words of a notice."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.notify.stage import NOTICE, NOW
from ticker.notify import message

# --------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "mail.fetch of app.channels:7 failed 3 times in a row since 11:57 UTC: TimeoutError: slow"),
        ({"failures": 1}, "mail.fetch of app.channels:7 failed: TimeoutError: slow"),
        ({"failures": 0, "owner_type": "", "error": "", "words": "lost"}, "mail.fetch failed: lost"),
        ({"since": NOW - timedelta(days=2), "subject": "Support", "error": "a\nb\x00"},
         r"mail.fetch of app.channels:7 (Support) failed 3 times in a row since 2026-02-27 12:00 UTC: a b\x00"),
        ({"what": "recovered"}, "mail.fetch of app.channels:7 works again; it failed since 11:57 UTC"),
        ({"what": "recovered", "since": None}, "mail.fetch of app.channels:7 works again"),
        ({"what": "auto_paused", "words": "5 failures in a row", "error": ""},
         "mail.fetch of app.channels:7 was paused by the ticker: 5 failures in a row"),
        ({"what": "dead_man", "words": "no success within 3 intervals of 1m"},
         "mail.fetch of app.channels:7 is late: no success within 3 intervals of 1m"),
        ({"what": "dead_man", "words": ""}, "mail.fetch of app.channels:7 is late: no success since 11:57 UTC"),
    ],
)  # fmt: skip
def test_each_kind_has_its_line(changes, text):
    assert message.text(replace(NOTICE, **changes)) == text


def test_a_line_is_printable_and_bounded_whatever_a_task_says():
    evil = "\x1b[2J\u202e\n" * 5000
    line = message.text(replace(NOTICE, error=evil, subject=evil, task_name=evil[:200]))
    assert line.isprintable() and len(line) <= 1000
