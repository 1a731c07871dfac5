"""Runs the command `ticker` as `python -m ticker`."""

from ticker.cli import main

if __name__ == "__main__":
    main()
