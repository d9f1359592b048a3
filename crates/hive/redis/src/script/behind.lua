-- The store shows less than somebody has seen, which is a new lineage here: 2 lineage, 3 version, 4… lease and epoch.
if field('lineage') ~= ARGV[2] or server() ~= ARGV[2] then return 'raced' end
local lost = {}
for i = 4, #ARGV, 2 do
  local epoch = tonumber(redis.call('HGET', k_epoch, ARGV[i]) or -1)
  local seen = tonumber(ARGV[i + 1])
  if epoch < seen then lost[ARGV[i]] = seen end
end
if number('version') >= tonumber(ARGV[3]) and not next(lost) then return 'raced' end
for lease, epoch in pairs(lost) do
  -- Whatever was granted under it and is not known here: the next one lies above, however this server's clock stands.
  if epoch <= 1099511627776 then redis.call('HSET', k_epoch, lease, whole(epoch)) end
end
redis.call('HSET', k_view, 'lineage_ms', now)
jump('lineage', ARGV[2])
return 'done'
