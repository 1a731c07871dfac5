-- ARGV: a job's id, and for how many seconds it was executed; the keys of its worker's hash, of its dependents, of its
-- queue's list of what workers have just taken, and of its queue's registry of what they execute; the job's member in that;
-- then all keys that vanish with the job. 0, and nothing is done: other jobs wait for this one.
local id, seconds, worker, dependents, taken, registry, member = unpack(ARGV, 1, 7)
if redis.call('EXISTS', dependents) == 1 then return 0 end
redis.call('DEL', unpack(ARGV, 8))
redis.pcall('LREM', taken, 1, id)
redis.pcall('ZREM', registry, member)
redis.call('HINCRBY', worker, 'successful_job_count', 1)
redis.call('HINCRBYFLOAT', worker, 'total_working_time', seconds)
redis.call('HDEL', worker, 'current_job')
redis.pcall('SREM', worker .. ':executions', member) -- RQ 3 counts there what a worker executes
return 1
