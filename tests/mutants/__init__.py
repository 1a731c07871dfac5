"""Deliberate faults in our own code, and the script that shows which test catches each: `python -m tests.mutants`."""
