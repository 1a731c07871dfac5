"""An exhaustive check of the protocol over small bounds: `python -m tests.model`. Read protocol.py first."""
