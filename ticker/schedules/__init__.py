"""Reads schedules and computes their times: one module per kind, all of them pure. Start with `kinds`."""
