-- Transfers leases from a holder to its successor without a gap: 2 node, 3 cause, 4 lineage, 5 watched for long, 6 successor,
-- 7… claims.
local node, heir = ARGV[2], ARGV[6]
local refused = refusal(ARGV[4], ARGV[5])
if refused then return refused end
if not (heir == node and is_alive(heir) or may_lead(heir)) then return {'refused', 'unfit'} end
return mint(7, heir, 'handed-over', ARGV[3], function(lease) return redis.call('HGET', k_holder, lease) == node end)
