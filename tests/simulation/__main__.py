"""`python -m tests.simulation --seeds 0-999`, or `--seed N` for one history with its story."""

import argparse
import sys
import time
from collections import Counter

from tests.simulation.history import Result, play
from tests.simulation.memory import MemoryTables

TOLD = 60  # lines of a story before its end


def main() -> None:
    chosen = arguments()
    counts: Counter[str] = Counter()
    began, violated = time.monotonic(), 0
    for seed in chosen.seeds:
        result = play(seed, MemoryTables(), steps=not chosen.no_steps, limits=chosen.limits, pauses=chosen.pauses)
        counts += result.counts
        violated += bool(result.violations)
        if result.violations or len(chosen.seeds) == 1:
            tell(result, everything=len(chosen.seeds) == 1, pauses=chosen.pauses)
    show(counts)
    show({"histories": len(chosen.seeds), "violated": violated, "seconds": round(time.monotonic() - began, 1)})
    sys.exit(1 if violated else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one history, told line by line")
    parser.add_argument("--seeds", default="0-299", help="from-to, both included")
    parser.add_argument("--no-steps", action="store_true", help="nobody sets the clock")
    parser.add_argument("--limits", action="store_true", help="most tasks have keys with limits")
    parser.add_argument("--pauses", action="store_true", help="people pause and resume many tasks all the time")
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition("-")
    chosen.seeds = [chosen.seed] if chosen.seed is not None else range(int(first), int(last or first) + 1)
    return chosen


def tell(result: Result, *, everything: bool, pauses: bool) -> None:
    sys.stdout.write(story(result, None if everything else 0, pauses=pauses) + "\n")


def story(result: Result, lines: int | None = TOLD, *, pauses: bool = False) -> str:
    """The violations of a seed and the last events before its end, or (None) all of them."""
    told = result.history.lines if lines is None else result.history.lines[len(result.history.lines) - lines :]
    events = [f"{t / 1e6:12.3f}  {now:%Y-%m-%d %H:%M:%S.%f}  {text}" for t, now, text in told]
    options = " --limits" * bool(result.history.limits) + " --pauses" * pauses
    again = f"python -m tests.simulation --seed {result.seed}{options}"
    return "\n".join([*events, f"seed {result.seed}; again: {again}", *(f"  {line}" for line in result.violations)])


def show(counts: Counter[str] | dict[str, float]) -> None:
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{count:>10}  {name}\n")


if __name__ == "__main__":
    main()
