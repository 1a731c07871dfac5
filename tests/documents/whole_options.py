"""A hook of MkDocs: an option such as `--owner-type` stays in one line. Without it, browsers break the line at a hyphen."""

import re
from typing import Any

TEXT = re.compile(r">[^<]*--[^<]*<")
OPTION = re.compile(r"--[a-z][\w-]*")


def on_page_content(html: str, **_: Any) -> str:
    return TEXT.sub(lambda text: OPTION.sub(r'<span class="option">\g<0></span>', text[0]), html)
