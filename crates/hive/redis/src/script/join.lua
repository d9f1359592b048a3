-- Inserts a node: 2 id, 3 name, 4 heartbeat, 5 time to live, 6 meta.
local node, ttl = ARGV[2], tonumber(ARGV[5])
if expires(node) then return {'known'} end
make_view()
redis.call('ZADD', k_alive, now + ttl, node)
redis.call('HSET', k_beat, node, 0)
redis.call('HSET', k_traffic, node, 0)
redis.call('HSET', k_name, node, ARGV[3])
redis.call('HSET', k_heartbeat, node, ARGV[4])
redis.call('HSET', k_ttl, node, ARGV[5])
redis.call('HSET', k_warm, node, '[]')
redis.call('HSET', k_meta, node, ARGV[6])
if ttl > number('max_ttl_ms') then redis.call('HSET', k_view, 'max_ttl_ms', ARGV[5]) end
event('joined', node, nil, nil, ARGV[3])
return {'joined', status(node, true, true)}
