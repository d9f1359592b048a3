-- Renews a node: 2 id, 3 read-only, 4 age of its last traffic or '', 5 ready, 6 eligible, 7 warm.
local node = ARGV[2]
local ttl = redis.call('HGET', k_ttl, node)
local member = ttl and redis.call('ZSCORE', k_alive, node)
if member and ARGV[3] == '0' then
  local until_ms = now + ttl
  local was_ready = redis.call('ZSCORE', k_ready, node) and '1' or '0'
  local was_eligible = redis.call('SISMEMBER', k_eligible, node) == 1 and '1' or '0'
  local engaged_ms = ARGV[4] == '' and 0 or math.max(0, now + 30000 - ARGV[4])
  redis.call('HINCRBY', k_beat, node, 1)
  redis.call('ZADD', k_alive, until_ms, node)
  redis.call('HSET', k_traffic, node, whole(engaged_ms))
  redis.call('HSET', k_warm, node, ARGV[7])
  if ARGV[5] == '1' then redis.call('ZADD', k_ready, until_ms, node) else redis.call('ZREM', k_ready, node) end
  if ARGV[5] == '1' and engaged_ms > 0 then
    redis.call('ZADD', k_engaged, math.min(until_ms, engaged_ms), node)
  else
    redis.call('ZREM', k_engaged, node)
  end
  redis.call(ARGV[6] == '1' and 'SADD' or 'SREM', k_eligible, node)
  if was_eligible ~= ARGV[6] then event(ARGV[6] == '1' and 'eligible' or 'draining', node, nil, nil, '') end
  if was_ready ~= ARGV[5] then event(ARGV[5] == '1' and 'ready' or 'unready', node, nil, nil, '') end
end
return status(node, member, member and ARGV[3] == '0')
