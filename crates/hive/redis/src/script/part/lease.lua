-- Leases: a lease with an epoch has a row. The epoch is never deleted; the other fields may be missing.

local function is_free(lease)
  local holder = redis.call('HGET', k_holder, lease)
  return not holder or not expires(holder)
end

local function holds(lease, epoch, holder)
  return redis.call('HGET', k_epoch, lease) == epoch and redis.call('HGET', k_holder, lease) == holder
end

local function set_heir(lease, heir)
  local before = redis.call('HGET', k_heir, lease)
  if before then
    redis.call('HDEL', k_heir, lease)
    redis.call('ZREM', k_heirs, before .. '/' .. lease)
  end
  if heir then
    redis.call('HSET', k_heir, lease, heir)
    redis.call('ZADD', k_heirs, 0, heir .. '/' .. lease)
  end
end

-- The last field: the warm leases of the successor, if it may lead.
local function lease_row(lease)
  local epoch = redis.call('HGET', k_epoch, lease)
  if not epoch then return false end
  local heir = redis.call('HGET', k_heir, lease)
  return {lease, epoch, redis.call('HGET', k_holder, lease), heir, redis.call('HGET', k_since, lease),
    redis.call('HGET', k_cause, lease), is_free(lease) and 1 or 0,
    heir and may_lead(heir) and redis.call('HGET', k_warm, heir)}
end

-- Why no epoch may be minted now, or nil. It is decided here, on the server that would mint.
local function refusal(lineage, watched_long)
  local recorded, hold = field('lineage'), field('hold')
  if lineage ~= server() or recorded ~= server() then return {'refused', 'lineage'} end
  if hold then return {'refused', 'hold'} end
  local since = number('lineage_ms')
  local wait = since == 0 and 0 or since + number('max_ttl_ms') - now
  if wait > 0 and watched_long ~= '1' then return {'refused', 'early', wait} end
end

-- Claims are the arguments from `first` on: lease, epoch seen or held, floor. All are checked before the first is written.
local function mint(first, holder, kind, cause, is_allowed)
  local minted, seen = {}, {}
  for i = first, #ARGV, 3 do
    local lease, epoch, floor = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    if not seen[lease] and redis.call('HGET', k_epoch, lease) == epoch and is_allowed(lease) then
      local new = math.max(epoch + 1, now, floor + 1)
      if new > 1099511627776 then return {'too-large', lease, whole(new)} end
      seen[lease] = true
      minted[#minted + 1] = lease
      minted[#minted + 1] = whole(new)
    end
  end
  if #minted == 0 then return {'refused', 'raced'} end
  for i = 1, #minted, 2 do
    local lease, epoch = minted[i], minted[i + 1]
    redis.call('HSET', k_epoch, lease, epoch)
    redis.call('HSET', k_holder, lease, holder)
    redis.call('HSET', k_since, lease, now)
    redis.call('HSET', k_cause, lease, cause)
    set_heir(lease, nil)
    event(kind, holder, lease, epoch, cause)
  end
  local replicas = string.match(redis.call('INFO', 'replication'), 'connected_slaves:(%d+)')
  return {'taken', replicas or '0', minted}
end
