"""What it costs that a run's output is kept: `python -m tests.bench.output [--rounds N]`.

In this process, without a worker; each figure is the median of the rounds. Prints a markdown table.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from wrappers.pipeline import serialize
from wrappers.pipeline.output import Capture

LINES = 20_000
LINE = "poll 4711: 3 messages, 12 kB"
MEGABYTES = 64
MEGABYTE = "0123456789abcde\n" * 2**16
FULL = 64 * 1024


def seconds(function: Callable[[], object], times: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - began) / times


def captured(function: Callable[[], object], times: int = 1) -> float:
    with Capture():
        return seconds(function, times)


def to_a_file(function: Callable[[], object], times: int) -> float:
    """As it would be without us, with a fast reader behind: nothing is written."""
    before = sys.stdout
    with Path("/dev/null").open("w") as sys.stdout:
        took = seconds(function, times)
    sys.stdout = before
    return took


def empty_capture() -> None:
    with Capture() as kept:
        pass
    kept.texts()


def text_of(character: bytes) -> float:
    with Capture() as kept:
        sys.stdout.buffer.write(character * 2 * FULL)
    return seconds(kept.texts)


def measurements() -> dict[str, tuple[Callable[[], float], str]]:
    """What is measured: a function that gives seconds, and the unit that the result is shown in."""
    return {
        "a print of a line": (lambda: captured(lambda: print(LINE), LINES), "µs"),
        "the same to /dev/null, without us": (lambda: to_a_file(lambda: print(LINE), LINES), "µs"),
        "a log line": (lambda: captured(lambda: logging.getLogger("app").warning(LINE), LINES // 10), "µs"),
        "printing, in pieces of 1 MB": (lambda: captured(lambda: sys.stdout.write(MEGABYTE), MEGABYTES), "MB/s"),
        "printing, in lines of 16 bytes": (lambda: captured(lambda: print("0123456789abcde"), 2**16), "MB/s"),
        "a run that prints nothing": (lambda: seconds(empty_capture, 100), "µs"),
        "the text of a full output": (lambda: text_of(b"x"), "µs"),
        "the text of a full output of NULs": (lambda: text_of(b"\0"), "µs"),
        "a traceback made visible": (lambda: seconds(lambda: serialize.visible(LINE * 40)), "µs"),
    }


def shown(took: float, unit: str, what: str) -> str:
    if unit == "µs":
        return f"{took * 1e6:.1f} µs"
    return f"{(1 if 'MB' in what else 16 / 2**20) / took:.0f} MB/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print("| | median |\n|---|---|")
    for what, (measure, unit) in measurements().items():
        print(f"| {what} | {shown(median(measure() for _ in range(rounds)), unit, what)} |")


if __name__ == "__main__":
    main()
