-- Owners' default tasks, workers' functions, tickers, and the installation.

-- The default tasks of a type of owner, as columns of a task. A trigger creates the tasks of a new owner from them.
CREATE TABLE templates (
    owner_type ticker_named NOT NULL,
    name ticker_named NOT NULL,
    task ticker_template NOT NULL,
    PRIMARY KEY (owner_type, name)
);

-- What workers have announced: the functions that they know, and how many tasks of each function one job may carry.
-- Without `announced_at`, only an application has declared the function.
CREATE TABLE functions (
    name ticker_named PRIMARY KEY,
    batch ticker_batch DEFAULT 1 NOT NULL,
    announced_at ticker_moment,

    -- How many of these tasks run at the same time, and whether an interrupted run is retried even without retries.
    concurrency ticker_batch DEFAULT 1 NOT NULL,
    repeatable boolean DEFAULT false NOT NULL,

    -- How many tasks a job carries after full groups died and their parts did not, and until when.
    halved_to ticker_batch,
    halved_until ticker_moment,

    -- The queues of the workers that have announced the function, and the average duration of its runs in milliseconds,
    -- over the last minutes in which runs ended.
    queues ticker_queues DEFAULT '{}' NOT NULL,
    mean_ms bigint CONSTRAINT functions_mean_ms CHECK (mean_ms > 0)
);

-- One row per ticker process: its heartbeat.
CREATE TABLE tickers (
    id uuid PRIMARY KEY,
    host text DEFAULT '' NOT NULL,
    pid integer NOT NULL,
    started_at ticker_moment NOT NULL,
    last_tick_at ticker_moment,
    last_report ticker_object DEFAULT '{}' NOT NULL
);

-- The installation to which the tables belong. Its mark survives the promotion of a standby, but not a dump or a copy.
CREATE TABLE installation (
    single boolean DEFAULT true PRIMARY KEY,
    id text DEFAULT left(gen_random_uuid()::text, 8) NOT NULL,
    system_identifier bigint,
    database_oid oid NOT NULL,
    marker_oid oid NOT NULL,
    environment ticker_plain DEFAULT '' NOT NULL,
    created_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    adopted_at ticker_moment,

    -- The minutes before these instants were counted, and counted twice.
    counted_until ticker_moment,
    counted_twice_until ticker_moment,

    -- The traces of runs that ended before this instant are exported.
    traced_until ticker_moment,

    CONSTRAINT installation_single CHECK (single),
    CONSTRAINT installation_id CHECK (id ~ '^[a-z0-9]{8}$')
);

-- A role may lack the right to read it, and the server checks that before it evaluates a CASE. Then the mark is the two
-- oids.
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
