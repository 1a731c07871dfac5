-- ARGV: queues. Returns the calls of a ticker that the user may not make, and makes none. Before 7.0, Redis cannot tell.
local refused, calls = {}, {{'PUBLISH', 'rq:pubsub:x', 'x'}, {'HSET', 'rq:job:x', 'data', 'x'}, {'EXPIRE', 'rq:job:x', 1}, {'COPY', 'rq:job:x', 'rq:job:y'}, {'SADD', 'rq:queues', 'x'},
    {'SET', 'ticker:failure:x', 'x'}}
for _, name in ipairs(ARGV) do
    calls[#calls + 1], calls[#calls + 2] = {'RPUSH', 'rq:queue:' .. name, 'x'}, {'SET', 'ticker:queue:' .. name, 'x'}
end
for _, call in ipairs(redis.acl_check_cmd and calls or {}) do
    if not redis.acl_check_cmd(unpack(call)) then refused[#refused + 1] = call[1] .. ' ' .. call[2] end
end
return refused
