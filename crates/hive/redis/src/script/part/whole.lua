-- Returns all keys in one snapshot, one after the other; the reader builds the rows.

local function whole_view()
  local hashes = {}
  for i, key in ipairs({k_traffic, k_beat, k_heartbeat, k_ttl, k_name, k_warm, k_meta}) do
    hashes[i] = redis.call('HGETALL', key)
  end
  local leases = {}
  for i, key in ipairs({k_epoch, k_holder, k_heir, k_since, k_cause}) do leases[i] = redis.call('HGETALL', key) end
  return {'view', head(), redis.call('ZRANGE', k_alive, 0, -1, 'WITHSCORES'), redis.call('ZRANGE', k_ready, 0, -1),
    redis.call('SMEMBERS', k_eligible), hashes, leases}
end
