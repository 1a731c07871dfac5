-- ARGV: RQ's set of queues; the prefix of its jobs' keys; the number of fields and values that all jobs share, then
-- these; the number of labels, and five values for each: the queue's key and name, the description, the timeout, the
-- time to live; then all jobs in one text: the number of its label, and after their lengths its id, its data, and its
-- signature, if it has one.
-- Returns, for each job that was not stored, its number and why: 'held' if Redis has a job of this id already.
-- A queue whose key is of another type refuses the id before anything is written, and only this job gets that answer.
-- Any other error (OOM, READONLY, ...) is the server's: it answers the whole call, so that no row has to back off
-- because of it.
-- Later jobs of a label are copies of its first, with its time to live, and with their own data. To write each
-- field again takes Redis twice as long.
local queues, prefix, shared = ARGV[1], ARGV[2], tonumber(ARGV[3])
local labels, fields, firsts, answers = tonumber(ARGV[4 + shared]), {}, {}, {}
for i = 1, labels do
    local first = 5 * i + shared
    fields[i] = {'origin', ARGV[first + 1], 'description', ARGV[first + 2], 'timeout', ARGV[first + 3], 'ttl', ARGV[first + 4],
        unpack(ARGV, 4, 3 + shared)}
end
local jobs, at, n = ARGV[#ARGV], 1, 0
while at <= #jobs do
    local number, id, data, signature
    number, id, data, signature, at = struct.unpack('<HHc0Hc0Hc0', jobs, at)
    local first, job, answer = 5 * number + shared, prefix .. id, nil
    n = n + 1
    if redis.call('EXISTS', job) == 1 then
        answer = 'held'
    else
        local pushed = redis.pcall('RPUSH', ARGV[first], id)
        if type(pushed) == 'table' and pushed.err then
            if not string.find(pushed.err, 'WRONGTYPE') then return pushed end
            answer = pushed.err
        else
            if firsts[number] then
                redis.call('COPY', firsts[number], job)
                redis.call('HSET', job, 'data', data)
            else
                redis.call('HSET', job, 'data', data, unpack(fields[number]))
                redis.call('EXPIRE', job, ARGV[first + 4])
                redis.call('SADD', queues, ARGV[first])
                firsts[number] = job
            end
            if signature ~= '' then redis.call('HSET', job, 'signature', signature) end
        end
    end
    if answer then
        answers[#answers + 1] = n
        answers[#answers + 1] = answer
    end
end
return answers
