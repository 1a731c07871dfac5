"""Serializes what a function returned or raised, so that PostgreSQL can store it and people can read it."""

import json
import re
import traceback
from pathlib import Path
from typing import Any

from ticker.db import json_text

RESULT_AT_MOST = 4096  # bytes of JSON text
REPR_AT_MOST = 200  # characters
SENTENCE_AT_MOST = 500  # characters
OURS = Path(__file__).parents[1]  # our frames do not help the function's author
INVOKE = str(Path(__file__).with_name("invoke.py"))
TRACEBACK_AT_MOST = 64 * 1024  # characters, from the end, which tells the most

_RETURN = re.compile(r"\r+\n?")
_HIDDEN = {  # control characters of terminals, and those that change a text's direction
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
}


def as_json(value: Any) -> tuple[str, str]:
    """Returns a function's result for storage, and a sentence if it had to be changed. Both are empty for None.

    Small JSON is stored as it is, and anything else as the beginning of its repr.
    """
    if value is None:
        return "", ""
    kept = f"it was kept as text, cut to {REPR_AT_MOST} characters"
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return _as_text(value), f"its result was not JSON; {kept}"
    if len(text) > RESULT_AT_MOST or json_text.size(clean(text)) > RESULT_AT_MOST:
        return _as_text(value), f"its result was over {RESULT_AT_MOST} bytes of JSON; {kept}"
    if json_text.depth(text) > json_text.NESTED_AT_MOST:
        return _as_text(value), f"its result was nested over {json_text.NESTED_AT_MOST} deep; {kept}"
    if json_text.has_long_number(text):
        return _as_text(value), f"its result had a number with over {json_text.DIGITS_AT_MOST} digits; {kept}"
    return json_text.without_nul(clean(text)), ""


def _as_text(value: Any) -> str:
    return json_text.without_nul(clean(json.dumps(_repr(value), ensure_ascii=False)))


def _repr(value: Any) -> str:
    try:
        return repr(value)[:REPR_AT_MOST]
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def sentence(error: BaseException) -> str:
    """Returns an error's class and text."""
    return visible(clean(f"{type(error).__name__}: {_text(error)}"))[:SENTENCE_AT_MOST]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def shorten(error: BaseException) -> None:
    """Makes an error's traceback begin at the function, which is called below the last frame of `invoke.py`.

    The frames above are ours, and those of an event loop or a thread. If it has no frame of the function, ours are kept.
    """
    first = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == INVOKE:
            first = frame.tb_next or frame
        frame = frame.tb_next
    function = first
    while function is not None and Path(function.tb_frame.f_code.co_filename).is_relative_to(OURS):
        function = function.tb_next
    error.__traceback__ = function or first


def trace(error: BaseException) -> str:
    """Returns an error's traceback from the function on, cut to its last 64 k characters."""
    shorten(error)
    return visible(clean("".join(traceback.format_exception(error))[-TRACEBACK_AT_MOST:]))


def clean(text: str) -> str:
    """Returns the text as PostgreSQL can store it, without NUL or unpaired surrogates."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode("utf-8")


def visible(text: str) -> str:
    """Returns the text as a terminal can show it, without escape sequences or control characters except tab and
    newline.

    ASCII control characters become their pictures (␀, ␛), and others become the replacement character. No text becomes
    longer. A carriage return begins a new line.
    """
    return _RETURN.sub("\n", text).translate(_HIDDEN)
