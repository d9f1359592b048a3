-- Releases leases and keeps their epochs: 2 node, 3 cause, 4… lease and epoch.
local released = {}
for i = 4, #ARGV, 2 do
  local lease, epoch = ARGV[i], ARGV[i + 1]
  if holds(lease, epoch, ARGV[2]) then
    redis.call('HDEL', k_holder, lease)
    set_heir(lease, nil)
    redis.call('HSET', k_since, lease, now)
    redis.call('HSET', k_cause, lease, ARGV[3])
    event('released', ARGV[2], lease, epoch, ARGV[3])
    released[#released + 1] = lease
  end
end
return released
