-- Nodes: a node with a score in `alive` has a row, expired or not.

local function expires(node)
  return tonumber(redis.call('ZSCORE', k_alive, node) or nil)
end

local function is_alive(node)
  local at = expires(node)
  return at ~= nil and at > now
end

local function may_lead(node)
  return is_alive(node) and redis.call('SISMEMBER', k_eligible, node) == 1
end

-- What other nodes need to know about a node to decide whether it is dead.
local function watched(node)
  local at = redis.call('ZSCORE', k_alive, node)
  if not at then return false end
  return {node, redis.call('HGET', k_beat, node), redis.call('HGET', k_heartbeat, node), redis.call('HGET', k_ttl, node), at}
end

local function node_row(node)
  local at = redis.call('ZSCORE', k_alive, node)
  if not at then return false end
  return {node, at, redis.call('ZSCORE', k_ready, node) and 1 or 0, redis.call('SISMEMBER', k_eligible, node),
    redis.call('HGET', k_traffic, node), redis.call('HGET', k_beat, node), redis.call('HGET', k_heartbeat, node),
    redis.call('HGET', k_ttl, node), redis.call('HGET', k_name, node), redis.call('HGET', k_warm, node),
    redis.call('HGET', k_meta, node)}
end

-- Deletes the node's row and gives back its slots. Leases keep their holder field: a holder without a row does not count.
local function remove(node, kind, cause)
  for _, key in ipairs({k_alive, k_ready, k_engaged}) do redis.call('ZREM', key, node) end
  for _, key in ipairs({k_traffic, k_beat, k_heartbeat, k_ttl, k_name, k_warm, k_meta}) do redis.call('HDEL', key, node) end
  redis.call('SREM', k_eligible, node)
  give_back(node)
  event(kind, node, nil, nil, cause)
end

-- Arguments from `first` on: node, the beat that was watched, whether it was silent for long, cause.
local function bury(first)
  local buried = {}
  for i = first, #ARGV, 4 do
    local node, at = ARGV[i], expires(ARGV[i])
    if at and (redis.call('HGET', k_beat, node) or '0') == ARGV[i + 1] and (ARGV[i + 2] == '1' or at <= now) then
      remove(node, 'buried', ARGV[i + 3])
      buried[#buried + 1] = node
    end
  end
  return buried
end

local function tally()
  local counts = {}
  for i, key in ipairs({k_alive, k_ready, k_engaged}) do
    counts[i] = redis.call('ZCOUNT', key, '(' .. whole(now), '+inf')
  end
  return counts
end
