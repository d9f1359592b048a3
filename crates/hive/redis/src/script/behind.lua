-- The store shows an older state than a node has seen; on Redis that is a new lineage: 2 lineage, 3 version, 4… lease and
-- epoch.
if field('lineage') ~= ARGV[2] or server() ~= ARGV[2] then return 'raced' end
local lost = {}
for i = 4, #ARGV, 2 do
  local epoch = tonumber(redis.call('HGET', k_epoch, ARGV[i]) or -1)
  local seen = tonumber(ARGV[i + 1])
  if epoch < seen then lost[ARGV[i]] = seen end
end
if number('version') >= tonumber(ARGV[3]) and not next(lost) then return 'raced' end
for lease, epoch in pairs(lost) do
  -- An epoch that was granted and is lost here: the next epoch must be higher, independent of this server's clock.
  if epoch <= 1099511627776 then redis.call('HSET', k_epoch, lease, whole(epoch)) end
end
redis.call('HSET', k_view, 'lineage_ms', now)
jump('lineage', ARGV[2])
return 'done'
