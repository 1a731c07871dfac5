"""What Alembic runs for each command; the connection and the schema come from `ticker.migrations.config`."""

from alembic import context

from ticker.migrations import VERSION_TABLE

attributes = context.config.attributes
connection, schema = attributes["connection"], attributes["schema"]

options = {"version_table": VERSION_TABLE, "version_table_schema": schema, "transaction_per_migration": False}
if connection is None:
    transactional_ddl = attributes.get("transactional_ddl", True)
    context.configure(dialect_name="postgresql", literal_binds=True, transactional_ddl=transactional_ddl, **options)
else:
    context.configure(connection=connection, **options)

with context.begin_transaction():
    context.execute(f'SET LOCAL search_path TO "{schema}"')  # the revisions name their tables bare
    context.run_migrations()
