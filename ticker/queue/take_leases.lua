-- KEYS: the leases; ARGV: our installation, another one whose leases become ours or '', seconds. Returns the holders of
-- the leases of others, and '' for ours.
local holders = {}
for i, key in ipairs(KEYS) do
    local holder = redis.call('GET', key)
    if not holder or holder == ARGV[1] or holder == ARGV[2] then
        redis.call('SET', key, ARGV[1], 'EX', ARGV[3])
        holder = ''
    end
    holders[i] = holder
end
return holders
