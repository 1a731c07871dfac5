-- ARGV: RQ's set of queues; the prefix of its jobs' keys; the number of fields and values that all jobs share, then
-- these; the number of labels, and five values for each: the queue's key and name, the description, the timeout, the
-- time to live; then for each job the number of its label, its id, its data, and its signature or ''.
-- A queue whose key is of another type refuses the id before anything is written, and only this job gets that answer.
-- Any other error (OOM, READONLY, ...) is the server's: it answers the whole call, so that no row has to back off
-- because of it.
local queues, prefix, shared = ARGV[1], ARGV[2], tonumber(ARGV[3])
local at = 4 + shared
local labels, fields, stored = tonumber(ARGV[at]), {}, {}
local function label(i) return at + 1 + 5 * (i - 1) end
for i = 1, labels do
    local first = label(i)
    fields[i] = {'origin', ARGV[first + 1], 'description', ARGV[first + 2], 'timeout', ARGV[first + 3], 'ttl', ARGV[first + 4],
        unpack(ARGV, 4, 3 + shared)}
end
local answers = {}
for i = label(labels + 1), #ARGV, 4 do
    local number, id = tonumber(ARGV[i]), ARGV[i + 1]
    local first, job = label(number), prefix .. id
    local answer = 'stored'
    if redis.call('EXISTS', job) == 1 then
        answer = 'held'
    else
        local pushed = redis.pcall('RPUSH', ARGV[first], id)
        if type(pushed) == 'table' and pushed.err then
            if not string.find(pushed.err, 'WRONGTYPE') then return pushed end
            answer = pushed.err
        else
            redis.call('HSET', job, 'data', ARGV[i + 2], unpack(fields[number]))
            if ARGV[i + 3] ~= '' then redis.call('HSET', job, 'signature', ARGV[i + 3]) end
            redis.call('EXPIRE', job, ARGV[first + 4])
            if not stored[number] then redis.call('SADD', queues, ARGV[first]) end
            stored[number] = true
        end
    end
    answers[#answers + 1] = answer
end
return answers
