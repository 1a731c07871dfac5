"""A task's function that does nothing."""

from wrappers import task


@task("noop")
def noop() -> None:
    pass


@task("noop.batched", batch=50)
def batched() -> None:
    pass
