-- The view: the state of the hive, its version and its lineage.

local function field(name)
  return redis.call('HGET', k_view, name)
end

local function number(name)
  return tonumber(field(name) or 0)
end

-- The server process that answers. `master_replid` would change without a failover, and stays the same after one.
local run_id
local function server()
  run_id = run_id or string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not run_id then error('NORUNID') end
  return run_id
end

local function head()
  return {now, server(), redis.call('HMGET', k_view, 'origin', 'lineage', 'lineage_ms', 'max_ttl_ms', 'hold', 'version',
    'limits', 'alive', 'ready', 'engaged', 'epoch', 'counted_ms')}
end

-- Makes the view if it is missing. An empty server may have lost everything a moment ago, so its history is unknown.
local function make_view()
  if redis.call('HSETNX', k_view, 'origin', ARGV[1]) == 0 then return end
  redis.call('HSET', k_view, 'lineage', server(), 'lineage_ms', now, 'max_ttl_ms', 0, 'version', 0, 'limits', 0,
    'alive', 0, 'ready', 0, 'engaged', 0, 'epoch', 0, 'counted_ms', 0)
  -- Events of a lost view would have higher versions than the first event of this one.
  redis.call('DEL', k_event)
end

-- Raises the version by one and writes the event that explains it.
local function event(kind, node, lease, epoch, cause)
  make_view()
  local version = redis.call('HINCRBY', k_view, 'version', 1)
  redis.call('XADD', k_event, whole(version) .. '-0', 'at_ms', now, 'kind', kind, 'node', node or '', 'lease', lease or '',
    'epoch', epoch or '', 'cause', cause)
end

-- Raises the version above every version that a node can have seen.
local function jump(kind, cause)
  redis.call('HSET', k_view, 'version', whole(math.max(number('version'), now - 1)))
  event(kind, nil, nil, nil, cause)
end
