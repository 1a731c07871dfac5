-- PostgreSQL uses the new condition for no pause alone. ticker.db.tables has the reason.
DROP INDEX CONCURRENTLY IF EXISTS {schema}.tasks_paused;
CREATE INDEX CONCURRENTLY tasks_paused ON {schema}.tasks (id) WHERE (paused_by IS NULL AND pause_id IS NULL) IS NOT TRUE;
