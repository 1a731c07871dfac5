"""Text from outside in the log: no message, field or traceback can look like a line of ours, or move a terminal's cursor."""

import io
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from ticker import logs

FORGED = "2026-03-01T12:00:00.000Z INFO ticker tick due=0"
BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[1A\x1b[2K", "\x1b[2J", "\b" * 3)
OURS = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z [A-Z]+ forged ")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the logger `forged` has written as text. Another handler has formatted each record before."""
    stream = io.StringIO(newline="")
    monkeypatch.setattr(sys, "stdout", stream)
    logger = logging.getLogger("forged")
    logs.send(logger, "text")
    logger.handlers.insert(0, logging.StreamHandler(io.StringIO()))
    yield stream
    logger.handlers, logger.propagate = [], True


def raised(words: str) -> Exception:
    try:
        try:
            raise KeyError(words)
        except KeyError as error:
            error.add_note(words)
            raise ValueError(words) from error
    except ValueError as error:
        return error


@pytest.mark.parametrize("sort", BREAKS, ids=ascii)
def test_a_field_does_not_begin_a_line(sort: str, written: io.StringIO) -> None:
    logging.getLogger("forged").warning("channel %s fails: %s", "kept", f"no{sort}{FORGED}{sort}")
    text = written.getvalue()
    [line] = text.removesuffix("\n").splitlines()
    assert OURS.match(line) and FORGED in line and line.isprintable() and text.endswith("\n")


@pytest.mark.parametrize("sort", BREAKS, ids=ascii)
def test_a_message_of_several_lines_is_of_one_record(sort: str, written: io.StringIO) -> None:
    """As RQ's are, which contain a traceback."""
    logging.getLogger("forged").warning("job %s failed\n%s", "7", f"no{sort}{FORGED}")
    text = written.getvalue()
    first, *more = text.removesuffix("\n").splitlines()
    assert OURS.match(first) and text.replace("\n", "").isprintable()
    assert more and all(line.startswith("  | ") for line in more)


@pytest.mark.parametrize("sort", BREAKS, ids=ascii)
@pytest.mark.parametrize("stack", [False, True], ids=["error", "stack"])
def test_a_traceback_does_not_begin_a_line(stack: bool, sort: str, written: io.StringIO) -> None:
    error = raised(f"no{sort}{FORGED}")
    logging.getLogger("forged").error("failed", exc_info=error, stack_info=stack)
    text = written.getvalue()
    first, *rest = text.removesuffix("\n").splitlines()
    assert OURS.match(first) and text.replace("\n", "").isprintable()
    assert rest[0] == "  | Traceback (most recent call last):"
    assert all(line.startswith("  | ") for line in rest)
    assert any("ValueError: no" in line for line in rest)


def test_what_people_wrote_is_left_as_it_is(written: io.StringIO) -> None:
    logging.getLogger("forged").warning("task=%s: %s", 7, "caf\u00e9 \u65e5\u672c\u8a9e 'C:\\new' 100%")
    assert written.getvalue().endswith(" WARNING forged task=7: caf\u00e9 \u65e5\u672c\u8a9e 'C:\\new' 100%\n")
