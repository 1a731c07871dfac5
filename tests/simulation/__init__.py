"""Whole histories of a schedule on a clock of its own: real passes and real start and end rules, no threads, no sleep.

    python -m tests.simulation --seeds 0-999      many histories over the doubles, and their counts
    python -m tests.simulation --seed 17          one of them again, event by event

Everything that happens is drawn from the seed: tickers that die at any call, or freeze and go on with an old `now`;
answers that get lost; an empty Redis; workers that die; clocks that are set; edits. The judge reads the history alone.
"""
