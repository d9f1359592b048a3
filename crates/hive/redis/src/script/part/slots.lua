-- Slots: `issued_u` of a bucket counts the slots of all nodes; a hash per node says how many it has.

local function slots_of(node)
  return prefix .. ':slots:' .. node
end

local function set_issued(limit, key, issued_u)
  redis.call('HSET', prefix .. ':limit:' .. limit .. ':' .. key, 'issued_u', whole(issued_u))
  redis.call('ZADD', prefix .. ':ledger:' .. limit, whole(issued_u), key)
  -- A bucket without issued slots can be swept.
  redis.call('ZADD', k_full, issued_u == 0 and now or '+inf', key .. limit)
end

local function give_back(node)
  local shares = redis.call('HGETALL', slots_of(node))
  for i = 1, #shares, 2 do
    local key, limit = string.sub(shares[i], 1, 32), string.sub(shares[i], 33)
    local has = tonumber(string.match(shares[i + 1], '^%d+'))
    local issued_u = redis.call('HGET', prefix .. ':limit:' .. limit .. ':' .. key, 'issued_u')
    if issued_u and has > 0 then set_issued(limit, key, math.max(0, issued_u - has * 1000000)) end
  end
  redis.call('DEL', slots_of(node))
end
