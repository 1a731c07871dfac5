"""Timing tables, played through the real tick and the real start on a clock that stands still: `ticker replay`.

`table` reads them, `scratch` brings a PostgreSQL, `world` is what happens, `play` compares, `chart` and `svg` draw.
"""
