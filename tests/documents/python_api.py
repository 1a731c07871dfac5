"""Writes docs/reference/python.md from signatures and docstrings: `python -m tests.documents`.

The page itself has the prose and the order. What follows a heading such as "### `ticker.register`" is generated.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs/reference/python.md"
SECTION = re.compile(r"^### `([\w.]+)`\n.*?(?=^###? |\Z)", re.MULTILINE | re.DOTALL)
CODE, PROSE = 80, 130  # characters of a line


def text() -> str:
    return SECTION.sub(lambda found: section(found[1]), FILE.read_text(encoding="utf-8")).rstrip("\n") + "\n"


def section(name: str) -> str:
    """Returns the heading, the signature or the fields, the docstring, and the members with a docstring."""
    module, _, own = name.rpartition(".")
    described = getattr(import_module(module), own)
    if not isinstance(described, type):
        parts = [f"```python\ndef {signature(described, own)}: ...\n```", *docstring(described)]
    else:
        head = fields(described) or init(described)
        parts = [f"```\n{head}\n```" if head else "", *docstring(described), "\n".join(members(described))]
    return "\n\n".join([f"### `{name}`", *filter(None, parts)]) + "\n\n"


def docstring(described: Any) -> list[str]:
    """Returns the paragraphs, filled; a block of code stays as it is."""
    paragraphs = (inspect.getdoc(described) or "").split("\n\n")
    return [each if each.startswith("    ") else filled(each) for each in paragraphs if each]


def filled(text: str, **indents: str) -> str:
    return textwrap.fill(text, PROSE, break_long_words=False, break_on_hyphens=False, **indents)


def signature(function: Callable[..., Any], name: str, width: float = CODE) -> str:
    """Returns a call as the source spells it. The functions of `ticker` are called with a connection first."""
    source = definition(inspect.unwrap(function))
    arguments, returns = parameters(inspect.unwrap(function)), source.returns
    if {"reads", "writes", "commits"} & {ast.unparse(each) for each in source.decorator_list}:
        arguments, returns = ["db", *arguments], returns.slice
    return call(name, arguments, f" -> {plain(returns)}" if returns else "", width)


def parameters(function: Callable[..., Any]) -> list[str]:
    """Returns the parameters with their annotations and defaults, without `self`."""
    given, known = definition(function).args, inspect.signature(function).parameters
    plain_ones = [shown(each, known[each.arg].default) for each in given.args if each.arg != "self"]
    named = [shown(each, known[each.arg].default) for each in given.kwonlyargs]
    star = [f"*{shown(given.vararg)}"] if given.vararg else ["*"] if named else []
    return [*plain_ones, *star, *named, *([f"**{shown(given.kwarg)}"] if given.kwarg else [])]


def shown(argument: ast.arg, default: Any = inspect.Parameter.empty) -> str:
    equals = f" = {named(default)}" if default is not inspect.Parameter.empty else ""
    return f"{argument.arg}: {plain(argument.annotation)}{equals}"


def named(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else getattr(default, "__name__", repr(default))


def plain(annotation: ast.expr | None) -> str:
    """Returns the annotation without quotes and without `Unpack`."""
    text = (
        annotation.value if isinstance(annotation, ast.Constant) and annotation.value else ast.unparse(annotation or [])
    )
    return re.sub(r"\bUnpack\[(\w+)\]", r"\1", str(text))


def call(name: str, arguments: list[str], returns: str = "", width: float = CODE) -> str:
    """Returns the call in one line, or with its arguments in further lines."""
    line = f"{name}({', '.join(arguments)}){returns}"
    return line if len(f"def {line}: ...") <= width else f"{name}(\n{wrapped(arguments, ' ' * 4)}\n){returns}"


def wrapped(parts: list[str], indent: str = "") -> str:
    """Fills lines with the parts, none of which is broken."""
    whole = ", ".join(part.replace(" ", "\0") for part in parts)
    lines = textwrap.wrap(
        whole, CODE, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


def fields(described: type) -> str:
    """Returns the names and types of what an instance holds, or an empty text for a class that only has methods."""
    if not hasattr(described, "__dataclass_fields__") and not hasattr(described, "_fields"):
        return ""
    found = {
        node.target.id: plain(node.annotation)
        for owner in reversed(ours(described))
        for node in definition(owner).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_"
    }
    return wrapped([f"{name}: {kind}" for name, kind in found.items()])


def init(described: type) -> str:
    """Returns the call that makes an error, or a context for `with`."""
    is_made = issubclass(described, Exception) or hasattr(described, "__enter__")
    made = described.__dict__.get("__init__") if is_made else None
    return call(described.__name__, parameters(made)) if made else ""


def members(described: type) -> Iterator[str]:
    """Yields each public method and property that has a docstring, as an item of a list."""
    for owner in reversed(ours(described)):
        for name, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else value
            if name[0] != "_" and inspect.isfunction(function) and function.__doc__:
                head = name if isinstance(value, property) else signature(function, name, inf)
                yield filled(f"* `{head}`: {' '.join(function.__doc__.split())}", subsequent_indent="  ")


def ours(described: type) -> list[type]:
    return [each for each in described.__mro__ if each.__module__.partition(".")[0] in ("ticker", "wrappers")]


def definition(described: Any) -> Any:
    """Returns the node of a function or a class in its source."""
    path, name = inspect.getsourcefile(described), described.__qualname__
    assert path is not None
    body: list[ast.stmt] = parsed(path).body
    for part in name.split("."):
        [node] = [
            each
            for each in ast.walk(ast.Module(body, []))
            if getattr(each, "name", "") == part and hasattr(each, "body")
        ]
        body = node.body
    return node


@cache
def parsed(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))
