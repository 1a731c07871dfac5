-- KEYS: rq-scheduler's lock, its sorted set, and our hash of parked entries. ARGV: our token in the lock, then the id, the score
-- and the task's name of each entry, and what identifies its call.
-- Moves the entries from the sorted set to the hash, with the bytes of their jobs. Returns 'no lock' if the lock is no longer ours,
-- or else the ids of the entries that have changed since they were read. In both cases, nothing is moved.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'no lock' end
local changed = {}
for i = 2, #ARGV, 4 do
    if tonumber(redis.call('ZSCORE', KEYS[2], ARGV[i]) or 'nan') ~= tonumber(ARGV[i + 1]) then changed[#changed + 1] = ARGV[i] end
end
if #changed > 0 then return changed end
for i = 2, #ARGV, 4 do
    local id = ARGV[i]
    local stored = redis.call('DUMP', 'rq:job:' .. id) or ''
    redis.call('HSET', KEYS[3], id, ARGV[i + 1] .. '\n' .. ARGV[i + 2] .. '\n' .. ARGV[i + 3] .. '\n' .. stored)
    redis.call('PERSIST', 'rq:job:' .. id)
    redis.call('ZREM', KEYS[2], id)
end
return {}
