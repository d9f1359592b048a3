-- Sets every stored time of a hive back: 1 the hive's prefix, 2 by how many milliseconds.
local prefix, by = ARGV[1], tonumber(ARGV[2])
local function key(part) return prefix .. ':' .. part end
local function whole(number) return string.format('%.0f', number) end

for _, part in ipairs({'alive', 'ready', 'engaged', 'none'}) do
  for _, node in ipairs(redis.call('ZRANGE', key(part), 0, -1)) do redis.call('ZINCRBY', key(part), -by, node) end
end
for _, part in ipairs({'traffic', 'since'}) do
  local pairs_of = redis.call('HGETALL', key(part))
  for i = 1, #pairs_of, 2 do
    if pairs_of[i + 1] ~= '0' then redis.call('HINCRBY', key(part), pairs_of[i], -by) end
  end
end
for _, name in ipairs({'lineage_ms', 'counted_ms'}) do
  local at = redis.call('HGET', key('view'), name)
  if at and at ~= '0' then redis.call('HINCRBY', key('view'), name, -by) end
end
local events = redis.call('XRANGE', key('event'), '-', '+')
redis.call('DEL', key('event'))
for _, entry in ipairs(events) do
  entry[2][2] = whole(entry[2][2] - by)
  redis.call('XADD', key('event'), entry[1], unpack(entry[2]))
end
for _, part in ipairs({'limit', 'coming'}) do
  local definitions = redis.call('HGETALL', key(part))
  for i = 1, #definitions, 2 do
    local rule, effective_ms = string.match(definitions[i + 1], '^(.*) (%d+)$')
    redis.call('HSET', key(part), definitions[i], rule .. ' ' .. whole(effective_ms - by))
  end
end
for _, member in ipairs(redis.call('ZRANGE', key('full'), 0, -1)) do
  local bucket = key('limit:' .. string.sub(member, 33) .. ':' .. string.sub(member, 1, 32))
  redis.call('ZINCRBY', key('full'), -by, member)
  if redis.call('EXISTS', bucket) == 1 then
    redis.call('HINCRBY', bucket, 'pool_ms', -by)
    if redis.call('HGET', bucket, 'slot') then redis.call('HINCRBY', bucket, 'slot', 0 - math.floor(by / 1000)) end
    if redis.call('HGET', bucket, 'reset_ms') ~= '0' then redis.call('HINCRBY', bucket, 'reset_ms', -by) end
    local left = redis.call('PTTL', bucket)
    if left > 0 then redis.call('PEXPIRE', bucket, whole(left - by)) end
  end
end
return 1
