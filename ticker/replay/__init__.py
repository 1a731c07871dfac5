"""Plays timing tables through the real tick and the real start, with a frozen clock: `ticker replay`.

`table` reads them, `scratch` provides a schema, `world` runs the product, `play` compares, and `chart` draws.
"""
