-- Takes free leases: 2 node, 3 cause, 4 lineage, 5 watched for long, 6… claims.
local node = ARGV[2]
local refused = refusal(ARGV[4], ARGV[5])
if refused then return refused end
if not may_lead(node) then return {'refused', 'unfit'} end
return mint(6, node, 'taken', ARGV[3], is_free)
