"""Provides metrics for Prometheus: the ticks of a process, the state of the database and Redis, and ended runs.

Read `families` first, which lists every metric. `ticker run --metrics-port` serves all of them. `/metrics` of the page
serves those read from the database and Redis (`servers`).
"""
