-- KEYS: the lists of queues. ARGV: ids of jobs. Removes the ids from the 10,000 oldest of each list, without going through a list
-- that may hold millions. A key of another type is left alone.
local gone = {}
for _, id in ipairs(ARGV) do gone[id] = true end
for _, list in ipairs(KEYS) do
  local oldest, kept = redis.pcall('LRANGE', list, 0, 9999), {}
  for _, id in ipairs(oldest) do
    if not gone[id] then kept[#kept + 1] = id end
  end
  if #kept < #oldest then
    redis.call('LTRIM', list, #oldest, -1)
    for place = #kept, 1, -1 do redis.call('LPUSH', list, kept[place]) end
  end
end
