-- The status that a node receives with every heartbeat; its cost does not depend on the number of nodes.

local function queen()
  local epoch = redis.call('HGET', k_epoch, 'queen')
  if not epoch then return false end
  local holder = redis.call('HGET', k_holder, 'queen')
  return {epoch, holder, redis.call('HGET', k_heir, 'queen'), redis.call('HGET', k_since, 'queen'),
    holder and watched(holder)}
end

local function soonest(me, most)
  local found = {}
  -- Reads one more than needed, because the node itself may be among them.
  for _, node in ipairs(redis.call('ZRANGE', k_alive, 0, most)) do
    if node ~= me and #found < most then found[#found + 1] = watched(node) end
  end
  return found
end

-- Whether a stored time is further ahead than it can be.
local function is_ahead()
  local last = redis.call('ZREVRANGE', k_alive, 0, 0, 'WITHSCORES')[2]
  return last and tonumber(last) > now + number('max_ttl_ms') or number('lineage_ms') > now or number('counted_ms') > now
end

local function status(me, member, renewed)
  local heir_of = redis.call('ZRANGEBYLEX', k_heirs, '[' .. me .. '/', '(' .. me .. '0', 'LIMIT', 0, 16)
  return {head(), member and 1 or 0, renewed and 1 or 0, queen(), heir_of, soonest(me, 16), is_ahead() and 1 or 0}
end
