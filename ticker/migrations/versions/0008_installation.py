"""Mark the installation to which the tables belong; a restored or copied database no longer belongs to it."""

from alembic import context, op

revision = "0008"
down_revision = "0007"

TABLE = """CREATE TABLE installation (
    single BOOLEAN DEFAULT true NOT NULL,
    id TEXT DEFAULT left(gen_random_uuid()::text, 8) NOT NULL,
    system_identifier BIGINT,
    database_oid OID NOT NULL,
    marker_oid OID NOT NULL,
    environment ticker_plain DEFAULT '' NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    adopted_at ticker_moment,
    CONSTRAINT installation_pkey PRIMARY KEY (single),
    CONSTRAINT installation_single CHECK (single),
    CONSTRAINT installation_id CHECK (id ~ '^[a-z0-9]{8}$')
)"""

# A role may lack this right, and the server checks it before it evaluates a CASE. Then the mark is only the two oids.
CLUSTER = """CREATE FUNCTION cluster_identifier() RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$"""

MARK = """INSERT INTO installation (system_identifier, database_oid, marker_oid, environment)
SELECT cluster_identifier(), d.oid, 'installation'::regclass, '{environment}'
FROM pg_database d WHERE d.datname = current_database()"""


def upgrade() -> None:
    op.execute(TABLE)
    op.execute(CLUSTER)
    op.execute(MARK.format(environment=context.config.attributes["environment"]))


def downgrade() -> None:
    op.execute("DROP TABLE installation")
    op.execute("DROP FUNCTION cluster_identifier")
