"""A function that only lasts: for tests that count starts."""

import time

from wrappers import task


@task("nap")
def nap(seconds: float = 0.0) -> None:
    time.sleep(seconds)
