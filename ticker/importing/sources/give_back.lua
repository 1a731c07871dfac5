-- KEYS: rq-scheduler's lock, its sorted set, and our hash of parked entries. ARGV: our token in the lock, then ids.
-- Moves parked entries back to the sorted set, and restores a job that is gone. Returns 'no lock' if the lock is no longer ours.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'no lock' end
for i = 2, #ARGV do
    local parked = redis.call('HGET', KEYS[3], ARGV[i])
    if parked then
        local score, stored = string.match(parked, '^([^\n]*)\n[^\n]*\n[^\n]*\n(.*)$')
        if stored ~= '' and redis.call('EXISTS', 'rq:job:' .. ARGV[i]) == 0 then
            redis.call('RESTORE', 'rq:job:' .. ARGV[i], 0, stored)
        end
        redis.call('ZADD', KEYS[2], score, ARGV[i])
        redis.call('HDEL', KEYS[3], ARGV[i])
    end
end
return 'done'
