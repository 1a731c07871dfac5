-- KEYS: a hash; ARGV: how many fields and bytes it may have. How many it has (0 bytes where the server does not tell), and
-- if that is not too much, every field and value.
local fields = redis.pcall('HLEN', KEYS[1])
if type(fields) == 'table' then return fields end
local size = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', ARGV[1])
size = type(size) == 'number' and size or 0
if fields > tonumber(ARGV[1]) or size > tonumber(ARGV[2]) then return {fields, size} end
return {fields, size, unpack(redis.call('HGETALL', KEYS[1]))}
