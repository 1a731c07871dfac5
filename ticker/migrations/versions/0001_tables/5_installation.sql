-- The identifier of the cluster. A role may lack the right to read it, and the server checks that before it evaluates a
-- CASE. Then the mark is the two oids.
CREATE FUNCTION cluster_identifier() RETURNS bigint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege THEN
    RETURN NULL;
END $$;

INSERT INTO installation (system_identifier, database_oid, marker_oid, environment)
SELECT cluster_identifier(), d.oid, 'installation'::regclass, '{environment}'
FROM pg_database d WHERE d.datname = current_database();

-- The oldest revision whose release works with these tables. A later revision that removes something raises it.
ALTER TABLE ticker_version ADD COLUMN oldest text DEFAULT '0001' NOT NULL;
