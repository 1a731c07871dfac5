"""The words of a notice."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.notify.stage import NOTICE, NOW
from tests.sentences import sentence
from ticker.notify import message

# --------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, sentence("notices.failed_in_a_row", task="mail.fetch of app.channels:7", number=3, since="11:57", error="TimeoutError: slow")),
        ({"failures": 1}, sentence("notices.failed", task="mail.fetch of app.channels:7", error="TimeoutError: slow")),
        ({"failures": 0, "owner_type": "", "error": "", "words": "lost"}, sentence("notices.failed", task="mail.fetch", error="lost")),
        ({"since": NOW - timedelta(days=2), "subject": "Support", "error": "a\nb\x00"},
         sentence("notices.failed_in_a_row", task="Support (mail.fetch of app.channels:7)", number=3, since="2026-02-27 12:00", error="a b\\x00")),
        ({"what": "recovered"}, sentence("notices.works_again_since", task="mail.fetch of app.channels:7", since="11:57")),
        ({"what": "recovered", "since": None}, sentence("notices.works_again", task="mail.fetch of app.channels:7")),
        ({"what": "auto_paused", "words": "5 failures in a row", "error": ""},
         sentence("notices.auto_paused", task="mail.fetch of app.channels:7", reason="5 failures in a row")),
        ({"what": "dead_man", "words": "no success within 3 intervals of 1m"},
         sentence("notices.late", task="mail.fetch of app.channels:7", reason="no success within 3 intervals of 1m")),
        ({"what": "unknown_function", "words": "why"},
         sentence("notices.cannot_run", task="mail.fetch of app.channels:7", reason="why")),
        ({"what": "dead_man", "words": ""}, sentence("notices.late_since", task="mail.fetch of app.channels:7", since="11:57")),
    ],
)  # fmt: skip
def test_each_kind_has_its_line(changes, text):
    assert message.text(replace(NOTICE, **changes)) == text


def test_a_line_is_printable_and_bounded_whatever_a_task_says():
    evil = "\x1b[2J\u202e\n" * 5000
    line = message.text(replace(NOTICE, error=evil, subject=evil, task_name=evil[:200]))
    assert line.isprintable() and len(line) <= 1000
