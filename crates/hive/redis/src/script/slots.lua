-- Sets how many slots a node has in total: 2 node, … limit, key, number of the request, wanted slots. Keys after the fixed
-- ones: bucket and ledger of each.
local node = ARGV[2]
if not expires(node) then return 'unfit' end
local held = {}
for i = 3, #ARGV, 4 do
  local limit, limit_key, seq, wants = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local bucket = prefix .. ':limit:' .. limit .. ':' .. limit_key
  local rule = definition(limit)
  if not rule then
    held[#held + 1] = false
  else
    local has, last = string.match(redis.call('HGET', slots_of(node), limit_key .. limit) or '0 0', '^(%d+) (%d+)$')
    has, last = tonumber(has), tonumber(last)
    if seq <= last then wants = has end
    local was = redis.call('HMGET', bucket, 'issued_u', 'rate_u', 'burst_u')
    local issued_u, burst_u = tonumber(was[1] or 0), rule.burst_u
    -- If the limit has become a rate, it no longer defines a concurrency: the old one stays.
    if rule.rate_u > 0 and was[2] == '0' then burst_u = tonumber(was[3]) end
    local free = quotient(math.max(0, burst_u - issued_u), MICRO)
    local now_has = wants <= has and wants or has + math.min(free, wants - has)
    issued_u = math.max(0, issued_u - has * MICRO) + now_has * MICRO
    redis.call('HSET', bucket, 'version', rule.version, 'rate_u', 0, 'period_ms', 1, 'burst_u', whole(burst_u))
    redis.call('HSETNX', bucket, 'pool_u', 0)
    redis.call('HSETNX', bucket, 'pool_ms', now)
    redis.call('HSETNX', bucket, 'reset_ms', 0)
    redis.call('PERSIST', bucket)
    set_issued(limit, limit_key, issued_u)
    redis.call('HSET', slots_of(node), limit_key .. limit, whole(now_has) .. ' ' .. whole(math.max(seq, last)))
    if now_has == 0 then
      redis.call('ZADD', k_none, now, node .. limit_key .. limit)
    else
      redis.call('ZREM', k_none, node .. limit_key .. limit)
    end
    local function permits(amount_u) return whole(quotient(math.max(0, amount_u), MICRO)) end
    held[#held + 1] = {whole(now_has), permits(burst_u - issued_u), permits(issued_u - burst_u), permits(burst_u),
      rule.version}
  end
end
return held
