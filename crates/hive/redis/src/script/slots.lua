-- How many a node wants in all: 2 node, … limit, key, number, wants. Keys beyond the fixed ones: bucket and ledger of each.
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
    local issued_u = tonumber(redis.call('HGET', bucket, 'issued_u') or 0)
    local free = quotient(math.max(0, rule.burst_u - issued_u), MICRO)
    local now_has = wants <= has and wants or has + math.min(free, wants - has)
    issued_u = math.max(0, issued_u - has * MICRO) + now_has * MICRO
    redis.call('HSET', bucket, 'version', rule.version, 'rate_u', whole(rule.rate_u), 'period_ms', whole(rule.period_ms),
      'burst_u', whole(rule.burst_u))
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
    held[#held + 1] = {whole(now_has), permits(rule.burst_u - issued_u), permits(issued_u - rule.burst_u),
      permits(rule.burst_u), rule.version}
  end
end
return held
