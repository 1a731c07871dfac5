-- ARGV: a job's id, and the seconds of its execution; its worker's new state, or nothing to leave it; the keys of its
-- worker's hash, of its dependents, of its queue's list of taken jobs, and of its queue's registry of started jobs; the
-- job's member in that registry; then all keys to delete with the job. Returns 0 and does nothing if other jobs wait for
-- this one.
local id, seconds, state, worker, dependents, taken, registry, member = unpack(ARGV, 1, 8)
if redis.call('EXISTS', dependents) == 1 then return 0 end
redis.call('DEL', unpack(ARGV, 9))
redis.pcall('LREM', taken, 1, id)
redis.pcall('ZREM', registry, member)
redis.call('HINCRBY', worker, 'successful_job_count', 1)
redis.call('HINCRBYFLOAT', worker, 'total_working_time', seconds)
redis.call('HDEL', worker, 'current_job')
if state ~= '' then redis.call('HSET', worker, 'state', state) end
redis.pcall('SREM', worker .. ':executions', member) -- RQ 3 counts a worker's executions there
return 1
