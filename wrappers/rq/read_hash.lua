-- KEYS: a hash. ARGV: the maximum number of its fields, and of its bytes. Returns both numbers (0 bytes if the server
-- does not report them), followed by every field and value if they are within the limits.
local fields = redis.pcall('HLEN', KEYS[1])
if type(fields) == 'table' then return fields end
local size = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', ARGV[1])
size = type(size) == 'number' and size or 0
if fields > tonumber(ARGV[1]) or size > tonumber(ARGV[2]) then return {fields, size} end
return {fields, size, unpack(redis.call('HGETALL', KEYS[1]))}
