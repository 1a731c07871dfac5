"""Reads what makes up the tables, to compare two databases."""

from typing import Any

import psycopg

TABLES = (
    "tasks", "runs", "tickers", "events", "notices", "templates", "functions", "installation", "limits", "limited_keys",
    "slots", "pauses", "minutes", "hours",
)  # fmt: skip


def look(db: psycopg.Connection[Any], schema: str) -> dict[str, set[Any]]:
    """All that makes up the tables: columns in their order, constraints, indexes, domains, as PostgreSQL prints them."""
    columns = """
        SELECT table_name, row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position), column_name, data_type, udt_name, domain_name, is_nullable, column_default,
            is_identity, identity_generation, character_maximum_length
        FROM information_schema.columns WHERE table_schema = %s AND table_name = ANY (%s)"""
    constraints = """
        SELECT r.relname, c.conname, pg_get_constraintdef(c.oid), c.convalidated
        FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
        WHERE c.connamespace = %s::regnamespace AND r.relname = ANY (%s)"""
    indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = ANY (%s)"
    found = {
        name: set(db.execute(query, [schema if name != "constraints" else f'"{schema}"', list(TABLES)]).fetchall())
        for name, query in [("columns", columns), ("constraints", constraints), ("indexes", indexes)]
    }
    domains = """
        SELECT t.typname, format_type(t.typbasetype, t.typtypmod), pg_get_constraintdef(c.oid)
        FROM pg_type t JOIN pg_constraint c ON c.contypid = t.oid WHERE t.typnamespace = %s::regnamespace"""
    options = "SELECT relname, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace AND relname = ANY (%s)"
    found["options"] = {(name, *(said or ())) for name, said in db.execute(options, [f'"{schema}"', list(TABLES)])}
    found["domains"] = set(db.execute(domains, [f'"{schema}"']).fetchall())
    found["indexes"] = {(*names, text.replace(f" ON {schema}.", " ON ")) for *names, text in found["indexes"]}
    return found


def behaviour(db: psycopg.Connection[Any]) -> list[Any]:
    """The functions, with whether everybody may call them, and the triggers. A dump changes the parentheses of both."""
    return db.execute("""
        SELECT translate(pg_get_functiondef(oid), '()', ''), proacl::text LIKE '%{=%' OR proacl IS NULL FROM pg_proc
        WHERE pronamespace = 'ticker'::regnamespace AND prokind = 'f'
        UNION ALL SELECT translate(pg_get_triggerdef(t.oid), '()', ''), NULL
        FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
        WHERE relnamespace = 'ticker'::regnamespace AND NOT tgisinternal ORDER BY 1""").fetchall()
