"""The sentences that the demo writes below its chart. Its own test and the one of its picture compare with them."""

import re

from tests.sentences import sentence

CLOCK = re.compile(r"\d\d:\d\d")
NARRATION = (
    sentence("demo.channel_deleted", at=CLOCK, channel="shop", id=3, tasks=0),
    sentence("demo.worker_killed", at=CLOCK, channel="archive"),
    sentence("demo.jobs_wait", at=CLOCK, channel="sales", jobs=2),
)
