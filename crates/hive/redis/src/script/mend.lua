-- Repairs stored times after a clock step: a time that is further ahead than it can be is set back.
local mended = 0

local expiring = redis.call('ZRANGE', k_alive, 0, -1, 'WITHSCORES')
for i = 1, #expiring, 2 do
  local node, at = expiring[i], tonumber(expiring[i + 1])
  local right = math.min(at, now + (redis.call('HGET', k_ttl, node) or 0))
  local engaged = tonumber(redis.call('HGET', k_traffic, node) or 0)
  local right_engaged = math.min(engaged, now + 30000)
  if right ~= at or right_engaged ~= engaged then
    mended = mended + 1
    redis.call('ZADD', k_alive, right, node)
    redis.call('HSET', k_traffic, node, whole(right_engaged))
    if redis.call('ZSCORE', k_ready, node) then redis.call('ZADD', k_ready, right, node) end
    if redis.call('ZSCORE', k_engaged, node) then redis.call('ZADD', k_engaged, math.min(right, right_engaged), node) end
  end
end

local stepped = false
for _, name in ipairs({'lineage_ms', 'counted_ms'}) do
  if number(name) > now then
    stepped = true
    redis.call('HSET', k_view, name, now)
  end
end
if stepped then mended = mended + 1 end

-- A bucket repairs itself at its next draw; this repairs at most 10,000 buckets, those that are furthest ahead.
for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', k_full, '+inf', '(' .. whole(now), 'LIMIT', 0, 10000)) do
  local bucket = prefix .. ':limit:' .. string.sub(member, 33) .. ':' .. string.sub(member, 1, 32)
  if tonumber(redis.call('HGET', bucket, 'pool_ms') or 0) > now then
    mended = mended + 1
    redis.call('HSET', bucket, 'pool_ms', now)
  end
end
return mended
