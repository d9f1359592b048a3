-- The queen's count under her fence: 2 lease, 3 epoch, 4 holder, 5 how often to publish at least, 6… removals.
if ARGV[2] ~= 'queen' or not holds(ARGV[2], ARGV[3], ARGV[4]) then return {'stale'} end
make_view()
local buried = bury(6)
local counts = tally()
local counted_ms = number('counted_ms')
local due = counts[1] ~= number('alive') or counts[2] ~= number('ready') or counts[3] ~= number('engaged')
  or field('epoch') ~= ARGV[3] or counted_ms > now or counted_ms + ARGV[5] <= now
if due then
  redis.call('HSET', k_view, 'alive', counts[1], 'ready', counts[2], 'engaged', counts[3], 'epoch', ARGV[3],
    'counted_ms', now)
end
return {'counted', now, counts, field('epoch'), field('counted_ms'), due and 1 or 0, buried}
