-- Returns the record of an occurrence. VOLATILE, so that each call sees everything that was committed before it.
CREATE FUNCTION record_of(task bigint, at timestamptz) RETURNS bigint LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT id FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled';
END;

-- Returns an occurrence in the form that it has in job ids.
CREATE FUNCTION micros(at timestamptz) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN (extract(epoch FROM at) * 1000000)::bigint::text;
