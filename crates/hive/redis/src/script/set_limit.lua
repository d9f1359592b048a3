-- Defines a limit, or changes it later: 2 limit, 3 version that was seen or '', 4 the rule, 5 least delay in ms.
local function parts(text)
  local version, rule, effective_ms = string.match(text, '^(%d+) (%d+ %d+ %d+) (%d+)$')
  return version, rule, tonumber(effective_ms)
end
local newest = redis.call('HGET', k_coming, ARGV[2]) or redis.call('HGET', k_limit, ARGV[2])
local version, _, effective_ms = '', nil, 0
if newest then version, _, effective_ms = parts(newest) end
if version ~= ARGV[3] then return {'raced'} end
if effective_ms > now then return {'pending', effective_ms} end
make_view()
local from_ms = now
if newest then
  -- Two heartbeats of the slowest node: by then all nodes have received it.
  local slowest_ms = 0
  for _, heartbeat_ms in ipairs(redis.call('HVALS', k_heartbeat)) do slowest_ms = math.max(slowest_ms, heartbeat_ms) end
  from_ms = now + math.max(2 * slowest_ms, ARGV[5])
end
local new = redis.call('HINCRBY', k_view, 'limits', 1)
local text = whole(new) .. ' ' .. ARGV[4] .. ' ' .. whole(from_ms)
if newest then
  redis.call('HSET', k_limit, ARGV[2], newest)
  redis.call('HSET', k_coming, ARGV[2], text)
else
  redis.call('HSET', k_limit, ARGV[2], text)
end
return {'set', new, whole(from_ms)}
