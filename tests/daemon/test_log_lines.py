"""The log lines of a real ticker, as text and as JSON."""

import json
import re

import pytest

from tests.running import Ticking

pytestmark = pytest.mark.slow


def test_with_json_each_line_is_an_object(environ, db):
    with Ticking(TICKER_LOG="json") as ticking:
        ticking.says('"event": "tick"')
        assert ticking.stop() == 0
    lines = [json.loads(line) for line in ticking.lines]
    assert [lines[0]["event"], lines[-1]["event"]] == ["ticker_started", "ticker_stopped"]
    tick = next(line for line in lines if line["event"] == "tick")
    assert (tick["due"], tick["errors"], tick["left"]) == (0, 0, {}) and tick["took"] >= 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", tick["time"])
