-- The tables and their indexes, as `ticker.db.tables` defines them.
{tables}
