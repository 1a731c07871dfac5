"""What a function returned or raised, in a form that PostgreSQL can store and a person wants to read."""

import json
import re
import traceback
from pathlib import Path
from typing import Any

from ticker.db import json_text

RESULT_AT_MOST = 4096  # bytes of JSON text
SENTENCE_AT_MOST = 500  # characters
OURS = Path(__file__).parents[1]  # frames of the layers say nothing to the function's author
TRACEBACK_AT_MOST = 64 * 1024  # characters; the end of it tells most

_RETURN = re.compile(r"\r+\n?")
_HIDDEN = {  # what a terminal obeys, or what turns the order of a text around
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
}


def as_json(value: Any) -> str:
    """A function's result as it is kept: small JSON, else the beginning of its repr; empty for None."""
    if value is None:
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_repr(value), ensure_ascii=False)
    if len(text.encode("utf-8", "replace")) > RESULT_AT_MOST or json_text.depth(text) > json_text.NESTED_AT_MOST:
        text = json.dumps(_repr(value), ensure_ascii=False)
    return json_text.without_nul(clean(text))


def _repr(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def sentence(error: BaseException) -> str:
    """An error's class and text."""
    return visible(clean(f"{type(error).__name__}: {_text(error)}"))[:SENTENCE_AT_MOST]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text could not be had)"


def shorten(error: BaseException) -> None:
    """Takes the layers' frames before the function's out of an error's traceback; not where there are none but ours."""
    frames = error.__traceback__
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).is_relative_to(OURS):
        frames = frames.tb_next
    if frames is not None:
        error.__traceback__ = frames


def trace(error: BaseException) -> str:
    """An error's traceback from the function on, its last 64 k characters."""
    told = traceback.TracebackException.from_exception(error)
    while len(told.stack) > 1 and Path(told.stack[0].filename).is_relative_to(OURS):
        del told.stack[0]
    return visible(clean("".join(told.format())[-TRACEBACK_AT_MOST:]))


def clean(text: str) -> str:
    """What PostgreSQL can store: no NUL, no half of a surrogate pair."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")


def visible(text: str) -> str:
    """What a terminal shows and does not obey: no escape sequence, no control character but tab and newline.

    Those of ASCII become their pictures (␀, ␛), the others the mark of what cannot be shown. No text becomes longer. A
    return begins a new line.
    """
    return _RETURN.sub("\n", text).translate(_HIDDEN)
