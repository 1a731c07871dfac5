r"""The sentences that users read: one golden file per interface (`cli.toml`, `why.toml`, ...), one key per sentence.

    assert err == sentence("cli.unknown_task", task="77")           # the whole text
    assert sentence("why.paused", by="anna").within(page)           # somewhere in a longer one
    with pytest.raises(BadInput, check=sentence("errors.over_the_limit", limit="24s").within): ...

A test passes the values that the sentence must contain, whatever its wording: numbers, names, the remedy. The file has the
text, with `{task}` in place of the value. A value that varies may be a compiled pattern.

To change a wording, edit the source, run `pytest --rewrite-sentences` on the tests that fail, read the file's diff, and
run the tests again without the option: two tests that disagree on a sentence still fail. A new text is accepted only if it
contains every value and resembles the old one. Otherwise, edit the file by hand.
"""

import fcntl
import json
import re
import tomllib
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ALIKE = 0.5  # from 0 to 1: a text below it is a different sentence
rewriting = False  # set by --rewrite-sentences


class Sentence:
    """Equals its own text. `within`, `begins` and `ends` look for it in a longer text or in a list."""

    def __init__(self, key: str, values: dict[str, Any]) -> None:
        self.face, self.key = key.split(".")
        assert self.key in golden(self.face), f"{key} is in no file; add it to tests/sentences/{self.face}.toml"
        self.template = golden(self.face)[self.key]
        self.values = {name: shape(value) for name, value in values.items()}
        placeholders = set(re.findall(r"\{(\w+)\}", self.template))
        assert placeholders == {*values}, f"{key} names {sorted(placeholders)}, and the test {sorted(values)}"
        parts = re.split(r"\{(\w+)\}", self.template)
        self.pattern = "".join(self.values[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))

    def __repr__(self) -> str:
        return re.sub(r"\\([^\w])", r"\1", self.pattern)

    def __eq__(self, text: object) -> bool:
        return bool(re.fullmatch(self.pattern, str(text))) or (rewriting and self.rewrite(str(text)))

    def within(self, text: object) -> bool:
        return self.stands_in(text, self.pattern)

    def begins(self, text: object) -> bool:
        return self.stands_in(text, rf"\A{self.pattern}")

    def ends(self, text: object) -> bool:
        return self.stands_in(text, rf"{self.pattern}\Z")

    def times(self, text: str) -> int:
        return len(re.findall(self.pattern, text)) or int(self.within(text))

    def stands_in(self, text: object, pattern: str) -> bool:
        if isinstance(text, list | tuple):
            return any(self == line for line in text)
        return bool(re.search(pattern, str(text))) or (rewriting and self.rewrite(self.nearest(str(text))))

    def nearest(self, text: str) -> str:
        """Returns the run of words most similar to the sentence, among those that contain every value."""
        words = [match.span() for match in re.finditer(r"\S+", text)]
        long = max(len(repr(self).split()), 2)
        ends = ((start, words[i + long - 2 : i + 2 * long]) for i, (start, _) in enumerate(words))
        runs = (text[start:end] for start, last in ends for _, end in last)
        return max((run for run in runs if self.names_all(run)), key=self.likeness, default="")

    def names_all(self, text: str) -> bool:
        return all(re.search(value, text) for value in self.values.values())

    def likeness(self, text: str) -> float:
        return SequenceMatcher(None, repr(self), text, autojunk=False).ratio()

    def rewrite(self, text: str) -> bool:
        """Writes the observed text as the sentence, unless it is too different or does not contain every value."""
        if not self.names_all(text) or self.likeness(text) < ALIKE:
            return False
        named = sorted((f"(?P<{name}>{bare_or_whole(value, text)})" for name, value in self.values.items()), key=len)
        text = re.sub("|".join(named[::-1]), lambda match: f"{{{match.lastgroup}}}", text) if named else text
        with (FOLDER / f"{self.face}.toml").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            sentences = tomllib.loads(file.read()) | {self.key: text}
            file.seek(0), file.truncate()
            file.writelines(f"{key} = {json.dumps(sentences[key], ensure_ascii=False)}\n" for key in sorted(sentences))
        golden.cache_clear()
        return True


def sentence(key: str, /, **values: Any) -> Sentence:
    return Sentence(key, values)


@cache
def golden(face: str) -> dict[str, str]:
    return tomllib.loads((FOLDER / f"{face}.toml").read_text())


def shape(value: Any) -> str:
    """Returns a pattern that matches the value."""
    return f"(?:{value.pattern})" if isinstance(value, re.Pattern) else re.escape(str(value))


def bare_or_whole(value: str, text: str) -> str:
    """Matches a value as a whole word if it occurs as one: the 1 of "1 of 10" is not the 1 of 10."""
    whole = rf"(?<!\w){value}(?!\w)"
    return whole if re.search(whole, text) else value
