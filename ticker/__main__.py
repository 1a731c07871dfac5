"""`python -m ticker` is the command `ticker`."""

from ticker.cli import main

if __name__ == "__main__":
    main()
