"""Reads schedules and computes their times: one module per kind, all of them pure. `kinds` is the way in."""
