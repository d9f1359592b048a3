-- Deletes old rows: 2 lease, 3 epoch, 4 holder, 5 age of events, 6 how many events stay, 7 idle time of buckets, 8 how many
-- to delete at most.
if ARGV[2] ~= 'queen' or not holds(ARGV[2], ARGV[3], ARGV[4]) then return {'stale'} end
local most = tonumber(ARGV[8])

-- Deletes from the oldest event up to the first that stays: versions rise, and so do their times.
local beyond = redis.call('XLEN', k_event) - ARGV[6]
local events = 0
for _, entry in ipairs(redis.call('XRANGE', k_event, '-', '+', 'COUNT', most)) do
  local at_ms = tonumber(entry[2][2])
  if not (events < beyond or at_ms + ARGV[5] <= now) then break end
  redis.call('XDEL', k_event, entry[1])
  events = events + 1
end

-- The buckets that were full first are mostly those that were used first, so few are read in vain.
local buckets = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', k_full, '-inf', whole(now), 'LIMIT', 0, most * 4)) do
  if buckets >= most then break end
  local key, limit = string.sub(member, 1, 32), string.sub(member, 33)
  local bucket = prefix .. ':limit:' .. limit .. ':' .. key
  local found = redis.call('HMGET', bucket, 'rate_u', 'pool_ms', 'reset_ms', 'issued_u')
  local rate_u, pool_ms = tonumber(found[1] or 0), tonumber(found[2] or 0)
  local is_idle
  if not found[1] then
    is_idle = true
  elseif rate_u == 0 then
    is_idle = tonumber(found[3] or 0) > 0 or found[4] == '0'
  else
    is_idle = now - pool_ms >= tonumber(ARGV[7])
  end
  if is_idle then
    redis.call('DEL', bucket)
    redis.call('ZREM', k_full, member)
    redis.call('ZREM', prefix .. ':ledger:' .. limit, key)
    buckets = buckets + 1
  end
end

-- Deletes the entries of nodes that hold no slots. Their last request is old enough that no earlier one can still arrive.
local spoken_ms = now - tonumber(ARGV[7])
for _, member in ipairs(redis.call('ZRANGEBYSCORE', k_none, '-inf', whole(spoken_ms), 'LIMIT', 0, most)) do
  -- A node's id is a UUID of 36 characters. A node that is gone has no entry any more.
  buckets = buckets + redis.call('HDEL', slots_of(string.sub(member, 1, 36)), string.sub(member, 37))
  redis.call('ZREM', k_none, member)
end
return {'swept', events, buckets}
