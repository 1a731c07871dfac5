"""Runs many tasks of a function at the same time in one process: `@task(batch=..., concurrency=...)`."""
