"""The enqueue side."""
