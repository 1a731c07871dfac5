"""Draws docs/pictures/rooms.svg, the rooms of both packages, from the import contracts of pyproject.toml: `python -m tests.documents`."""

import tomllib
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/pictures/rooms.svg"
WIDTH, HEIGHT, GAP = 520, 34, 8
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1b1b1f}.room{fill:#e6ecf7;stroke:#6b7fa8}"
    ".title{font-weight:bold}.back{fill:#fff}.arrow{stroke:#6b7fa8;stroke-width:2;fill:none}"
)


def text() -> str:
    """Returns the picture: one row for each layer. A room imports only rooms below it."""
    pillars = [(name, layers(name)) for name in ("ticker", "wrappers")]
    deepest = max(len(rows) for _, rows in pillars)
    height = 60 + deepest * (HEIGHT + GAP)
    width = 2 * WIDTH + 100
    drawn = [
        part for place, (name, rows) in enumerate(pillars) for part in pillar(name, rows, 30 + place * (WIDTH + 40))
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        "<title>The rooms of ticker and wrappers: each imports only those below it</title>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect class="back" width="{width}" height="{height}"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def layers(package: str) -> list[list[str]]:
    """Returns the rooms of a package from the top to the bottom, as in the contract of its layers."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [one for one in contracts if one["type"] == "layers" and one["containers"] == [package]]
    return [row.split(" | ") for row in contract["layers"]]


def pillar(package: str, rows: list[list[str]], left: int) -> list[str]:
    drawn = [f'<text class="title" x="{left}" y="28">{package}</text>']
    for number, rooms in enumerate(rows):
        wide = (WIDTH - GAP * (len(rooms) - 1)) // len(rooms)
        top = 44 + number * (HEIGHT + GAP)
        for place, room in enumerate(rooms):
            x = left + place * (wide + GAP)
            drawn.append(f'<rect class="room" x="{x}" y="{top}" width="{wide}" height="{HEIGHT}" rx="5"/>')
            drawn.append(f'<text x="{x + wide // 2}" y="{top + 22}" text-anchor="middle">{escape(room)}</text>')
    return drawn
